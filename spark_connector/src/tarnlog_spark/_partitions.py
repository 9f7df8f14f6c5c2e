"""Partitions as predicates: what a commit that replaces some of them has read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tarnlog import Reads
from tarnlog.protocol.predicates import And, Compare, IsNull, Or, Predicate, Scalar, to_builtins
from tarnlog.protocol.schema import Primitive, Schema

Partition = tuple[tuple[str, str | None], ...]
MAX_PARTITIONS = 500
"""Above so many, a commit says that it read the whole table: the predicate would cost more than it spares."""


def partition_of(values: Mapping[str, str | None]) -> Partition:
    """The values of a file's partition, as something to compare and to look up."""
    return tuple(sorted(values.items()))


def reads_of(partitions: Iterable[Partition], schema: Schema) -> Reads:
    """The reads of a commit that replaces these partitions."""
    chosen = list(partitions)
    if not chosen or len(chosen) > MAX_PARTITIONS or any(not partition for partition in chosen):
        return Reads(whole_table=True)
    trees = [And(tuple(_equals(schema, name, value) for name, value in partition)) for partition in chosen]
    return Reads(filters=(to_builtins(trees[0] if len(trees) == 1 else Or(tuple(trees))),))


def _equals(schema: Schema, name: str, value: str | None) -> Predicate:
    return IsNull(name) if value is None else Compare("eq", name, _scalar(schema, name, value))


def _scalar(schema: Schema, name: str, text: str) -> Scalar:
    """A partition value as a filter of that column takes it."""
    kind = schema.by_name()[name.lower()].type
    word = kind.kind if isinstance(kind, Primitive) else ""
    if word in ("byte", "short", "integer", "long"):
        return int(text)
    if word in ("float", "double") and text not in ("NaN", "Infinity", "-Infinity"):
        return float(text)
    return text == "true" if word == "boolean" else text
