"""What a leaf of a filter asks of the span of values a file may hold: can one of them make me TRUE?

Plain values instead of closures, so that the same question can be put to one span here and to columns of spans
elsewhere. A greatest value of None has no upper end.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import msgspec

from tarnlog_server.core.column_order import Span

Op: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge"]
NEGATED: dict[str, Op] = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


class Compared(msgspec.Struct, frozen=True):
    """Some value compares so with a literal, which itself may mean any value from `lo` to `hi`."""

    op: Op
    lo: Any
    hi: Any

    def __call__(self, low: Any, high: Any) -> bool:
        lo, hi = self.lo, self.hi
        match self.op:
            case "eq":
                return bool(low <= hi and (high is None or high >= lo))
            case "ne":
                return not (low == high and lo == hi and low == lo)
            case "lt":
                return bool(low < hi)
            case "le":
                return bool(low <= hi)
            case "gt":
                return high is None or bool(high > lo)
            case "ge":
                return high is None or bool(high >= lo)


class Prefixed(msgspec.Struct, frozen=True):
    """Some text begins, or does not begin, with a prefix."""

    prefix: str
    negated: bool

    def __call__(self, low: Any, high: Any) -> bool:
        prefix, size = self.prefix, len(self.prefix)
        if self.negated:
            return not (high is not None and low[:size] == prefix and high[:size] == prefix)
        return bool(low[:size] <= prefix and (high is None or high >= prefix))


class OneOf(msgspec.Struct, frozen=True, dict=True):
    """Some value equals one of these literals. One question costs a binary search, however many there are."""

    spans: tuple[Span, ...]

    @cached_property
    def _sorted(self) -> tuple[list[Any], list[Any]]:
        spans = sorted(self.spans, key=lambda span: span[0])
        return [lo for lo, _ in spans], list(accumulate((hi for _, hi in spans), max))

    def __call__(self, low: Any, high: Any) -> bool:
        starts, ends = self._sorted
        reached = len(starts) if high is None else bisect_right(starts, high)
        return reached > 0 and bool(ends[reached - 1] >= low)


class NoneOf(msgspec.Struct, frozen=True):
    """Some value equals none of these literals."""

    exact: frozenset[Any]

    def __call__(self, low: Any, high: Any) -> bool:
        return not (low == high and low in self.exact)


class Anything(msgspec.Struct, frozen=True):
    """Nothing is known that would exclude a span."""

    def __call__(self, low: Any, high: Any) -> bool:
        return True


SpanTest: TypeAlias = Compared | Prefixed | OneOf | NoneOf | Anything


def none_of(spans: list[Span]) -> NoneOf:
    """Only literals that mean one value can exclude a file that holds nothing else."""
    return NoneOf(frozenset(lo for lo, hi in spans if lo == hi))
