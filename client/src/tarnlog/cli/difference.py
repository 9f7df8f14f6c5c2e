"""What is different between two versions of a table, computed from the changes in between.

The cost is that of the changes, not of the table. A file that came and went in between is no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct

from tarnlog._api import TableApi
from tarnlog._results import VersionChange
from tarnlog.protocol.actions import Add, MetaData, Remove
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.schema import SchemaError, parse_schema_string


class FileChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file on one side."""

    path: str
    size: int | None = None


class ValueChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """A named value on both sides; None where it is not."""

    name: str
    before: str | None
    after: str | None


class Difference(Struct, frozen=True, kw_only=True, rename="camel"):
    """What to do to version `from` to make it version `to`."""

    from_version: int
    to_version: int
    added: tuple[FileChange, ...] = ()
    removed: tuple[FileChange, ...] = ()
    rewritten: tuple[FileChange, ...] = ()
    columns: tuple[ValueChange, ...] = ()
    properties: tuple[ValueChange, ...] = ()
    table: tuple[ValueChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.rewritten or self.columns or self.properties or self.table)


Counted = Callable[[Iterable[VersionChange]], Iterator[VersionChange]]


def difference(api: TableApi, table: str, a: int, b: int, counted: Counted = iter) -> Difference:
    """From version a to version b, which may be the older one."""
    low, high = min(a, b), max(a, b)
    old, new = api.snapshot(table, version=low).meta_data, api.snapshot(table, version=high).meta_data
    changes = counted(api.changes(table, low + 1, high)) if low < high else iter(())
    added, removed, rewritten = _file_changes(changes)
    forward = Difference(
        from_version=low,
        to_version=high,
        added=added,
        removed=removed,
        rewritten=rewritten,
        columns=_changed(_columns(old), _columns(new)),
        properties=_changed(old.configuration, new.configuration),
        table=_changed(_facts(old), _facts(new)),
    )
    return forward if a <= b else _reversed(forward)


def _file_changes(changes: Iterable[VersionChange]) -> tuple[tuple[FileChange, ...], ...]:
    """By each path's first and last action: the first tells whether it was live before, the last whether it is now."""
    first: dict[str, Add | Remove] = {}
    last: dict[str, Add | Remove] = {}
    for change in changes:
        # Within one version no path is both added and removed by a client; adds revive, so they are taken last.
        actions: tuple[Add | Remove, ...] = (*change.removes, *change.adds)
        for action in actions:
            key = path_key(action.path)
            first.setdefault(key, action)
            last[key] = action
    groups: dict[tuple[bool, bool], list[FileChange]] = {}
    for key in sorted(first):
        was, now = isinstance(first[key], Remove), isinstance(last[key], Add)
        shown = last[key] if now else first[key]
        groups.setdefault((was, now), []).append(FileChange(path=shown.path, size=shown.size))
    return tuple(tuple(groups.get(kind, ())) for kind in ((False, True), (True, False), (True, True)))


def _columns(meta_data: MetaData) -> dict[str, str]:
    try:
        fields = parse_schema_string(meta_data.schema_string).fields
    except SchemaError:
        return {"": meta_data.schema_string}
    return {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in fields}


def _facts(meta_data: MetaData) -> dict[str, str]:
    facts = {"description": meta_data.description, "partitionColumns": ", ".join(meta_data.partition_columns)}
    return {name: value for name, value in facts.items() if value}


def _changed(before: dict[str, str], after: dict[str, str]) -> tuple[ValueChange, ...]:
    return tuple(
        ValueChange(name=name, before=before.get(name), after=after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _reversed(found: Difference) -> Difference:
    def turned(changes: tuple[ValueChange, ...]) -> tuple[ValueChange, ...]:
        return tuple(ValueChange(name=each.name, before=each.after, after=each.before) for each in changes)

    return msgspec.structs.replace(
        found,
        from_version=found.to_version,
        to_version=found.from_version,
        added=found.removed,
        removed=found.added,
        columns=turned(found.columns),
        properties=turned(found.properties),
        table=turned(found.table),
    )
