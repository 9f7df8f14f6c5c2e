"""Every request of the HTTP API but commits, each with the reading of its answer, without any I/O.

A function returns the `Call` or `Listing` that a client sends; what is wrong with its arguments shows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from tarnlog._errors import InvalidRequest
from tarnlog._exchange import Answer, Call, Request
from tarnlog._results import (
    AuditInfo,
    CheckpointInfo,
    CleanupInfo,
    CommitRecord,
    EraseInfo,
    Health,
    RebuildInfo,
    SessionInfo,
    SnapshotInfo,
    StateInfo,
    TableEntry,
    TableInfo,
    TxnInfo,
    VacuumInfo,
    VersionChange,
    VersionInfo,
)
from tarnlog._wire import (
    JSON,
    Listing,
    Timestamp,
    actions,
    body,
    convert,
    decoded,
    listing,
    params,
    problem_document,
    reading,
    structs,
    table_path,
    time_text,
)
from tarnlog.protocol.actions import TYPES_BY_WIRE_NAME, Action, Add, CommitInfo, MetaData, Protocol, Remove, Skip
from tarnlog.protocol.tables import StateFormat

# Tables


def create_table(
    name: str,
    schema: Mapping[str, Any],
    *,
    partition_by: Iterable[str],
    location: str | None,
    properties: Mapping[str, str] | None,
    description: str | None,
    adopt_existing_files: bool,
) -> Call[TableInfo]:
    table_path(name)
    content = body(
        name=name,
        schema=schema,
        partition_columns=list(partition_by),
        location=location,
        properties=properties,
        description=description,
        adopt_existing_files=adopt_existing_files or None,
    )
    request = Request(method="POST", path="/v1/tables", headers=JSON, body=content)
    return Call(request=request, read=reading(TableInfo), resend=False)


def register_table(name: str, location: str, *, foreign_writers_stopped: bool) -> Call[TableInfo]:
    table_path(name)
    content = body(name=name, location=location, foreign_writers_stopped=foreign_writers_stopped)
    request = Request(method="POST", path="/v1/tables/register", headers=JSON, body=content)
    return Call(request=request, read=reading(TableInfo), resend=False)


def get_table(name: str) -> Call[TableInfo]:
    return Call(request=Request(method="GET", path=table_path(name)), read=reading(TableInfo))


def list_tables(namespace: str | None, page_size: int | None) -> Listing[TableEntry]:
    return listing("/v1/tables", params(namespace=namespace, limit=page_size), "tables", structs(TableEntry))


def alter_table(
    name: str,
    *,
    commit_id: str,
    read_version: int | None,
    set_properties: Mapping[str, str] | None,
    unset_properties: Iterable[str],
    schema: Mapping[str, Any] | None,
    description: str | None,
) -> Call[TableInfo]:
    """May be resent: the commit id makes the second one an echo of the first."""
    unset = list(unset_properties)
    properties = {"set": dict(set_properties or {}), "unset": unset} if set_properties or unset else None
    content = body(
        commit_id=commit_id, read_version=read_version, properties=properties, schema=schema, description=description
    )
    request = Request(method="PATCH", path=table_path(name), headers=JSON, body=content)
    return Call(request=request, read=reading(TableInfo))


def drop_table(name: str, *, purge: bool) -> Call[None]:
    request = Request(method="DELETE", path=table_path(name), params=params(purge=purge or None))
    return Call(request=request, read=lambda _: None, resend=False)


# Reading a table


def history(
    table: str, *, from_: int | None, to: int | None, order: str | None, page_size: int | None
) -> Listing[CommitRecord]:
    query = params(from_=from_, to=to, order=order, limit=page_size)
    return listing(table_path(table, "commits"), query, "commits", structs(CommitRecord))


def version(table: str, number: int) -> Call[VersionInfo]:
    request = Request(method="GET", path=table_path(table, "commits", str(number)))
    return Call(request=request, read=_version_info)


def _version_info(answer: Answer) -> VersionInfo:
    document = decoded(answer, dict[str, Any])
    found: list[Action | CommitInfo] = []
    for line in convert(document.get("actions") or [], list[dict[str, Any]]):
        for name, value in line.items():
            if (kind := TYPES_BY_WIRE_NAME.get(name)) is not None and value is not None:
                found.extend(actions(kind, [value]))  # type: ignore[arg-type]
    return VersionInfo(
        version=convert(document.get("version"), int),
        timestamp=convert(document.get("timestamp"), int),
        commits=tuple(convert(document.get("commits") or [], list[CommitRecord])),
        action_counts=tuple(convert(document.get("actionCounts") or [], list[int])),
        actions=tuple(found),
    )


def _at(version: int | None, timestamp: Timestamp | None, max_staleness_seconds: float | None) -> dict[str, str]:
    if version is not None and timestamp is not None:
        raise InvalidRequest("Ask for a version or for a timestamp, not for both.")
    return params(version=version, timestamp=time_text(timestamp), max_staleness_seconds=max_staleness_seconds)


def snapshot(
    table: str, *, version: int | None, timestamp: Timestamp | None, max_staleness_seconds: float | None
) -> Call[SnapshotInfo]:
    query = _at(version, timestamp, max_staleness_seconds)
    return Call(request=Request(method="GET", path=table_path(table, "snapshot"), params=query), read=_snapshot_info)


class _SnapshotDocument(Struct, frozen=True, kw_only=True, rename="camel"):
    version: int
    timestamp: int
    meta_data: dict[str, Any]
    protocol: dict[str, Any] | None = None
    num_files: int = 0
    total_bytes: int = 0
    num_records: int | None = None
    txns: dict[str, int | TxnInfo] | list[TxnInfo] = {}


def _snapshot_info(answer: Answer) -> SnapshotInfo:
    document = decoded(answer, _SnapshotDocument)
    [meta_data] = actions(MetaData, [document.meta_data])
    protocols = actions(Protocol, [document.protocol] if document.protocol else [])
    return SnapshotInfo(
        version=document.version,
        timestamp=document.timestamp,
        meta_data=meta_data,
        protocol=protocols[0] if protocols else None,
        num_files=document.num_files,
        total_bytes=document.total_bytes,
        num_records=document.num_records,
        txns=_txn_versions(document.txns),
    )


def _txn_versions(txns: dict[str, int | TxnInfo] | list[TxnInfo]) -> dict[str, int]:
    if isinstance(txns, list):
        return {txn.app_id: txn.version for txn in txns}
    return {app_id: value if isinstance(value, int) else value.version for app_id, value in txns.items()}


def files(
    table: str,
    *,
    version: int | None,
    timestamp: Timestamp | None,
    max_staleness_seconds: float | None,
    page_size: int | None,
) -> Listing[Add]:
    query = {**_at(version, timestamp, max_staleness_seconds), **params(limit=page_size)}
    return listing(table_path(table, "files"), query, "files", lambda items: actions(Add, items))


def changes(table: str, *, from_: int, to: int | None, page_size: int | None) -> Listing[VersionChange]:
    query = params(from_=from_, to=to, limit=page_size)
    return listing(table_path(table, "changes"), query, "changes", _version_changes)


def _version_changes(items: list[Any]) -> list[VersionChange]:
    return [version_change(item) for item in convert(items, list[dict[str, Any]])]


def version_change(document: dict[str, Any]) -> VersionChange:
    """One entry of the change feed, as a page or an event carries it."""
    return VersionChange(
        version=convert(document.get("version"), int),
        timestamp=convert(document.get("timestamp"), int),
        commits=tuple(convert(document.get("commits") or [], list[CommitRecord])),
        adds=tuple(actions(Add, document.get("adds") or [])),
        removes=tuple(actions(Remove, document.get("removes") or [])),
    )


def events(table: str, after: int) -> Request:
    """The request of the live feed; events come for the versions above `after`."""
    headers = {"accept": "text/event-stream", "last-event-id": str(after), "cache-control": "no-store"}
    return Request(method="GET", path=table_path(table, "events"), headers=headers)


def txn(table: str, app_id: str) -> Call[TxnInfo]:
    return Call(request=Request(method="GET", path=table_path(table, "txns", app_id)), read=reading(TxnInfo))


# Skips


def record_skip(
    table: str,
    path: str,
    *,
    reason: str,
    operation: str,
    partition_values: Mapping[str, str | None] | None,
    size: int | None,
    cooldown_hours: float | None,
) -> Call[Skip]:
    content = body(
        path=path,
        reason=reason,
        operation=operation,
        partition_values=partition_values,
        size=size,
        cooldown_hours=cooldown_hours,
    )
    request = Request(method="POST", path=table_path(table, "skips"), headers=JSON, body=content)
    return Call(request=request, read=_skip, resend=False)


def _skip(answer: Answer) -> Skip:
    document = decoded(answer, dict[str, Any])
    [skip] = actions(Skip, [document.get("skip", document)])
    return skip


def skips(table: str, page_size: int | None) -> Listing[Skip]:
    return listing(table_path(table, "skips"), params(limit=page_size), "skips", lambda items: actions(Skip, items))


def cooldowns(table: str) -> Call[dict[str, int]]:
    def read(answer: Answer) -> dict[str, int]:
        return convert(decoded(answer, dict[str, Any]).get("cooldowns") or {}, dict[str, int])

    return Call(request=Request(method="GET", path=table_path(table, "cooldowns")), read=read)


# States


def checkpoint(table: str, format: StateFormat | None) -> Call[CheckpointInfo]:  # noqa: A002
    request = Request(method="POST", path=table_path(table, "checkpoint"), headers=JSON, body=body(format=format))
    return Call(request=request, read=reading(CheckpointInfo))


def compact(table: str) -> Call[CheckpointInfo]:
    request = Request(method="POST", path=table_path(table, "compact"), headers=JSON, body=b"{}")
    return Call(request=request, read=reading(CheckpointInfo))


def cleanup(table: str, dry_run: bool) -> Call[CleanupInfo]:
    content = body(dry_run=dry_run or None)
    request = Request(method="POST", path=table_path(table, "cleanup"), headers=JSON, body=content)
    return Call(request=request, read=reading(CleanupInfo))


def state(table: str) -> Call[StateInfo]:
    return Call(request=Request(method="GET", path=table_path(table, "state")), read=reading(StateInfo))


# Write sessions


def begin_session(table: str, prefix: str, ttl_seconds: int) -> Call[SessionInfo]:
    """May be resent: a session that nobody knows of expires by itself."""
    content = body(prefix=prefix, ttl_seconds=ttl_seconds)
    request = Request(method="POST", path=table_path(table, "sessions"), headers=JSON, body=content)
    return Call(request=request, read=reading(SessionInfo))


def extend_session(table: str, session_id: str, ttl_seconds: int) -> Call[SessionInfo]:
    content = body(ttl_seconds=ttl_seconds)
    request = Request(method="PUT", path=table_path(table, "sessions", session_id), headers=JSON, body=content)
    return Call(request=request, read=reading(SessionInfo))


def end_session(table: str, session_id: str) -> Call[None]:
    request = Request(method="DELETE", path=table_path(table, "sessions", session_id))
    return Call(request=request, read=lambda _: None)


class _Sessions(Struct, frozen=True):
    sessions: tuple[SessionInfo, ...]


def sessions(table: str) -> Call[tuple[SessionInfo, ...]]:
    request = Request(method="GET", path=table_path(table, "sessions"))
    return Call(request=request, read=lambda answer: decoded(answer, _Sessions).sessions)


# Audits


def verify(table: str) -> Call[AuditInfo]:
    request = Request(method="POST", path=table_path(table, "verify"), headers=JSON, body=b"{}")
    return Call(request=request, read=reading(AuditInfo))


def repair(table: str) -> Call[AuditInfo]:
    request = Request(method="POST", path=table_path(table, "repair"), headers=JSON, body=b"{}")
    return Call(request=request, read=reading(AuditInfo))


def rebuild(table: str) -> Call[RebuildInfo]:
    request = Request(method="POST", path=table_path(table, "rebuild"), headers=JSON, body=b"{}")
    return Call(request=request, read=reading(RebuildInfo))


# Data files


def vacuum(table: str, *, dry_run: bool, retention_hours: float | None, override_minimum: bool) -> Call[VacuumInfo]:
    content = body(dry_run=dry_run, retention_hours=retention_hours, override_minimum=override_minimum or None)
    request = Request(method="POST", path=table_path(table, "vacuum"), headers=JSON, body=content)
    return Call(request=request, read=reading(VacuumInfo))


def erase(table: str, *, dry_run: bool) -> Call[EraseInfo]:
    request = Request(method="POST", path=table_path(table, "erase"), headers=JSON, body=body(dry_run=dry_run))
    return Call(request=request, read=reading(EraseInfo))


# The service


def cache_stats() -> Call[dict[str, Any]]:
    return Call(request=Request(method="GET", path="/v1/cache"), read=reading(dict[str, Any]))


def invalidate_cache() -> Call[dict[str, Any]]:
    request = Request(method="POST", path="/v1/cache/invalidate", headers=JSON, body=b"{}")
    return Call(request=request, read=reading(dict[str, Any]))


def health() -> Call[Health]:
    """Not ready is an answer here, not an error."""
    request = Request(method="GET", path="/v1/health/ready")
    return Call(request=request, read=_health, accept=(503,))


def _health(answer: Answer) -> Health:
    if answer.status == 503:
        return Health(ready=False, detail=problem_document(answer))
    return Health(ready=True, detail=decoded(answer, dict[str, Any]))
