"""Whether values fit a table, and how: columns and members by name, what is absent null, other types by rules.

`fitted` aligns the rows of a write, whose numbers only widen; `Assignment` aligns single values of an update or merge
by the rules of Spark's store assignment (`_store_assignment`). Mismatches name every offending column at once.
Evolution only adds: new columns, members of structs, wider numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
)

from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._spark_schema import plain_metadata, quoted
from tarnlog_spark._store_assignment import STRICT, assigns, converted, widens

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ADVICE = "Cast or rename the columns"


class _Rules(Struct, frozen=True):
    """Which values without members may be stored as which type, and by which conversion. The rest is the same for all:
    structs go by name."""

    given: str
    """How a refusal begins, with {} for the value's type."""
    allows: Callable[[DataType, DataType], bool]
    convert: Callable[[Column, DataType, DataType, tuple[str, ...]], Column]
    """From the column, its type, the wanted type and the path for messages."""


def _cast(column: Column, given: DataType, wanted: DataType, path: tuple[str, ...]) -> Column:
    return column.cast(wanted)


_WRITE = _Rules("the DataFrame has {}", widens, _cast)
_STRICT = _Rules("the value is {}", widens, _cast)
_ANSI = _Rules("the value is {}", assigns, converted)


class Assignment:
    """Values for single columns of a table, under a policy of Spark's store assignment. Collects faults."""

    def __init__(self, table: str, policy: str) -> None:
        self._table = table
        self._rules = _STRICT if policy.upper() == STRICT else _ANSI
        self._faults: dict[str, str] = {}

    def value(self, column: Column, given: DataType, field: StructField, *, is_random: bool = False) -> Column:
        """The value as the column's type. A number that does not fit is an error when it is computed.

        A conversion names the value several times. One that is random is bound first, so that it is computed once.
        """
        fault = _fault(given, field.dataType, "", self._rules)
        if fault is not None:
            self._faults[field.name] = fault
            return F.lit(None).cast(field.dataType)
        if not is_random:
            return self._as_type(column, given, field)
        return F.transform(F.array(column), lambda bound: self._as_type(bound, given, field))[0]

    def _as_type(self, column: Column, given: DataType, field: StructField) -> Column:
        return _aligned(column, given, field.dataType, (field.name,), self._rules)

    def absent(self, field: StructField) -> Column:
        """Null, for a column of a new row that nothing is assigned to."""
        if not field.nullable:
            self._faults[field.name] = "it is not set, and the table allows no null there"
        return F.lit(None).cast(field.dataType)

    def check(self) -> None:
        """SchemaMismatch that names all columns whose values cannot be stored."""
        if self._faults:
            advice = "Set each to a value of the column's type, with an explicit CAST where that is meant."
            raise SchemaMismatch(self._faults, table=self._table, advice=advice)


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
        fault = _fault(found.dataType, field.dataType, "", _WRITE)
        if fault is not None:
            faults[field.name] = fault
        column = _aligned(F.col(quoted(found.name)), found.dataType, field.dataType, (field.name,), _WRITE)
        columns.append(column.alias(field.name))
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
    return StructType([StructField(f.name, _nullable_type(f.dataType), True, plain_metadata(f)) for f in schema.fields])


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


def _fault(given: DataType, wanted: DataType, path: str, rules: _Rules) -> str | None:
    """Why values of one type cannot be stored as another by these rules; None when they can."""
    if isinstance(given, NullType):
        return None
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return _struct_fault(given, wanted, path, rules)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _fault(given.elementType, wanted.elementType, f"{path}element.", rules)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _fault(given.keyType, wanted.keyType, f"{path}key.", rules) or _fault(
            given.valueType, wanted.valueType, f"{path}value.", rules
        )
    if _plain(given) == _plain(wanted) or rules.allows(given, wanted):
        return None
    where = f" at {path[:-1]}" if path else ""
    return f"{rules.given.format(given.simpleString())}{where}, the table {wanted.simpleString()}"


def _struct_fault(given: StructType, wanted: StructType, path: str, rules: _Rules) -> str | None:
    members: dict[str, StructField] = {}
    names = {field.name.lower() for field in wanted.fields}
    for field in given.fields:
        if field.name.lower() not in names:
            return f"the table has no member {path}{field.name}"
        if field.name.lower() in members:
            return f"the member {path}{field.name} is there twice (case does not count)"
        members[field.name.lower()] = field
    for field in wanted.fields:
        found = members.get(field.name.lower())
        if found is None:
            if not field.nullable:
                return f"the member {path}{field.name} is missing, and the table allows no null there"
            continue
        if found.nullable and not field.nullable:
            return f"the member {path}{field.name} may be null, and the table allows no null there"
        fault = _fault(found.dataType, field.dataType, f"{path}{field.name}.", rules)
        if fault is not None:
            return fault
    return None


def _aligned(column: Column, given: DataType, wanted: DataType, path: tuple[str, ...], rules: _Rules) -> Column:
    """The column as the wanted type: members of structs by name, everything else by the rules' conversion."""
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
                inside = (*path, field.name)
                part = _aligned(column.getField(found.name), found.dataType, field.dataType, inside, rules)
            parts.append(part.alias(field.name))
        return F.when(column.isNull(), F.lit(None)).otherwise(F.struct(*parts))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        element, other = given.elementType, wanted.elementType
        if element == other:
            return column
        return F.transform(column, lambda item: _aligned(item, element, other, (*path, "element"), rules))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _aligned_map(column, given, wanted, path, rules)
    if _plain(given) == _plain(wanted):
        return column
    return column.cast(wanted) if isinstance(given, NullType) else rules.convert(column, given, wanted, path)


def _aligned_map(column: Column, given: MapType, wanted: MapType, path: tuple[str, ...], rules: _Rules) -> Column:
    key, other_key, value, other = given.keyType, wanted.keyType, given.valueType, wanted.valueType
    if value != other:
        column = F.transform_values(column, lambda _, item: _aligned(item, value, other, (*path, "value"), rules))
    if key != other_key:
        column = F.transform_keys(column, lambda item, _: _aligned(item, key, other_key, (*path, "key"), rules))
    return column


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
        fields.append(StructField(field.name, _nullable_type(field.dataType), True, plain_metadata(field)))
    return StructType(fields)


def _merged(old: DataType, new: DataType, path: str, faults: dict[str, str]) -> DataType:
    if isinstance(new, NullType) or widens(new, old) or _plain(old) == _plain(new):
        return old
    if widens(old, new):
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
