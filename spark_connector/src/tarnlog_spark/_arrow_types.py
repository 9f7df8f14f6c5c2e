"""A table's schema as Arrow: what tasks write, without a Spark session and whichever Spark it is.

Types that Parquet files written here cannot carry back to Spark are refused, each column by its name.
"""

from __future__ import annotations

import pyarrow as pa

from tarnlog.arrow_types import PLAIN_TYPES
from tarnlog.protocol.schema import ArrayType, DataType, Field, MapType, Primitive, Schema, StructType
from tarnlog_spark._errors import SchemaMismatch


class _NotWritable(Exception):
    """A type without a place in a data file; its text names it."""


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of the data files of a table. SchemaMismatch names the columns that they cannot hold."""
    fields, faults = [], {}
    for field in schema.fields:
        try:
            fields.append(_field(field))
        except _NotWritable as error:
            faults[field.name] = f"{error} cannot be written to a data file"
    if faults:
        raise SchemaMismatch(faults, advice="Cast the columns, or leave them out.")
    return pa.schema(fields)


def _field(field: Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), field.nullable)


def _type(data_type: DataType) -> pa.DataType:
    match data_type:
        case Primitive(kind="decimal", args=(precision, scale)):
            return pa.decimal128(precision, scale)
        case Primitive(kind=kind) if kind in PLAIN_TYPES:
            return PLAIN_TYPES[kind]
        case StructType(fields) if fields:
            return pa.struct([_field(field) for field in fields])
        case ArrayType(element, contains_null):
            return pa.list_(pa.field("element", _type(element), contains_null))
        case MapType(key, value, value_contains_null):
            return pa.map_(_type(key), pa.field("value", _type(value), value_contains_null))
        case _:
            raise _NotWritable(str(data_type))
