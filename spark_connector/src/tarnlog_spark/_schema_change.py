"""The schema that a table has after a write, for whoever writes: it grows or is replaced only when asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._fitting import evolved, nullable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from tarnlog.protocol.actions import MetaData


def schema_after(
    meta: MetaData, given: StructType, *, table: str, merge: bool, overwrite: bool, advice: str
) -> str | None:
    """The schema that the commit sets; None when it stays. SchemaMismatch names columns that do not fit."""
    from pyspark.sql.types import StructType

    old = StructType.fromJson(json.loads(meta.schema_string))
    if overwrite:
        new = nullable(given)
        missing = [name for name in meta.partition_columns if name.lower() not in map(str.lower, new.names)]
        if missing:
            raise SchemaMismatch(dict.fromkeys(missing, "the table is partitioned by it"), table=table)
        return None if new == old else new.json()
    new = evolved(old, given, table=table)
    names = {name.lower() for name in given.names}
    absent = [field.name for field in old.fields if not field.nullable and field.name.lower() not in names]
    if absent:
        told = dict.fromkeys(absent, "it is missing, and the table allows no null there")
        raise SchemaMismatch(told, table=table)
    if new == old:
        return None
    if not merge:
        raise SchemaMismatch(_news(old, new), table=table, advice=advice)
    return new.json()


def spelled(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Column names as the table spells them: case does not count. A name that it does not know stays as it is."""
    columns = list(known)
    by_lower = {name.lower(): name for name in columns}
    return tuple(name if name in columns else by_lower.get(name.lower(), name) for name in names)


def _news(old: StructType, new: StructType) -> dict[str, str]:
    """What the rows have that the table has not, by column."""
    known = {field.name: field.dataType for field in old.fields}
    return {
        field.name: "the table has no such column"
        if field.name not in known
        else f"the DataFrame has {field.dataType.simpleString()}, the table {known[field.name].simpleString()}"
        for field in new.fields
        if known.get(field.name) != field.dataType
    }
