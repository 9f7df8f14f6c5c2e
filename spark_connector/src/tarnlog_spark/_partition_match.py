"""Which files lie wholly inside a predicate over partition columns: decided by their partition values alone, exactly.

Values are compared by the column's type, and null makes a comparison unknown, as in SQL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tarnlog._arrow_schema import partition_scalar
from tarnlog._row_filter import compared_columns
from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.predicates import And, Compare, In, IsNotNull, IsNull, Not, Or, Predicate
from tarnlog.protocol.schema import Schema, parse_schema_string
from tarnlog_spark._options import option_error

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

Row = Mapping[str, Any]


def partition_row(file: Add, types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The file's partition values by lower-cased column, as values of their types: equal ones are equal."""
    values = {name.lower(): text for name, text in file.partition_values.items()}
    return {name: _typed(values.get(name), kind) for name, kind in types.items()}


def partition_key(file: Add, types: Mapping[str, pa.DataType]) -> tuple[Any, ...]:
    """The file's partition as something to look up. Typed, because other writers may spell the same value otherwise;
    a text that is no value of its type stands for itself."""
    values = {name.lower(): text for name, text in file.partition_values.items()}
    return tuple(_key_part(values.get(name), kind) for name, kind in types.items())


def partition_types(schema: pa.Schema, partition_columns: tuple[str, ...]) -> dict[str, pa.DataType]:
    """The types of the partition columns by lower-cased name."""
    return {name.lower(): schema.field(name).type for name in partition_columns}


def check_dynamic(meta_data: MetaData) -> None:
    """InvalidRequest where partitions cannot be replaced by their values: two spellings are one value there."""
    fields = parse_schema_string(meta_data.schema_string).by_name()
    for name in meta_data.partition_columns:
        field = fields.get(name.lower())
        if field is not None and field.collation is not None:
            raise option_error(
                f"partitionOverwriteMode=dynamic replaces partitions by their values, and {name} has the collation "
                f"{field.collation}, under which several spellings are one value. Name the rows to replace: "
                "Table.write(df, 'overwrite', replace_where=...)."
            )


def check_columns(predicate: Predicate, types: Mapping[str, pa.DataType], schema: Schema) -> None:
    """InvalidRequest when the predicate asks for more than partition values can tell."""
    for name in _columns(predicate):
        kind = types.get(name.lower())
        if kind is None or pa.types.is_floating(kind):
            known = ", ".join(types) or "none"
            raise option_error(
                f"replaceWhere of the format works on partition columns ({known}), not on {name}: only whole files are "
                "replaced here. Table.write(df, replace_where=...) replaces any rows."
            )
    for name in compared_columns(predicate):
        field = schema.find(name)
        if field is not None and field.collation is not None:
            raise option_error(
                f"replaceWhere of the format compares partition values by their bytes, and {name} has the collation "
                f"{field.collation}. Table.write(df, replace_where=...) compares as Spark does."
            )


def matches(predicate: Predicate, row: Row, types: Mapping[str, pa.DataType]) -> bool | None:
    """Whether rows with these partition values make the predicate true; None is SQL's unknown."""
    match predicate:
        case And(args):
            return _all(matches(arg, row, types) for arg in args)
        case Or(args):
            return _negated(_all(_negated(matches(arg, row, types)) for arg in args))
        case Not(arg):
            return _negated(matches(arg, row, types))
        case IsNull(column):
            return row[column.lower()] is None
        case IsNotNull(column):
            return row[column.lower()] is not None
        case In(column, values):
            found = [matches(Compare("eq", column, value), row, types) for value in values if value is not None]
            return _any(found + [None] * (len(values) - len(found)))
        case Compare(op, column, value):
            name = column.lower()
            if row[name] is None:
                return None
            if op == "starts-with":
                return str(row[name]).startswith(str(value))
            return _COMPARE[op](row[name], _literal(value, types[name]))


def _all(parts: Any) -> bool | None:
    found = list(parts)
    return False if False in found else None if None in found else True


def _any(parts: list[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _literal(value: Any, kind: pa.DataType) -> Any:
    """A literal as a value of the column's type where it is one, else as it is: 1.5 against an integer column."""
    if isinstance(value, str) or pa.types.is_decimal(kind):
        return _typed(str(value), kind)
    return value


def _key_part(text: str | None, kind: pa.DataType) -> Any:
    try:
        value = _typed(text, kind)
    except pa.ArrowInvalid:
        return text
    return "NaN" if value != value else value  # NaN would not be found again


@lru_cache(maxsize=10_000)  # many files share few values
def _typed(text: str | None, kind: pa.DataType) -> Any:
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_decimal(kind):
        return pa.scalar(text, pa.string()).cast(kind).as_py()  # never rounded
    try:
        return partition_scalar(text, kind).as_py()
    except (ValueError, OverflowError) as error:
        raise pa.ArrowInvalid(f"{text!r} is no value of {kind}: {error}") from None


def _columns(predicate: Predicate) -> set[str]:
    match predicate:
        case And(args) | Or(args):
            return {name for arg in args for name in _columns(arg)}
        case Not(arg):
            return _columns(arg)
        case Compare(column=column) | In(column=column) | IsNull(column) | IsNotNull(column):
            return {column}
