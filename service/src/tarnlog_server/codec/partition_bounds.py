"""Partition bounds of a manifest: which manifests a filter on partition columns may leave out.

Bounds compare as the column's type does and are always one of the values as written. Nulls do not count, they are
only noted. A value that its type cannot read, or an order that is not certain, leaves the column without bounds:
a missing bound costs a read, a wrong one loses a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.schema import Field, SchemaError, parse_schema_string
from tarnlog_server.core.column_order import ColumnOrder, DateOrder, StringOrder, column_order

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class PartitionBounds(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The least and greatest value of a column, None when all are null. `contains_null` None is a writer that did not
    say; such a writer's order is not known either, so use its bounds for text and dates only."""

    min: str | None = None
    max: str | None = None
    contains_null: bool | None = None


class _Column:
    """One column's bounds so far. `seen` makes the usual case, few distinct values, one dict lookup a file."""

    def __init__(self, order: ColumnOrder) -> None:
        self.order = order
        self.seen: set[str] = set()
        self.low: tuple[Any, str] | None = None
        self.high: tuple[Any, str] | None = None
        self.null = False
        self.unreadable = False

    def note(self, value: str | None) -> None:
        if value is None:
            self.null = True
            return
        if value in self.seen or self.unreadable:
            return
        if len(self.seen) < 100_000:
            self.seen.add(value)
        span = self.order.exact(value)
        if span is None:
            self.unreadable = True
            return
        least, greatest = span
        if self.low is None or (least, value) < self.low:
            self.low = (least, value)
        if self.high is None or (greatest, value) > self.high:
            self.high = (greatest, value)

    def result(self) -> PartitionBounds | None:
        if self.unreadable:
            return None
        return PartitionBounds(
            min=self.low[1] if self.low else None,
            max=self.high[1] if self.high else None,
            contains_null=self.null,
        )


def partition_fields(metadata: MetaData | None) -> dict[str, Field | None]:
    """The partition columns with their fields; None for a field that the schema does not tell."""
    if metadata is None:
        return {}
    try:
        fields = parse_schema_string(metadata.schema_string).by_name()
    except SchemaError:
        fields = {}
    return {name: fields.get(name.lower()) for name in metadata.partition_columns}


class BoundsBuilder:
    """Collects the bounds of one manifest. `columns` are the partition columns; None as a field: compare as text."""

    def __init__(self, columns: Mapping[str, Field | None]) -> None:
        self._orders = {name: _order(field) for name, field in columns.items()}
        self._columns = {name: _Column(order) for name, order in self._orders.items()}

    def fresh(self) -> BoundsBuilder:
        """Another one for the same columns."""
        other = BoundsBuilder({})
        other._orders = self._orders
        other._columns = {name: _Column(order) for name, order in self._orders.items()}
        return other

    def note(self, values: Mapping[str, str | None]) -> None:
        """Take one file's partition values into account."""
        for name, column in self._columns.items():
            value = values.get(name)
            if value is None and not values.keys() <= self._columns.keys():
                column.unreadable = True  # another spelling of this column's name may hold its value
            column.note(value)

    def result(self) -> dict[str, PartitionBounds] | None:
        """Bounds by column, without those that have none; None for an unpartitioned table."""
        found = {name: column.result() for name, column in self._columns.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None} or None


def _order(field: Field | None) -> ColumnOrder:
    if field is None:
        return StringOrder()
    # A type without an order has no bounds: ColumnOrder reads nothing.
    return column_order(field) or ColumnOrder()


def for_other_readers(
    bounds: Mapping[str, PartitionBounds] | None, columns: Mapping[str, Field | None]
) -> dict[str, dict[str, str]] | None:
    """The bounds that hold whether a reader compares values as text (by code point or UTF-16 unit) or by their type.

    Numbers are left out, because "9" follows "10" for some readers; so are columns with nulls, about which the format
    has no word.
    """
    safe = {}
    for name, own in (bounds or {}).items():
        if own.contains_null is False and own.min is not None and own.max is not None:
            field = columns.get(name)
            if _same_in_any_order(own.min, own.max, StringOrder() if field is None else column_order(field)):
                safe[name] = {"min": own.min, "max": own.max}
    return safe or None


def _same_in_any_order(low: str, high: str, order: ColumnOrder | None) -> bool:
    if isinstance(order, StringOrder):
        # Between ASCII ends, code points and UTF-16 units agree about every value.
        return low.isascii() and high.isascii()
    return isinstance(order, DateOrder) and bool(_ISO_DATE.fullmatch(low) and _ISO_DATE.fullmatch(high))
