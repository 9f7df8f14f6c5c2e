"""The bounds of one column in a segment, sorted, so that a selective filter looks at few of them.

Rows are sorted by their least value; blocks of them know their greatest. A range then is a part of the sorted rows,
found by binary search, and within it only the blocks that reach far enough: the cost is that of the rows it may
select, plus one look at each block. Rows that say nothing of the column always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog_server.codec.span_masks import admitted
from tarnlog_server.codec.typed_bounds import TypedBounds
from tarnlog_server.core.span_tests import Compared, OneOf, Prefixed, SpanTest

BLOCK = 1024


class BoundsIndex:
    """Immutable; 20 bytes a row of numbers."""

    def __init__(self, bounds: Sequence[TypedBounds], rows: pa.Array) -> None:
        """Bounds in the order of storage, and the row of each. Costs a sort."""
        low = pa.concat_arrays([one.low for one in bounds])
        high = pa.concat_arrays([one.high for one in bounds])
        odd = pa.concat_arrays([one.odd for one in bounds])
        self.odd = _sorted(rows.filter(odd))
        """Rows that only the scalar test understands."""
        self._open = _sorted(rows.filter(pc.and_(low.is_null(), pc.invert(odd))))
        order = pc.sort_indices(low).slice(0, len(low) - low.null_count)
        self._low, self._high, self._rows = low.take(order), high.take(order), rows.take(order)
        self._reach = [_reach(self._high.slice(at, BLOCK)) for at in range(0, len(order), BLOCK)]

    @property
    def nbytes(self) -> int:
        """The bytes it holds."""
        return int(sum(one.nbytes for one in (self._low, self._high, self._rows, self._open, self.odd)))

    def select(self, tests: Sequence[SpanTest]) -> pa.Array:
        """The rows that pass every test, ascending, without the odd ones."""
        end = self._end(tests)
        parts = [self._open]
        for start, stop in self._runs(end, [least for test in tests if (least := _least(test)) is not None]):
            low, high = self._low.slice(start, stop - start), self._high.slice(start, stop - start)
            mask = admitted(tests[0], low, high)
            for test in tests[1:]:
                mask = pc.and_(mask, admitted(test, low, high))
            parts.append(self._rows.slice(start, stop - start).filter(mask))
        return _sorted(pa.concat_arrays(parts))

    def _end(self, tests: Sequence[SpanTest]) -> int:
        """Behind it, every least value is too large for some test."""
        end = len(self._rows)
        for test in tests:
            reaches = _reaches(test)
            if reaches is None:
                continue
            first, last = 0, end
            while first < last:
                middle = (first + last) // 2
                if reaches(self._low[middle].as_py()):
                    first = middle + 1
                else:
                    last = middle
            end = first
        return end

    def _runs(self, end: int, least: list[Any]) -> list[tuple[int, int]]:
        """The blocks before `end` that reach every one of some values, neighbours together."""
        runs: list[tuple[int, int]] = []
        for start, reach in zip(range(0, end, BLOCK), self._reach, strict=False):
            if reach is not None and any(reach < one for one in least):
                continue
            stop = min(start + BLOCK, end)
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], stop)
            else:
                runs.append((start, stop))
        return runs


def _reaches(test: SpanTest) -> Callable[[Any], bool] | None:
    """What a test says of a least value alone: true up to some value, false above it. None when it says nothing."""
    match test:
        case Compared("eq" | "le", _, hi):
            return lambda low: bool(low <= hi)
        case Compared("lt", _, hi):
            return lambda low: bool(low < hi)
        case Prefixed(prefix, False):
            return lambda low: bool(low[: len(prefix)] <= prefix)
        case OneOf(spans):
            most = max(hi for _, hi in spans)
            return lambda low: bool(low <= most)
    return None


def _least(test: SpanTest) -> Any:
    """The value that a greatest must reach at least for a test to hold; None when it says nothing of that."""
    match test:
        case Compared("eq" | "gt" | "ge", lo, _):
            return lo
        case Prefixed(prefix, False):
            return prefix
        case OneOf(spans):
            return min(lo for lo, _ in spans)
    return None


def _reach(high: pa.Array) -> Any:
    """The greatest value of a block; None when one of them has no upper end."""
    return None if high.null_count else pc.max(high).as_py()


def _sorted(rows: pa.Array) -> pa.Array:
    return rows if len(rows) < 2 else rows.take(pc.sort_indices(rows))
