"""Bounds of a manifest's data columns: which manifests a filter on them may leave out before they are read.

A column has bounds only when every file of the manifest has both of its own, and its type can read them. Text columns
have none: their maxima may be cut, by a length that a later version may change. A bound is one of the files' own, so
it is read and compared exactly as theirs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.schema import SchemaError, parse_schema_string
from tarnlog_server.core.column_order import (
    BooleanOrder,
    ColumnOrder,
    DateOrder,
    IntegerOrder,
    RealOrder,
    TimestampOrder,
    column_order,
)

MOST_COLUMNS = 32
"""The first of a schema: the list of manifests is read by every plan, so it stays small."""
_BOUNDED = (IntegerOrder, DateOrder, TimestampOrder, RealOrder, BooleanOrder)


def bounded_columns(metadata: MetaData | None) -> dict[str, ColumnOrder]:
    """The data columns whose bounds are worth keeping, with their order."""
    if metadata is None:
        return {}
    try:
        fields = parse_schema_string(metadata.schema_string).fields
    except SchemaError:
        return {}
    partitions = {name.lower() for name in metadata.partition_columns}
    orders = {field.name: column_order(field) for field in fields if field.name.lower() not in partitions}
    found = [(name, order) for name, order in orders.items() if isinstance(order, _BOUNDED)]
    return dict(found[:MOST_COLUMNS])


class _Column:
    """One column's bounds so far: a span and the texts at its ends."""

    __slots__ = ("high", "high_text", "low", "low_text", "order")

    def __init__(self, order: ColumnOrder) -> None:
        self.order = order
        self.low: Any = None
        self.high: Any = None
        self.low_text = self.high_text = ""

    def note(self, low: str, high: str) -> bool:
        """Take one file's bounds into account; False when they cannot be read."""
        span = self.order.bounds(low, high, 0)
        if span is None or span[1] is None:
            return False
        if self.low is None or span[0] < self.low:
            self.low, self.low_text = span[0], low
        if self.high is None or span[1] > self.high:
            self.high, self.high_text = span[1], high
        return True


class ColumnBoundsBuilder:
    """Collects the bounds of one manifest. A column without is given up at the first file that does not tell."""

    def __init__(self, orders: Mapping[str, ColumnOrder] | None = None) -> None:
        self._orders = orders or {}
        self._columns = {name: _Column(order) for name, order in self._orders.items()}

    def fresh(self) -> ColumnBoundsBuilder:
        """Another one for the same columns."""
        return ColumnBoundsBuilder(self._orders)

    def note(self, add: Add) -> None:
        """Take one file into account."""
        if not self._columns:
            return
        least, greatest = add.min_values or {}, add.max_values or {}
        for name in [*self._columns]:
            low, high = least.get(name), greatest.get(name)
            if low is None or high is None or not self._columns[name].note(low, high):
                del self._columns[name]

    def result(self) -> dict[str, tuple[str, str]] | None:
        """The least and the greatest value by column, without those that have none."""
        found = {name: (one.low_text, one.high_text) for name, one in self._columns.items() if one.low is not None}
        return found or None
