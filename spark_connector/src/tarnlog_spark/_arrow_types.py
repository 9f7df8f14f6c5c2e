"""A table's schema as Arrow: what tasks write, without a Spark session and whichever Spark it is.

Types that Parquet files written here cannot carry back to Spark are refused, each column by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tarnlog import InvalidRequest
from tarnlog.arrow_types import PLAIN_TYPES
from tarnlog.protocol.schema import (
    ArrayType,
    DataType,
    Field,
    MapType,
    Primitive,
    Schema,
    SchemaError,
    StructType,
    parse_schema,
)
from tarnlog_spark._errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkSchema


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


_INSTEAD = {
    "char": "use string: lengths and padding are not kept",
    "varchar": "use string: lengths are not checked",
    "variant": "use string with JSON text (to_json), or a struct",
    "time": "use string, or a number of microseconds",
    "interval": "use a number of days, months or microseconds",
    "void": "give it a type, such as cast(null as string)",
    "geometry": "use binary with WKB",
    "geography": "use binary with WKB",
}


def check_storable(schema: SparkSchema, table: str) -> None:
    """InvalidRequest for a new table with columns that no write can fill, each by its name and type. The service takes
    such types, for tables of other writers have them."""
    try:
        fields = parse_schema(schema.jsonValue()).fields
    except SchemaError:
        return  # the service refuses it too, and points to the field
    faults = {}
    for field in fields:
        refused = next((part for part in _parts(field.type) if part.kind in _INSTEAD), None)
        if refused is not None:
            faults[field.name] = f"{refused} ({_INSTEAD[refused.kind]})"
            continue
        try:
            _field(field)
        except _NotWritable as error:
            faults[field.name] = str(error)
    if faults:
        listed = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise InvalidRequest(
            f"{table} cannot be created: no write can fill these columns: {listed}.",
            slug="schema-invalid",
            fields={"columns": faults},
        )


def _parts(data_type: DataType) -> Iterator[Primitive]:
    """The types without parts of which a type is made."""
    match data_type:
        case Primitive():
            yield data_type
        case StructType(fields):
            for field in fields:
                yield from _parts(field.type)
        case ArrayType(element):
            yield from _parts(element)
        case MapType(key, value):
            yield from _parts(key)
            yield from _parts(value)


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
