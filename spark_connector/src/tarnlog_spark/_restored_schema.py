"""The schema that a table has after a restore. Pure: schemas in, a schema or a refusal out.

Files are not written again, so what counts is whether those that come back can be read: columns are found by name, an
absent one is null, and numbers widen. Columns that only came since then stay, because nothing is lost by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._fitting import evolved

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}


def restored_schema(then: StructType, now: StructType, *, replaces_all: bool, table: str, advice: str) -> StructType:
    """The schema to restore to: the present one where it reads everything, else the old one.

    The service takes any schema only from a commit that removes every file (`replaces_all`). From others it takes the
    present one with more columns and wider numbers; SchemaMismatch names what even that would not read.
    """
    if reads(now, then):
        return now
    if replaces_all:
        return then
    try:
        both = evolved(now, then, table=table)
    except SchemaMismatch:
        both = now
    faults = dict(_faults(both, then, ""))
    if faults:
        raise SchemaMismatch(faults, table=table, advice=advice)
    return both


def reads(schema: StructType, files: StructType) -> bool:
    """Whether files of one schema can be read with another, each value as it is."""
    return not any(True for _ in _faults(schema, files, ""))


def _faults(wide: DataType, narrow: DataType, path: str) -> Iterator[tuple[str, str]]:
    """What of the narrow type is lost or not allowed when it is read as the wide one, by its name."""
    if isinstance(wide, StructType) and isinstance(narrow, StructType):
        yield from _struct_faults(wide, narrow, path)
    elif isinstance(wide, ArrayType) and isinstance(narrow, ArrayType):
        yield from _null_fault(f"{path}.element", narrow.containsNull, wide.containsNull)
        yield from _faults(wide.elementType, narrow.elementType, f"{path}.element")
    elif isinstance(wide, MapType) and isinstance(narrow, MapType):
        yield from _null_fault(f"{path}.value", narrow.valueContainsNull, wide.valueContainsNull)
        if wide.keyType != narrow.keyType:
            yield f"{path}.key", _other(narrow.keyType, wide.keyType)
        yield from _faults(wide.valueType, narrow.valueType, f"{path}.value")
    elif wide != narrow and wide.typeName() not in _WIDER.get(narrow.typeName(), ()):
        yield path, _other(narrow, wide)


def _struct_faults(wide: StructType, narrow: StructType, path: str) -> Iterator[tuple[str, str]]:
    before = f"{path}." if path else ""
    known = {field.name: field for field in wide.fields}
    for field in narrow.fields:
        found = known.pop(field.name, None)
        if found is None:
            yield before + field.name, "the table has no such column now"
        else:
            yield from _null_fault(before + field.name, field.nullable, found.nullable)
            yield from _faults(found.dataType, field.dataType, before + field.name)
    for field in known.values():
        yield from _null_fault(before + field.name, True, field.nullable)


def _null_fault(path: str, was: bool, may: bool) -> Iterator[tuple[str, str]]:
    if was and not may:
        yield path, "it may be null in the files of then, and the table allows none now"


def _other(then: DataType, now: DataType) -> str:
    return f"it was {then.simpleString()} then and is {now.simpleString()} now"
