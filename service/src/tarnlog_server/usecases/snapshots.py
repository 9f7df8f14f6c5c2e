"""Reading a table: what it is at a version or a time, and which files it has then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add, MetaData, Protocol, Txn
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.add_json import files_json
from tarnlog_server.codec.scan_rows import adds, live_rows
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases.caches import Caches, limits_of
from tarnlog_server.usecases.cold_facts import ColdFacts
from tarnlog_server.usecases.cursors import check_table, check_told, decode_cursor, encode_cursor
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.records import Records

OFF_LOOP_FROM = 2000
"""Files from which on pruning, or making something of them, goes to a thread: others must not wait for it."""


class SnapshotView(Struct, frozen=True, rename="camel"):
    """A snapshot as clients see it."""

    version: int
    timestamp: int
    protocol: dict[str, Any]
    meta_data: dict[str, Any] | None
    num_files: int
    total_bytes: int
    num_records: int | None
    txns: dict[str, int]


class FilesPage(Struct, frozen=True, rename="camel"):
    """Some of a version's files; `next` continues at the same version."""

    version: int
    files: tuple[Add, ...]
    next: str | None


class EncodedFiles(Struct, frozen=True, rename="camel"):
    """The same page with its files as JSON already."""

    version: int
    files: msgspec.Raw
    next: str | None


class _FilesCursor(Struct, frozen=True):
    v: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    a: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    k: str
    t: str
    d: int
    """How many files the pages so far told."""


class Snapshots:
    """The verbs of reading the present and the past."""

    def __init__(self, tables: OpenTables, records: Records, caches: Caches) -> None:
        self._tables = tables
        self._records = records
        self._caches = caches
        self.cold = ColdFacts(tables)

    async def snapshot(
        self, name: TableName, version: int | None, timestamp: int | None, max_staleness: float | None
    ) -> SnapshotView:
        """A table at a version, a time, or now; now may be `max_staleness` seconds old."""
        table, snapshot = await self.at(name, version, timestamp, max_staleness)
        return self.view(table, snapshot)

    async def files(
        self,
        name: TableName,
        version: int | None,
        timestamp: int | None,
        max_staleness: float | None,
        limit: int,
        cursor: str | None,
    ) -> FilesPage:
        """A page of live files, in the order they were added. Costs the page, plus removed files in between."""
        snapshot, rows, following = await self._page(name, version, timestamp, max_staleness, limit, cursor)
        return FilesPage(snapshot.version, tuple(adds(snapshot, rows)), following)

    async def encoded_files(
        self,
        name: TableName,
        version: int | None,
        timestamp: int | None,
        max_staleness: float | None,
        limit: int,
        cursor: str | None,
    ) -> EncodedFiles:
        """The same page, several times quicker and beside the event loop: no action is made of a packed file."""
        snapshot, rows, following = await self._page(name, version, timestamp, max_staleness, limit, cursor)
        if len(rows) < OFF_LOOP_FROM:
            return EncodedFiles(snapshot.version, files_json(snapshot, rows), following)
        encoded = await self._tables.world.run_blocking(lambda: files_json(snapshot, rows))
        return EncodedFiles(snapshot.version, encoded, following)

    async def _page(
        self,
        name: TableName,
        version: int | None,
        timestamp: int | None,
        max_staleness: float | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[Snapshot, Sequence[int], str | None]:
        """A snapshot, the rows of a page, and where the next one goes on."""
        after: _FilesCursor | None = None
        if cursor is not None:
            after = decode_cursor(cursor, _FilesCursor)
            version, timestamp = after.v, None
        table, snapshot = await self.at(name, version, timestamp, max_staleness)
        table_id = table.live.head.table_id or ""
        start = 0
        if after is not None:
            check_table(after.t, table.live.head)
            start = snapshot.files.row_after(after.a, after.k)
            check_told(after.d, snapshot.files.live_before(start, snapshot.version))
        rows = live_rows(snapshot, start, limit + 1)
        if len(rows) <= limit:
            return snapshot, rows, None
        last = rows[limit - 1]
        key = path_key(snapshot.files.file(last).path)
        told = snapshot.files.live_before(last + 1, snapshot.version)
        where = _FilesCursor(snapshot.version, snapshot.files.added_at(last), key, table_id, told)
        return snapshot, rows[:limit], encode_cursor(where)

    async def txn(self, name: TableName, app_id: str, max_staleness: float | None) -> Txn:
        """How far an application got. Does not wait for a large table to be opened. ProblemError `txn-not-found`."""
        snapshot = await self.cold.at_head(name, max_staleness)
        if snapshot is None:
            _, snapshot = await self.at(name, None, None, max_staleness)
        found = snapshot.txns.get(app_id)
        if found is None:
            raise ProblemError("txn-not-found", f"application {app_id[:200]!r} has not committed to {name}")
        return found[0]

    async def at(
        self, name: TableName, version: int | None, timestamp: int | None, max_staleness: float | None
    ) -> tuple[OpenTable, Snapshot]:
        """The table, and its snapshot at a version, a time, or now."""
        table = await self._tables.get(name, max_staleness)
        return table, await self._records.at(table.live, version, timestamp)

    def view(self, table: OpenTable, snapshot: Snapshot) -> SnapshotView:
        """A snapshot, rendered."""
        return SnapshotView(
            version=snapshot.version,
            timestamp=snapshot.timestamp,
            protocol=self.protocol_view(table, snapshot.protocol),
            meta_data=self.metadata_view(table, snapshot.metadata) if snapshot.metadata else None,
            num_files=snapshot.num_files,
            total_bytes=snapshot.total_bytes,
            num_records=snapshot.num_records,
            txns={app_id: txn.version for app_id, (txn, _) in snapshot.txns.items()},
        )

    def protocol_view(self, table: OpenTable, protocol: Protocol) -> dict[str, Any]:
        """A protocol as a JSON object, rendered once for each change of it."""
        ttl = limits_of(table.live.head.metadata, table.live.log.defaults).ttl_seconds
        return _rendered(self._caches.protocol, (table.live.location, id(protocol)), protocol, ttl)

    def metadata_view(self, table: OpenTable, metadata: MetaData) -> dict[str, Any]:
        """A metaData as a JSON object, rendered once for each change of it."""
        ttl = limits_of(table.live.head.metadata, table.live.log.defaults).ttl_seconds
        return _rendered(self._caches.metadata, (table.live.location, id(metadata)), metadata, ttl)


def _rendered(cache: Any, key: tuple[str, int], action: Struct, ttl: float | None) -> dict[str, Any]:
    """The rendered action from the cache. The action is kept beside it, so that its id() stays its own."""
    found = cache.get(key)
    if found is not None and found["action"] is action:
        rendered: dict[str, Any] = found["rendered"]
        return rendered
    body = msgspec.to_builtins(action)
    body.pop("unknown_fields", None)
    body.pop("unknownFields", None)
    rendered = {**unknown_fields(action), **body}
    cache.put(key, {"action": action, "rendered": rendered}, ttl)
    return rendered
