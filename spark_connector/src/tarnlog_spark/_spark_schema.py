"""A table's schema and column names where Spark takes them."""

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


def plain_metadata(field: StructField) -> dict[str, Any]:
    """The metadata of a column that a DataFrame brings, without that of a char or varchar: its values are strings, and
    where Spark pads what it reads, other readers do not."""
    return {key: value for key, value in field.metadata.items() if key != CHAR_VARCHAR}


def quoted(name: str) -> str:
    """A column's name as SQL and Spark's functions take it."""
    return "`" + name.replace("`", "``") + "`"


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
