"""A filter asked of a whole segment at once: which rows may hold a match.

Partition columns and bounds become indices when a filter first asks for them. Conjuncts narrow the rows one after the
other, partitions first; comparisons of one column are asked together, because a range is two of them. Few rows are
judged by their own texts, which costs no index. The answers are those of the scalar test, row for row.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog_server.codec.bounds_index import BoundsIndex
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.partition_index import PartitionIndex
from tarnlog_server.codec.span_masks import admitted
from tarnlog_server.codec.typed_bounds import is_typed, typed_bounds
from tarnlog_server.core.file_filter import Decider, Every, FileFilter, Leaf, Some, leaves

FEW = 16
"""Below this part of the rows, their texts are read instead of an index."""


class SegmentFilter:
    """Filters over one segment; the indices stay with it."""

    def __init__(self, files: FileColumns) -> None:
        self._files = files
        self._indices = files.indices

    def select(self, tree: FileFilter, among: pa.Array | None = None) -> pa.Array | None:
        """The rows that the filter admits, ascending, as unsigned 32-bit numbers; of those in `among`, or of all.

        None when those are all rows.
        """
        if among is not None and not len(among):
            return among
        if isinstance(tree, Every):
            return self._every(tree, among)
        if isinstance(tree, Some):
            return self._some(tree, among)
        match tree.decider:
            case Decider.NOTHING:
                return among
            case Decider.NEVER:
                return pa.array([], pa.uint32())
            case Decider.PARTITION:
                return self._partition(tree.column).select(tree.admits_value, among)
            case Decider.BOUNDS:
                return self._by_bounds([tree], among)

    def _every(self, tree: Every, among: pa.Array | None) -> pa.Array | None:
        by_column: dict[str, list[Leaf]] = {}
        others: list[FileFilter] = []
        for arg in _flat(tree):
            if isinstance(arg, Leaf) and arg.decider is Decider.BOUNDS:
                by_column.setdefault(arg.column, []).append(arg)
            else:
                others.append(arg)
        late = [arg for arg in others if any(leaf.decider is Decider.BOUNDS for leaf in leaves(arg))]
        # What partitions decide costs least and leaves least.
        for arg in others:
            if arg not in late:
                among = self.select(arg, among)
        for together in by_column.values():
            among = self._by_bounds(together, among)
        for arg in late:
            among = self.select(arg, among)
        return among

    def _some(self, tree: Some, among: pa.Array | None) -> pa.Array | None:
        parts = []
        for arg in tree.args:
            found = self.select(arg, among)
            if found is None:
                return None
            parts.append(found)
        if len(parts) == 1:
            return parts[0]
        rows = pc.unique(pa.concat_arrays(parts))
        return rows.take(pc.sort_indices(rows))

    def _by_bounds(self, together: list[Leaf], among: pa.Array | None) -> pa.Array | None:
        """Comparisons of one column that must all hold."""
        if among is not None and not len(among):
            return among
        if not is_typed(together[0].order):
            raise TypeError(f"bounds of {together[0].column} have no order")
        if among is not None and (len(among) * FEW < len(self._files) or len(among) < FEW * FEW):
            return self._by_texts(together, among)
        index = self._index(together[0])
        rows = index.select([leaf.test for leaf in together])
        if len(index.odd):
            rows = _merged(rows, self._by_scalar(together, index.odd))
        return rows if among is None else among.filter(pc.is_in(among, value_set=rows))

    def _by_texts(self, together: list[Leaf], among: pa.Array) -> pa.Array:
        """Some rows, by what they say themselves."""
        first = together[0]
        order = pc.sort_indices(self._files.places(among))
        rows = among.take(order)
        least, greatest = self._texts(first.column, self._files.places(rows))
        bounds = typed_bounds(first.order, least, greatest, first.truncation)
        mask = pc.invert(bounds.odd)
        for leaf in together:
            mask = pc.and_(mask, admitted(leaf.test, bounds.low, bounds.high))
        found = rows.filter(mask)
        if pc.any(bounds.odd).as_py():
            found = pa.concat_arrays([found, self._by_scalar(together, rows.filter(bounds.odd))])
        return found.take(pc.sort_indices(found))

    def _by_scalar(self, together: list[Leaf], rows: pa.Array) -> pa.Array:
        """Some rows, one by one."""
        order = pc.sort_indices(self._files.places(rows))
        rows = rows.take(order)
        texts = zip(
            *(one.to_pylist() for one in self._texts(together[0].column, self._files.places(rows))), strict=True
        )
        mask = [all(leaf.admits_bounds(*pair) for leaf in together) for pair in texts]
        return rows.filter(pa.array(mask, pa.bool_()))

    def _texts(self, column: str, places: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The least and the greatest of a column at ascending places."""
        least, greatest = [], []
        for chunk, within in self._files.by_chunk(places):
            least.append(chunk.texts("minValues", column, within))
            greatest.append(chunk.texts("maxValues", column, within))
        return pa.concat_arrays(least), pa.concat_arrays(greatest)

    def _partition(self, column: str) -> PartitionIndex:
        found = self._indices.partitions.get(column)
        if found is None:
            texts = [chunk.partition_texts(column) for chunk in self._files.chunks]
            found = self._indices.partitions[column] = PartitionIndex(texts, self._files.places())
        return found

    def _index(self, leaf: Leaf) -> BoundsIndex:
        key = (leaf.column, leaf.order, leaf.truncation)
        found = self._indices.bounds.get(key)
        if found is None:
            bounds = [
                typed_bounds(
                    leaf.order,
                    chunk.texts("minValues", leaf.column),
                    chunk.texts("maxValues", leaf.column),
                    leaf.truncation,
                )
                for chunk in self._files.chunks
            ]
            rows = pc.sort_indices(self._files.places()).cast(pa.uint32())
            found = self._indices.bounds[key] = BoundsIndex(bounds, rows)
        return found


def _flat(tree: Every) -> Iterable[FileFilter]:
    """The conjuncts, those of conjuncts too."""
    for arg in tree.args:
        if isinstance(arg, Every):
            yield from _flat(arg)
        else:
            yield arg


def _merged(one: pa.Array, other: pa.Array) -> pa.Array:
    rows = pa.concat_arrays([one, other])
    return rows.take(pc.sort_indices(rows))
