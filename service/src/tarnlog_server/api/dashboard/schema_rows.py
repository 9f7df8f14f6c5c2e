"""A schema as the rows of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from tarnlog.protocol.schema import ArrayType, DataType, Field, MapType, SchemaError, StructType, parse_schema

MOST_ROWS = 2000


class SchemaRow(Struct, frozen=True):
    """One column, or a part of one. `depth` is how far inside it lies."""

    depth: int
    name: str
    type: str
    nullable: bool
    comment: str
    partition: int | None
    """Its place among the partition columns, from 1."""


def schema_rows(schema: dict[str, Any], partition_columns: tuple[str, ...]) -> list[SchemaRow]:
    """The rows of a schema, at most some thousands; none where another writer's schema cannot be read."""
    try:
        parsed = parse_schema(schema)
    except SchemaError:
        return []
    return list(islice(_fields(parsed, 0, partition_columns), MOST_ROWS))


def _fields(struct: StructType, depth: int, partitions: tuple[str, ...]) -> Iterator[SchemaRow]:
    for field in struct.fields:
        place = partitions.index(field.name) + 1 if field.name in partitions else None
        yield SchemaRow(depth, field.name, _shown(field.type), field.nullable, _comment(field), place)
        yield from _inside(field.type, depth + 1)


def _inside(kind: DataType, depth: int) -> Iterator[SchemaRow]:
    if isinstance(kind, StructType):
        yield from _fields(kind, depth, ())
    elif isinstance(kind, ArrayType):
        yield from _part("element", kind.element, kind.contains_null, depth)
    elif isinstance(kind, MapType):
        yield from _part("key", kind.key, False, depth)
        yield from _part("value", kind.value, kind.value_contains_null, depth)


def _part(name: str, kind: DataType, nullable: bool, depth: int) -> Iterator[SchemaRow]:
    """An element is told by its container's type, unless there is more inside."""
    inside = list(_inside(kind, depth + 1))
    if inside:
        yield SchemaRow(depth, name, _shown(kind), nullable, "", None)
        yield from inside


def _shown(kind: DataType) -> str:
    """A type without what its rows tell anyway."""
    if isinstance(kind, StructType):
        return "struct"
    if isinstance(kind, ArrayType):
        return f"array<{_shown(kind.element)}>"
    if isinstance(kind, MapType):
        return f"map<{_shown(kind.key)}, {_shown(kind.value)}>"
    return str(kind)


def _comment(field: Field) -> str:
    comment = field.metadata.get("comment", "")
    return comment if isinstance(comment, str) else ""
