"""The values of one partition column in a segment: each distinct one is judged once, and knows its rows.

A filter that wants few partitions costs their rows, whatever the size of the table.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

MANY = 10
"""More than this part of the rows is many."""


class PartitionIndex:
    """Immutable; 8 bytes a row, and the values."""

    def __init__(self, texts: Sequence[pa.Array], places: pa.Array) -> None:
        """The values in the order of storage, and the place of each row there."""
        coded = pa.concat_arrays(texts).dictionary_encode("encode")
        self._values = coded.dictionary
        """The distinct values; a code is an index into them."""
        self._codes = coded.indices.cast(pa.int32()).take(places)
        # A stable sort: the rows of one value stay ascending.
        self._rows = pc.sort_indices(self._codes).cast(pa.uint32())
        in_order = self._codes.take(self._rows)
        codes = _numbers(in_order)
        self._starts = [bisect_left(codes, code) for code in range(len(self._values) + 1)]

    @property
    def nbytes(self) -> int:
        """The bytes it holds."""
        return int(self._codes.nbytes + self._rows.nbytes + self._values.nbytes)

    def select(self, admits: Callable[[str | None], bool], among: pa.Array | None) -> pa.Array | None:
        """The rows whose value is admitted, ascending; of those in `among`, or of all. None when all values are."""
        wanted = [code for code, value in enumerate(self._values.to_pylist()) if admits(value)]
        if len(wanted) == len(self._values):
            return among
        if among is not None:
            return among.filter(self._flags(wanted).take(self._codes.take(among)))
        if sum(self._starts[code + 1] - self._starts[code] for code in wanted) * MANY > len(self._codes):
            # Looking at every row is cheaper than sorting that many.
            return pc.indices_nonzero(self._flags(wanted).take(self._codes)).cast(pa.uint32())
        parts = [self._rows.slice(self._starts[code], self._starts[code + 1] - self._starts[code]) for code in wanted]
        if len(parts) < 2:
            return parts[0] if parts else self._rows.slice(0, 0)
        found = pa.concat_arrays(parts)
        return found.take(pc.sort_indices(found))

    def _flags(self, wanted: list[int]) -> pa.Array:
        """Whether each code is wanted."""
        flags = bytearray(len(self._values))
        for code in wanted:
            flags[code] = 1
        return pa.array(flags, pa.uint8()).cast(pa.bool_())


def _numbers(column: pa.Array) -> array[int]:
    found = array("i")
    data = column.buffers()[1]
    if data is not None and len(column):
        found.frombytes(memoryview(data)[: 4 * len(column)])
    return found
