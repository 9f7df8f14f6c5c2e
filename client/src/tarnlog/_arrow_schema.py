"""A table's schema as Arrow types, and partition values as text made into values of them. Needs pyarrow."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from tarnlog._errors import InvalidRequest
from tarnlog.arrow_types import PLAIN_TYPES
from tarnlog.protocol.schema import ArrayType, DataType, Field, MapType, Primitive, StructType, UserType

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_MAX_EPOCH_DAYS = 3_000_000
_DAY_MICROS = 86_400_000_000
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
    """A partition value as the log writes it. ValueError when the column's type cannot read it."""
    if text is None or text == NULL_PARTITION or (text == "" and not pa.types.is_string(kind)):
        return pa.scalar(None, kind)
    try:
        return pa.scalar(_value(text, kind), kind)
    except (InvalidOperation, pa.ArrowInvalid, OverflowError) as error:
        raise ValueError(str(error)) from error


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_date(kind):
        return _date(text)
    if pa.types.is_timestamp(kind):
        moment = _moment(text)
        return moment if kind.tz is not None else moment.replace(tzinfo=None)
    return text.encode() if pa.types.is_binary(kind) else text


def _date(text: str) -> date:
    """ISO, epoch days, or the epoch microseconds of a midnight; their magnitudes tell them apart."""
    if not _INTEGER.fullmatch(text):
        return date.fromisoformat(text)
    number = int(text)
    return (_EPOCH + timedelta(days=number if abs(number) <= _MAX_EPOCH_DAYS else number // _DAY_MICROS)).date()


def _moment(text: str) -> datetime:
    """ISO 8601, UTC without a zone, or epoch microseconds."""
    if _INTEGER.fullmatch(text):
        return _EPOCH + timedelta(microseconds=int(text))
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
