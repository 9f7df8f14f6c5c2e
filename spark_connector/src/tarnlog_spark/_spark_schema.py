"""A table's schema where Spark reads by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Where the metadata of a string column holds that it is a char or varchar to Spark, with its length."""


def is_padded(field: Mapping[str, Any]) -> bool:
    """Whether Spark pads the values of a column, or what it is compared with, by blanks (char). Takes a field of a
    schema's JSON. Bounds are those of the files, where values may be shorter."""
    kinds = (field["type"], field.get("metadata", {}).get(CHAR_VARCHAR))
    return any(isinstance(kind, str) and kind.startswith("char(") for kind in kinds)


def strings_for_chars(schema: StructType) -> StructType:
    """The schema with string in place of char and varchar, on every level: tables of other writers have them, and
    Spark's readers take neither."""
    return StructType([_field(field) for field in schema.fields])


def _field(field: StructField) -> StructField:
    return StructField(field.name, _type(field.dataType), field.nullable, field.metadata)


def _type(kind: DataType) -> DataType:
    match kind:
        case CharType() | VarcharType():
            return StringType()
        case StructType():
            return strings_for_chars(kind)
        case ArrayType():
            return ArrayType(_type(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(_type(kind.keyType), _type(kind.valueType), kind.valueContainsNull)
        case _:
            return kind
