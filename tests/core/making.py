"""Short ways to make actions, versions and commits, so that a case table reads like the rule it tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from tarnlog.protocol.actions import Action, Add, Format, MetaData, Protocol, Remove, Skip, SubCommit, Txn, to_wire
from tarnlog.protocol.commits import CommitRequest
from tarnlog.protocol.ids import uuid7
from tarnlog_server.core.coalesce import Batch, Limits, form
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.replay import empty
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Step, Window
from tarnlog_server.core.validate import prepare
from tarnlog_server.core.version_record import VersionRecord

NOW = 1_704_067_200_000
SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"day","type":"string","nullable":true,"metadata":{}},'
    '{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
)
WIDER_SCHEMA = SCHEMA.replace('"integer"', '"long"')
LONGER_SCHEMA = SCHEMA.replace("]}", ',{"name":"note","type":"string","nullable":true,"metadata":{}}]}')


def commit_id(number: int, at: int = NOW) -> UUID:
    """The id number `number`: the same every time."""
    return uuid7(at, random.Random(number))


def sub_id(version: int, seq: int) -> UUID:
    """The id of a sub-commit that `record` makes; apart from the ids of intents."""
    return commit_id(1_000_000 + version * 1000 + seq)


def add(path: str, day: str | None = "mon", *, low: int | None = None, high: int | None = None, **fields: Any) -> Add:
    """A file of partition `day`; `low` and `high` bound its column id."""
    bounds: dict[str, Any] = {}
    if low is not None:
        bounds["min_values"] = {"id": str(low)}
    if high is not None:
        bounds["max_values"] = {"id": str(high)}
    values: dict[str, Any] = {"size": 10, "modification_time": NOW, "data_change": True, **bounds, **fields}
    return Add(path=path, partition_values={"day": day}, **values)


def remove(path: str, **fields: Any) -> Remove:
    return Remove(path=path, **{"data_change": True, "deletion_timestamp": NOW, **fields})


def skip(path: str, **fields: Any) -> Skip:
    return Skip(path=path, **{"skip_timestamp": NOW, "reason": "r", "operation": "merge", **fields})


def txn(app_id: str, version: int) -> Txn:
    return Txn(app_id=app_id, version=version)


def protocol(reader: int = 4, writer: int = 4, **fields: Any) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer, **fields)


def metadata(
    schema: str = SCHEMA, partitions: tuple[str, ...] = ("day",), description: str | None = None, **configuration: str
) -> MetaData:
    """The table's metaData. `__` in a property's name stands for a dot."""
    return MetaData(
        id="table-1",
        format=Format(),
        schema_string=schema,
        partition_columns=partitions,
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
        description=description,
        created_time=NOW,
    )


FIRST: tuple[Action, ...] = (protocol(), metadata())
"""The actions of version 0."""


def record(version: int, *groups: tuple[Action, ...], blind: bool | None = None, **fields: Any) -> VersionRecord:
    """A version of ours: each group is one sub-commit with its own id. Blind unless it says otherwise."""
    subs = []
    for seq, group in enumerate(groups):
        only_adds = bool(group) and all(isinstance(action, Add) for action in group)
        subs.append(
            SubCommit(
                commit_id=str(sub_id(version, seq)),
                seq=seq,
                operation=f"OP-{version}-{seq}",
                is_blind_append=only_adds if blind is None else blind,
                action_count=len(group),
            )
        )
    actions = tuple(action for group in groups for action in group)
    values: dict[str, Any] = {"timestamp": NOW + version, "put_id": f"put-{version}", **fields}
    return VersionRecord(version=version, sub_commits=tuple(subs), actions=actions, **values)


def foreign(version: int, *actions: Action) -> VersionRecord:
    """A version that other software wrote: no commitInfo."""
    return VersionRecord(version=version, timestamp=NOW + version, put_id=None, sub_commits=(), actions=actions)


def intent(
    number: int,
    *actions: Action,
    read_version: int | None = None,
    whole_table: bool = False,
    filters: tuple[dict[str, Any], ...] = (),
    paths: tuple[str, ...] = (),
    app_ids: tuple[str, ...] = (),
    isolation: str = "write-serializable",
    coalesce: bool | None = None,
    schema: str = SCHEMA,
    partitions: tuple[str, ...] = ("day",),
) -> Intent:
    """A commit as it comes out of validation; `number` makes its id."""
    request = msgspec.convert(
        {
            "actions": [to_wire(action) for action in actions],
            "readVersion": read_version,
            "isolation": isolation,
            "coalesce": coalesce,
            "reads": {"wholeTable": whole_table, "filters": filters, "paths": paths, "appIds": app_ids},
        },
        CommitRequest,
    )
    return prepare(request, str(commit_id(number)), partition_columns=partitions, schema=schema_of(schema), now_ms=NOW)


def tracker(*records: VersionRecord, window: Window | None = None) -> SnapshotTracker:
    """A table after these versions, from 0 on."""
    made = SnapshotTracker(empty(), window)
    for one in records:
        made.advance(one)
    return made


def formed(
    waiting: list[Intent],
    table: SnapshotTracker,
    *,
    floor: int = 0,
    limits: Limits | None = None,
    coalesce: bool = True,
    older: Callable[[int], list[Step] | None] = lambda _: None,
) -> Batch:
    """FORMING on a table."""
    return form(waiting, table, floor=floor, limits=limits or Limits(), coalesce=coalesce, older_steps=older)


DAY_IS_MON = {"op": "eq", "column": "day", "value": "mon"}
DAY_IS_TUE = {"op": "eq", "column": "day", "value": "tue"}
