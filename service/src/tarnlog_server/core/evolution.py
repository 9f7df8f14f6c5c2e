"""Which changes of a schema leave every data file readable, and which columns a change touches.

Files are never rewritten by a change of schema, and columns are found in them by name: a column may be added if it may
be null, widened where no value changes, and allowed to be null. Everything else is refused, each change by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tarnlog.protocol.schema import ArrayType, DataType, Field, MapType, Primitive, Schema, StructType

_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}
_SHOWN = 20


class SchemaChangeNotAllowed(ValueError):
    """The new schema would break files or readers; `changes` names each offending change."""

    def __init__(self, changes: tuple[str, ...]) -> None:
        shown = "; ".join(changes[:_SHOWN]) + (f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")
        super().__init__(
            f"{shown}. Allowed are: adding columns that may be null, widening byte, short and integer up to long and "
            "float to double, and letting a column be null. A commit that removes every file may set any schema that "
            "keeps the partition columns"
        )
        self.changes = changes


def check_evolution(old: Schema, new: Schema, partition_columns: Collection[str]) -> None:
    """SchemaChangeNotAllowed unless every change from old to new is allowed."""
    partitions = frozenset(name.lower() for name in partition_columns)
    changes = tuple(_struct_changes(old, new, "", partitions))
    if changes:
        raise SchemaChangeNotAllowed(changes)


def check_replacement(old: Schema, new: Schema, partition_columns: Collection[str]) -> None:
    """SchemaChangeNotAllowed unless a schema may follow when no file of the old one stays live.

    Only the partition columns must be as they are: the table goes on being laid out by them.
    """
    before, after = old.by_name(), new.by_name()
    changes = tuple(
        f"{name}: the table is partitioned by it, so it stays as it is"
        for name in partition_columns
        if (field := after.get(name.lower())) is None
        or field.type != before[name.lower()].type
        or field.collations != before[name.lower()].collations
    )
    if changes:
        raise SchemaChangeNotAllowed(changes)


def columns_changed(old: Schema, new: Schema) -> frozenset[str]:
    """The columns whose type or presence differs, in the spelling of the schema that has them."""
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in new.fields}
    kept = before.keys() & after.keys()
    return frozenset(before.keys() ^ after.keys()) | {
        name for name in kept if not _same_field(before[name], after[name])
    }


def _struct_changes(
    old: StructType, new: StructType, path: str, partitions: frozenset[str] = frozenset()
) -> Iterator[str]:
    before, after = old.by_name(), new.by_name()
    dropped = [field for field in old.fields if field.name.lower() not in after]
    added = [field for field in new.fields if field.name.lower() not in before]
    for count, field in enumerate(dropped):
        # Beyond what a message shows, the search for a twin would only cost time.
        twin = _renamed_to(field, old, new, added) if count < _SHOWN else None
        hint = f" (this looks like a rename to {path}{twin.name}: columns are found by name)" if twin else ""
        yield f"{path}{field.name}: a column cannot be dropped{hint}"
    for field in added:
        if not field.nullable:
            yield f"{path}{field.name}: a new column must be nullable, because existing files do not have it"
    kept = [name for name in before if name in after]
    order = [name for name in after if name in before]
    moved = [before[name].name for name, other in zip(kept, order, strict=True) if name != other]
    if moved:
        yield f"{path[:-1] or 'columns'}: existing columns cannot be reordered ({', '.join(moved[:10])})"
    for name in kept:
        yield from _field_changes(before[name], after[name], path, name in partitions)


def _field_changes(old: Field, new: Field, path: str, is_partition: bool) -> Iterator[str]:
    name = f"{path}{old.name}"
    if old.name != new.name:
        yield f"{name}: a column cannot be renamed (to {new.name})"
    if old.nullable and not new.nullable:
        yield f"{name}: a nullable column cannot become required"
    if old.collations != new.collations:
        yield f"{name}: the collation cannot change"
    if is_partition and not _same_type(old.type, new.type):
        # Widening too: partition values are text in paths and in every entry of the log.
        yield f"{name}: the type of a partition column cannot change ({_arrow(old.type, new.type)})"
    else:
        yield from _type_changes(old.type, new.type, name)


def _type_changes(old: DataType, new: DataType, name: str) -> Iterator[str]:
    match old, new:
        case Primitive(), Primitive():
            if old != new and new.kind not in _WIDER.get(old.kind, ()):
                narrowed = old.kind in _WIDER.get(new.kind, ())
                yield f"{name}: the type cannot be {'narrowed' if narrowed else 'changed'} ({_arrow(old, new)})"
        case StructType(), StructType():
            yield from _struct_changes(old, new, f"{name}.")
        case ArrayType(), ArrayType():
            if old.contains_null and not new.contains_null:
                yield f"{name}.element: elements that may be null cannot become required"
            yield from _type_changes(old.element, new.element, f"{name}.element")
        case MapType(), MapType():
            if old.value_contains_null and not new.value_contains_null:
                yield f"{name}.value: values that may be null cannot become required"
            if not _same_type(old.key, new.key):
                yield f"{name}.key: the type of a map's key cannot change ({_arrow(old.key, new.key)})"
            yield from _type_changes(old.value, new.value, f"{name}.value")
        case _:
            if old != new:
                yield f"{name}: the type cannot be changed ({_arrow(old, new)})"


def _renamed_to(field: Field, old: StructType, new: StructType, added: list[Field]) -> Field | None:
    """An added field of the same type, best at the same place."""
    position = old.fields.index(field)
    twins = [other for other in added if _same_type(field.type, other.type)]
    here = new.fields[position] if position < len(new.fields) else None
    return here if here in twins else twins[0] if len(twins) == 1 else None


def _same_field(old: Field, new: Field) -> bool:
    return old.collations == new.collations and _same_type(old.type, new.type)


def _same_type(old: DataType, new: DataType) -> bool:
    """Equal apart from comments, other metadata and nullability."""
    match old, new:
        case StructType(), StructType():
            return old.names == new.names and all(map(_same_field, old.fields, new.fields))
        case ArrayType(), ArrayType():
            return _same_type(old.element, new.element)
        case MapType(), MapType():
            return _same_type(old.key, new.key) and _same_type(old.value, new.value)
        case _:
            return old == new


def _arrow(old: DataType, new: DataType) -> str:
    return f"{str(old)[:200]} to {str(new)[:200]}"
