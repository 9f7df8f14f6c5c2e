"""Which partition values and bounds a file may have: those of known columns that readers can read, in order.

The texts are judged by the parser that readers use (`tarnlog.protocol.values`) and by the order that planning uses
(`column_order`). Cost: one parse for each bound; a partition value that was seen before costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarnlog.protocol.actions import Add
from tarnlog.protocol.schema import Field, Primitive, Schema, StructType
from tarnlog.protocol.values import reader_of
from tarnlog_server.core.column_order import ColumnOrder, column_order

_NO_VALUE = ("", "__HIVE_DEFAULT_PARTITION__")
"""What readers take for null in columns that are not text."""
_KEPT_SCHEMAS = 256
_KEPT_TEXTS = 10_000
_SHOWN = 80
_NONE: dict[str, str] = {}
Fault = tuple[str, str]
"""Where, below the action (`/partitionValues/day`), and what to write instead."""


class _Column:
    """One column: how its texts are read, and how its bounds compare."""

    __slots__ = ("accepted", "name", "order", "read", "type_name")

    def __init__(self, name: str, field: Field) -> None:
        kind = field.type
        self.name = name
        self.type_name = str(kind)[:_SHOWN]
        self.read: Callable[[str], Any] | None = reader_of(kind) if isinstance(kind, Primitive) else None
        order = column_order(field)
        # Text under a collation and padded text have no order here, so they are not compared.
        self.order = order if order is not None and type(order) is not ColumnOrder else None
        self.accepted: set[str] = set()

    def fault(self, text: str) -> str | None:
        """Why a text is no value of the column."""
        if self.read is not None:
            try:
                self.read(text)
            except ValueError as error:
                return f"{self.name} is {self.type_name}, and {text[:_SHOWN]!r} is no value of it: {error}"
        return None

    def partition_fault(self, text: str) -> str | None:
        """The same for a partition value, which is remembered: many files share few of them."""
        if text in self.accepted:
            return None
        if (text in _NO_VALUE and self.read is not None) or self.type_name == "void":
            return f"write null where {self.name} has no value"
        fault = self.fault(text)
        if fault is None:
            if len(self.accepted) >= _KEPT_TEXTS:
                self.accepted.clear()
            self.accepted.add(text)
        return fault

    def disorder(self, low: str, high: str, truncation: int) -> str | None:
        """Why two readable texts cannot be the bounds of one file; NaN bounds nothing."""
        if self.order is None or (self.order.hides_nan and "nan" in (low.lower(), high.lower())):
            return None
        if self.order.bounds(low, high, truncation) is None:
            return f"the maximum of {self.name} is below its minimum {low[:_SHOWN]!r}: {high[:_SHOWN]!r}"
        return None


class FileValues:
    """The rules of one schema. Safe to share between threads: what it remembers only saves work."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._columns: dict[str, _Column] = {}
        self._fields = schema.by_name()

    def fit(self, add: Add, truncation: int) -> bool:
        """Whether nothing is wrong with the values of a file: what `faults` finds, at a third of its cost."""
        columns = self._columns
        for name, text in add.partition_values.items():
            column = columns.get(name)
            if column is None or (text is not None and text not in column.accepted):
                return not self._fields or next(self.faults(add, truncation), None) is None
        least, greatest = add.min_values or _NONE, add.max_values or _NONE
        try:
            for name, low in least.items():
                column, high = columns.get(name), greatest.get(name)
                if column is None:
                    return not self._fields or next(self.faults(add, truncation), None) is None
                if (read := column.read) is None:
                    right = high is None or low <= high
                else:
                    right = read(low) <= read(high) if high is not None else read(low) is not None
                # Bounds that are not in the order of their values may still be in that of planning.
                if not right and (high is None or column.disorder(low, high, truncation) is not None):
                    return False
            if least.keys() != greatest.keys():
                return next(self.faults(add, truncation), None) is None
        except ValueError:
            return False
        return True

    def faults(self, add: Add, truncation: int) -> Iterator[Fault]:
        """What is wrong with the values of a file. A schema that cannot be read judges nothing."""
        if not self._fields:
            return
        yield from self.partition_faults(add.partition_values)
        least, greatest = add.min_values, add.max_values
        wrong = 0
        for member, bounds in (("minValues", least), ("maxValues", greatest)):
            for name, text in (bounds or {}).items():
                column = self._columns.get(name) or self._column(name)
                fault = _unknown(name) if column is None else column.fault(text)
                if fault is not None:
                    wrong += 1
                    yield f"/{member}/{_escaped(name)}", fault
        if not (least and greatest) or wrong:
            return
        for name, low in least.items():
            high = greatest.get(name)
            column = None if high is None else self._columns.get(name) or self._column(name)
            if (
                column is not None
                and high is not None
                and (fault := column.disorder(low, high, truncation)) is not None
            ):
                yield f"/maxValues/{_escaped(name)}", fault

    def partition_faults(self, values: Mapping[str, str | None] | None) -> Iterator[Fault]:
        """What is wrong with partition values, apart from which columns there must be."""
        if not values or not self._fields:
            return
        for name, text in values.items():
            column = self._columns.get(name) or self._column(name)
            fault = _unknown(name) if column is None else None if text is None else column.partition_fault(text)
            if fault is not None:
                yield f"/partitionValues/{_escaped(name)}", fault

    def _column(self, name: str) -> _Column | None:
        """A column as filters name it: case does not count, and dots lead into structs."""
        key = name.lower()
        field = self._fields.get(key)
        if field is None:
            first, *rest = key.split(".")
            field = self._fields.get(first)
            for part in rest:
                field = field.type.by_name().get(part) if field and isinstance(field.type, StructType) else None
        if field is None:
            return None
        # Only spellings of columns are kept, of which a schema has few; other names cost their search.
        if len(self._columns) < _KEPT_TEXTS:
            return self._columns.setdefault(name, _Column(name, field))
        return _Column(name, field)


_known: dict[int, FileValues] = {}


def values_of(schema: Schema) -> FileValues:
    """The rules of a schema, remembered for as long as it is in use."""
    found = _known.get(id(schema))
    if found is not None and found.schema is schema:
        return found
    if len(_known) >= _KEPT_SCHEMAS:
        _known.clear()
    made = _known[id(schema)] = FileValues(schema)
    return made


def _unknown(name: str) -> str:
    return f"the table has no column {name[:_SHOWN]!r}: name the columns of its schema"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
