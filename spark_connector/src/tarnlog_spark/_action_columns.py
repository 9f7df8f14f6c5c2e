"""A column for each field of a struct, from the struct's own types: what the log gains later shows by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, inspect

_SIMPLE: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.BoolType: "boolean",
}


Renamed = Mapping[tuple[type[Struct], str], str]
"""Other column names for some fields."""


def columns_of(kinds: Iterable[type[Struct]], renamed: Renamed | None = None) -> dict[str, str]:
    """Column names, as the wire spells fields, with Spark's types. Fields of one name share a column."""
    found: dict[str, str] = {}
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            name = (renamed or {}).get((kind, field.name), field.encode_name)
            found.setdefault(name, _spark_type(inspect.type_info(field.type)))
    return found


def values_of(value: Struct, columns: Mapping[str, str], renamed: Renamed | None = None) -> dict[str, Any]:
    """The struct's values by column; what it has no field for is None."""
    row: dict[str, Any] = dict.fromkeys(columns)
    for field in msgspec.structs.fields(type(value)):
        name = (renamed or {}).get((type(value), field.name), field.encode_name)
        if name in row:
            row[name] = _plain(getattr(value, field.name), columns[name])
    return row


def ddl(columns: Mapping[str, str]) -> str:
    """The columns as Spark writes a schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def _spark_type(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        real = [part for part in kind.types if not isinstance(part, inspect.NoneType | inspect.CustomType)]
        return _spark_type(real[0]) if len(real) == 1 else "string"
    if isinstance(kind, inspect.DictType):
        return "map<string,string>"
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.StrType):
        return "array<string>"
    return _SIMPLE.get(type(kind), "string")


def _plain(value: Any, kind: str) -> Any:
    """A value as Spark takes it for the type: nested ones that have no type of their own become JSON."""
    if value is None or value is UNSET:
        return None
    if kind.startswith("map<"):
        return {key: _text(part) for key, part in value.items()}
    if kind.startswith("array<"):
        return list(value)
    return _text(value) if kind == "string" else value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
