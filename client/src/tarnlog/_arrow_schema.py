"""A table's schema as Arrow types, and partition values as text made into values of them. Needs pyarrow."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from tarnlog._errors import InvalidRequest
from tarnlog.arrow_types import PLAIN_TYPES
from tarnlog.protocol import values
from tarnlog.protocol.schema import ArrayType, DataType, Field, MapType, Primitive, StructType, UserType

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_WIDE = Context(prec=100)
"""Python's own precision is less than a decimal column's."""
_READABLE = {**PLAIN_TYPES, "void": pa.null()}


def arrow_field(field: Field) -> pa.Field:
    """A column as Arrow. InvalidRequest names one whose type Arrow has no place for."""
    try:
        return pa.field(field.name, _type(field.type))
    except _NoPlace as error:
        detail = f"The column {field.name} is {error}, which cannot be read as Arrow: leave it out with columns=[...]."
        raise InvalidRequest(detail) from None


class _NoPlace(Exception):
    pass


def _type(kind: DataType) -> pa.DataType:
    match kind:
        case Primitive(kind="decimal", args=(precision, scale)):
            return pa.decimal128(precision, scale)
        case Primitive(kind=name) if name in _READABLE:
            return _READABLE[name]
        case StructType(fields):
            return pa.struct([pa.field(field.name, _type(field.type)) for field in fields])
        case ArrayType(element):
            return pa.list_(_type(element))
        case MapType(key, value):
            return pa.map_(_type(key), _type(value))
        case UserType(sql_type):
            return _type(sql_type)
        case _:
            raise _NoPlace(str(kind))


def partition_scalar(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A partition value as the log writes it. ValueError when the column's type cannot read it.

    Every text that the service accepts for a column can be read; older logs may hold texts that cannot.
    """
    if text is None or text == NULL_PARTITION or (text == "" and not pa.types.is_string(kind)):
        return pa.scalar(None, kind)
    try:
        return pa.scalar(_value(text, kind), kind)
    except (InvalidOperation, pa.ArrowInvalid, OverflowError) as error:
        raise ValueError(str(error)) from error


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    text = text.strip()
    if pa.types.is_integer(kind):
        return values.whole(text, kind.bit_width)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        # A value of an older log may have more digits than the column.
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    if pa.types.is_boolean(kind):
        return values.boolean(text)
    if pa.types.is_date(kind):
        return values.day(text)
    return values.instant(text) if pa.types.is_timestamp(kind) else text
