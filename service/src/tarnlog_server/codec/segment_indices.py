"""The indices that filters left on one segment: made when first asked for, kept as long as the segment."""

from __future__ import annotations

from tarnlog_server.codec.bounds_index import BoundsIndex
from tarnlog_server.codec.partition_index import PartitionIndex
from tarnlog_server.core.column_order import ColumnOrder

BoundsKey = tuple[str, ColumnOrder, int]
"""Bounds are texts: what they mean depends on the column's type, and on where text was cut."""


class SegmentIndices:
    """Safe to fill from several threads: an index that is made twice is the same twice."""

    def __init__(self) -> None:
        self.partitions: dict[str, PartitionIndex] = {}
        self.bounds: dict[BoundsKey, BoundsIndex] = {}

    @property
    def nbytes(self) -> int:
        """The bytes they hold."""
        partitions, bounds = list(self.partitions.values()), list(self.bounds.values())
        return sum(index.nbytes for index in partitions) + sum(index.nbytes for index in bounds)
