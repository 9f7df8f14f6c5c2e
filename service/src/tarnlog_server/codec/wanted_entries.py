"""Which entries of decoded manifests a filter may select, decided before anything is made of them.

Partition values decide exactly. Of bounds only ranges over whole numbers are asked here, column by column: that is
where tables have an order that their manifests do not follow. It leaves out less than the filter would, never more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog_server.core.column_order import IntegerOrder
from tarnlog_server.core.file_filter import Decider, Every, FileFilter, Leaf, by_partitions
from tarnlog_server.core.span_tests import Compared

_LARGEST = 2**62
_NO_NUMBER = "[^0-9-]"
_BOUNDS = ("minValues", "maxValues")
_NUMBERS = "numbers of "
"""Columns whose names begin so are no field of an entry."""
_MOST_COLUMNS = 16


class Wanted:
    """A filter, asked of entries. Callable with the partition values of some, in the order of `columns`."""

    def __init__(self, tree: FileFilter, columns: Sequence[str]) -> None:
        self._partitions = by_partitions(tree)
        self._columns = tuple(columns)
        self._ranges = tuple(_ranges(tree))

    @property
    def by_partitions(self) -> bool:
        """Whether partition values decide anything."""
        return self._partitions is not None

    def __call__(self, values: tuple[str | None, ...]) -> bool:
        if self._partitions is None:
            return True
        return self._partitions(dict(zip(self._columns, values, strict=True)), None, None)

    def in_range(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The entries whose bounds may hold a match, and those that do not tell."""
        if not batch.num_rows:
            return batch
        masks = [mask for leaf, test in self._ranges if (mask := _in_range(batch, leaf.column, test)) is not None]
        # Filtered once: each end of a range alone may leave nearly everything, and copying is the dear part.
        return batch.filter(functools.reduce(pc.and_, masks)) if masks else batch


def _ranges(tree: FileFilter) -> Iterator[tuple[Leaf, Compared]]:
    """The comparisons that every match must satisfy and that are asked here."""
    if isinstance(tree, Every):
        for arg in tree.args:
            yield from _ranges(arg)
    elif isinstance(tree, Leaf) and tree.decider is Decider.BOUNDS and type(tree.order) is IntegerOrder:
        test = tree.test
        if isinstance(test, Compared) and test.op != "ne" and max(abs(test.lo), abs(test.hi)) < _LARGEST:
            yield tree, test


def _in_range(batch: pa.RecordBatch, column: str, test: Compared) -> pa.Array | None:
    """Which entries stay; None for all."""
    low, high = (_numbers(batch, name, column) for name in _BOUNDS)
    if low is None or high is None:
        return None
    match test.op:
        case "eq":
            fits = pc.and_kleene(_at_most(low, test.hi), _at_least(high, test.lo))
        case "lt":
            fits = pc.less(low, math.ceil(test.hi))
        case "le":
            fits = _at_most(low, test.hi)
        case "gt":
            fits = pc.greater(high, math.floor(test.lo))
        case _:
            fits = _at_least(high, test.lo)
    # Bounds that contradict each other tell nothing.
    fits = pc.or_kleene(fits, pc.greater(low, high))
    return pc.fill_null(fits, True)


def _at_most(numbers: pa.Array, bound: float) -> pa.Array:
    return pc.less_equal(numbers, math.floor(bound))


def _at_least(numbers: pa.Array, bound: float) -> pa.Array:
    return pc.greater_equal(numbers, math.ceil(bound))


def with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same entries with the bounds that are plain numbers as columns beside them: whoever keeps the batch asks
    ranges of it without reading texts again. `without_numbers` takes them away."""
    for name in _BOUNDS:
        if name not in batch.schema.names or not pa.types.is_map(batch.schema.field(name).type):
            continue
        maps = batch.column(name)
        first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
        for key in pc.unique(maps.keys.slice(first, last - first)).to_pylist()[:_MOST_COLUMNS]:
            numbers = _numbers(batch, name, key)
            if numbers is not None and numbers.null_count < len(numbers):
                batch = batch.append_column(_NUMBERS + name + key, numbers)
    return batch


def without_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries alone."""
    names = batch.schema.names
    own = [at for at, name in enumerate(names) if not name.startswith(_NUMBERS)]
    return batch if len(own) == len(names) else batch.select(own)


def _numbers(batch: pa.RecordBatch, name: str, column: str) -> pa.Array | None:
    """One bound of all entries as numbers, null where there is none; None when one of them is no plain number."""
    made = batch.schema.get_field_index(_NUMBERS + name + column)
    if made >= 0:
        return batch.column(made)
    if name not in batch.schema.names or not pa.types.is_map(batch.schema.field(name).type):
        return None
    texts = values_of(batch.column(name), column)
    if pc.any(pc.match_substring_regex(texts, _NO_NUMBER)).as_py():
        return None
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def partition_texts(maps: pa.MapArray, column: str) -> pa.Array:
    """The values of a partition column, under whatever case of its name: as `partition_value` finds one."""
    found = values_of(maps, column)
    if not found.null_count:
        return found
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    names = pc.unique(maps.keys.slice(first, last - first)).to_pylist()
    others = [name for name in names if name != column and name.lower() == column.lower()]
    return pc.coalesce(found, *(values_of(maps, name) for name in others)) if others else found


def values_of(maps: pa.MapArray, key: str) -> pa.Array:
    """What each map has under a key, null for nothing. Several times faster than Arrow's lookup where all have it."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys = maps.keys.slice(first, last - first)
    hits = pc.indices_nonzero(pc.equal(keys, pa.scalar(key, keys.type)))
    if len(hits) == len(maps):
        starts = pc.subtract(maps.offsets, first)
        inside = pc.and_(pc.greater_equal(hits, starts.slice(0, len(maps))), pc.less(hits, starts.slice(1)))
        if pc.all(inside).as_py():
            return maps.items.slice(first, last - first).take(hits)
    return pc.map_lookup(maps, pa.scalar(key), "first")
