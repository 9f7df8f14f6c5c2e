"""Whether a DataFrame fits a table, and how: columns by name, numbers widened, what is absent null.

Mismatches name every offending column at once. Evolution only adds: new columns, members of structs, wider numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from tarnlog_spark._errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_REALS: tuple[type[DataType], ...] = (FloatType, DoubleType)
_ADVICE = "Cast or rename the columns"


def fitted(rows: DataFrame, schema: StructType, *, table: str) -> DataFrame:
    """The rows as the table has them. SchemaMismatch names the columns that do not fit."""
    if _is_same(rows.schema, schema):
        return rows  # as most appends are: a selection would only cost Spark's analysis
    faults: dict[str, str] = {}
    given = _by_lower_name(rows.schema, faults)
    wanted = {field.name.lower() for field in schema.fields}
    for name, field in given.items():
        if name not in wanted:
            faults[field.name] = "the table has no such column"
    columns = []
    for field in schema.fields:
        found = given.get(field.name.lower())
        if found is None:
            if not field.nullable:
                faults[field.name] = "it is missing, and the table allows no null there"
            columns.append(F.lit(None).cast(field.dataType).alias(field.name))
            continue
        fault = _fault(found.dataType, field.dataType, "")
        if fault is not None:
            faults[field.name] = fault
        columns.append(_aligned(F.col(_quoted(found.name)), found.dataType, field.dataType).alias(field.name))
    if faults:
        raise SchemaMismatch(
            faults, table=table, advice=f"{_ADVICE}, or let the table take new ones with merge_schema=True."
        )
    return rows.select(*columns)


def evolved(schema: StructType, given: StructType, *, table: str) -> StructType:
    """The table's schema with what the DataFrame has more: new columns at the end, wider numbers."""
    faults: dict[str, str] = {}
    merged = _merged_struct(schema, given, "", faults)
    if faults:
        raise SchemaMismatch(faults, table=table, advice=f"{_ADVICE}: a table's columns only grow.")
    return merged


def nullable(schema: StructType) -> StructType:
    """The schema of a table that is made from a DataFrame: what happens to hold no null today may tomorrow."""
    return StructType([StructField(f.name, _nullable_type(f.dataType), True, f.metadata) for f in schema.fields])


def _is_same(given: StructType, wanted: StructType) -> bool:
    """Whether names, order and types are the table's. What may be null is looked at when it is written."""
    return _shape(given) == _shape(wanted)


def _shape(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema.fields]


def _by_lower_name(schema: StructType, faults: dict[str, str]) -> dict[str, StructField]:
    found: dict[str, StructField] = {}
    for field in schema.fields:
        if field.name.lower() in found:
            faults[field.name] = "it is there twice (case does not count)"
        found[field.name.lower()] = field
    return found


def _fault(given: DataType, wanted: DataType, path: str) -> str | None:
    """Why values of one type cannot be stored as another without loss; None when they can."""
    if isinstance(given, NullType) or _widens(given, wanted):
        return None
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return _struct_fault(given, wanted, path)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _fault(given.elementType, wanted.elementType, f"{path}element.")
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _fault(given.keyType, wanted.keyType, f"{path}key.") or _fault(
            given.valueType, wanted.valueType, f"{path}value."
        )
    if _plain(given) == _plain(wanted):
        return None
    where = f" at {path[:-1]}" if path else ""
    return f"the DataFrame has {given.simpleString()}{where}, the table {wanted.simpleString()}"


def _struct_fault(given: StructType, wanted: StructType, path: str) -> str | None:
    members = {field.name.lower(): field for field in given.fields}
    names = {field.name.lower() for field in wanted.fields}
    for field in given.fields:
        if field.name.lower() not in names:
            return f"the table has no member {path}{field.name}"
    for field in wanted.fields:
        found = members.get(field.name.lower())
        if found is None:
            if not field.nullable:
                return f"the member {path}{field.name} is missing, and the table allows no null there"
            continue
        if found.nullable and not field.nullable:
            return f"the member {path}{field.name} may be null, and the table allows no null there"
        fault = _fault(found.dataType, field.dataType, f"{path}{field.name}.")
        if fault is not None:
            return fault
    return None


def _widens(given: DataType, wanted: DataType) -> bool:
    if isinstance(given, StringType) and isinstance(wanted, StringType):
        return True  # collations differ, the text does not
    for family in (_INTEGERS, _REALS):
        if type(given) in family and type(wanted) in family:
            return family.index(type(given)) <= family.index(type(wanted))
    return False


def _aligned(column: Column, given: DataType, wanted: DataType) -> Column:
    """The column as the wanted type: members of structs by name, everything else by a cast that loses nothing."""
    if given == wanted:
        return column
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        members = {field.name.lower(): field for field in given.fields}
        parts = []
        for field in wanted.fields:
            found = members.get(field.name.lower())
            if found is None:
                part = F.lit(None).cast(field.dataType)
            else:
                part = _aligned(column.getField(found.name), found.dataType, field.dataType)
            parts.append(part.alias(field.name))
        return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*parts))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        element, other = given.elementType, wanted.elementType
        return column if element == other else F.transform(column, lambda item: _aligned(item, element, other))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        value, needed = given.valueType, wanted.valueType
        if given.keyType != wanted.keyType:
            return column.cast(wanted)
        return column if value == needed else F.transform_values(column, lambda _, item: _aligned(item, value, needed))
    return column if _plain(given) == _plain(wanted) else column.cast(wanted)


def _merged_struct(old: StructType, new: StructType, path: str, faults: dict[str, str]) -> StructType:
    added = _by_lower_name(new, faults)
    fields = []
    for field in old.fields:
        other = added.pop(field.name.lower(), None)
        kind = field.dataType if other is None else _merged(field.dataType, other.dataType, path + field.name, faults)
        fields.append(StructField(field.name, kind, field.nullable, field.metadata))
    for field in added.values():
        if isinstance(field.dataType, NullType):
            faults[path + field.name] = "it is null alone, so its type is not known: cast it"
        fields.append(StructField(field.name, _nullable_type(field.dataType), True, field.metadata))
    return StructType(fields)


def _merged(old: DataType, new: DataType, path: str, faults: dict[str, str]) -> DataType:
    if isinstance(new, NullType) or _widens(new, old) or _plain(old) == _plain(new):
        return old
    if _widens(old, new):
        return new
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _merged_struct(old, new, f"{path}.", faults)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_merged(old.elementType, new.elementType, f"{path}.element", faults), old.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType) and _plain(old.keyType) == _plain(new.keyType):
        value = _merged(old.valueType, new.valueType, f"{path}.value", faults)
        return MapType(old.keyType, value, old.valueContainsNull)
    faults[path] = f"the DataFrame has {new.simpleString()}, the table {old.simpleString()}"
    return old


def _nullable_type(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable_type(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable_type(kind.keyType), _nullable_type(kind.valueType), True)
    return kind


def _plain(kind: DataType) -> DataType:
    """The type without nullability and comments, for comparing."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name.lower(), _plain(f.dataType), True) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType), True)
    return kind


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
