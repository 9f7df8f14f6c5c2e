"""Tables by name: create, describe, list, alter, drop."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action, CommitInfo, Format, MetaData, SubCommit
from tarnlog.protocol.ids import TableName, parse_commit_id
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import Primitive, Schema, SchemaError, parse_schema
from tarnlog.protocol.tables import AlterTable, CreateTable
from tarnlog_server.codec.paths import LogPaths, default_location
from tarnlog_server.codec.version_file import encode
from tarnlog_server.core.alter import change_hash, operation_of, patched
from tarnlog_server.core.free_form import check_schema_metadata
from tarnlog_server.core.intent import Evaluate, Intent, ReadSet, footprint_of
from tarnlog_server.core.locations import overlap
from tarnlog_server.core.protocol_gate import NEW_TABLE
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.table_settings import PropertyError, check_properties, in_force, notes_on
from tarnlog_server.core.validate import invalid
from tarnlog_server.core.version_record import DROP
from tarnlog_server.ports.object_store import (
    KeyRefused,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreError,
)
from tarnlog_server.usecases.catalog import SETTLE_ATTEMPTS, Entry, Named, Sees, everything
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.committer import ENGINE
from tarnlog_server.usecases.cursors import decode_cursor, encode_cursor
from tarnlog_server.usecases.foreign_folders import first_object, surrounding
from tarnlog_server.usecases.live_table import storage_problem
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.outcomes import expect_committed
from tarnlog_server.usecases.purge import CREATED, purge
from tarnlog_server.usecases.roots import Root
from tarnlog_server.usecases.snapshots import Snapshots
from tarnlog_server.usecases.vacuum_run import created_ms

GIVE_WAY_SECONDS = 0.5
ADOPTED_SECONDS = 1.1


class PropertyNote(Struct, frozen=True):
    """A property that is accepted and does nothing, and what took its place."""

    property: str
    message: str


class TableView(Struct, frozen=True, rename="camel"):
    """A table as clients see it."""

    name: str
    id: str
    location: str
    version: int
    schema: dict[str, Any]
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    description: str | None
    protocol: dict[str, Any]
    created_time: int | None
    num_files: int
    total_bytes: int
    num_records: int | None
    read_only: bool = False
    defaults: dict[str, str] = {}
    """Properties that the table does not set and the service does (`TARNLOG_TABLE_DEFAULTS`)."""
    notes: tuple[PropertyNote, ...] = ()
    """What to know of the table's properties."""


class TableRef(Struct, frozen=True):
    """A table in a list."""

    name: str
    id: str
    location: str


class TablesPage(Struct, frozen=True):
    """Some tables; `next` continues."""

    tables: tuple[TableRef, ...]
    next: str | None


class _ListCursor(Struct, frozen=True):
    n: str

    def __post_init__(self) -> None:
        TableName.parse(self.n)


class Tables:
    """The verbs about tables."""

    def __init__(self, tables: OpenTables, commits: Commits, snapshots: Snapshots) -> None:
        self._tables = tables
        self._commits = commits
        self._snapshots = snapshots
        self._world = tables.world

    async def create(self, request: CreateTable, by: str | None = None, sees: Sees = everything) -> TableView:
        """Create a table: its version 0 first, then the catalog entry, which is what makes it exist.

        `by`, here and below, is the id of the API key that wants it; `sees` the namespaces whose tables it may name.
        """
        name = parse_new_name(request.name)
        schema = checked_schema(request, self._tables.defaults)
        number = await self.free_number(name)
        table_id = str(self._world.uuid7())
        root, prefix = self._place(request, name, table_id)
        await self.refuse_overlap(self._tables.roots.uri(root, prefix), sees)
        await self._refuse_log(root, prefix)
        if request.location is not None:
            await self._refuse_files(root, prefix, adopt=request.adopt_existing_files)
        metadata = MetaData(
            id=table_id,
            name=str(name),
            description=request.description,
            format=Format(),
            schema_string=schema.to_schema_string(),
            partition_columns=request.partition_columns,
            configuration=request.properties,
            created_time=self._world.now_ms(),
        )
        await self._write_first_version(root.store, prefix, metadata, by)
        entry = Entry(id=table_id, location=self._tables.roots.stored(root, prefix))
        if not await self._tables.catalog.write(name, number, entry):
            if request.location is None:
                # Nobody else can know this place, so what we left there may go.
                with contextlib.suppress(StoreError):
                    await root.store.delete(LogPaths(prefix).version(0))
            raise ProblemError("table-exists", f"table {name} was created by somebody else at the same time")
        await self.give_way(Named(name, number, entry), end_log=True, sees=sees)
        return await self.describe(name, 0)

    async def describe(self, name: TableName, max_staleness: float | None = None) -> TableView:
        """What a table is now."""
        return self.view(await self._tables.get(name, max_staleness))

    async def list(self, namespace: str | None, limit: int, cursor: str | None, sees: Sees = everything) -> TablesPage:
        """Tables in the order of their names, of the namespaces for which `sees` is true. I/O: as `Catalog.all`."""
        if namespace is not None:
            parse_name(f"{namespace}.x")
        after = TableName.parse(decode_cursor(cursor, _ListCursor).n) if cursor is not None else None
        named = [n for n in await self._tables.catalog.all(namespace, sees) if not n.entry.dropped]
        rest = [n for n in named if after is None or n.name > after]
        refs = tuple(TableRef(str(n.name), n.entry.id, self._uri(n)) for n in rest[:limit])
        following = encode_cursor(_ListCursor(refs[-1].name)) if len(rest) > limit else None
        return TablesPage(refs, following)

    async def alter(self, name: TableName, change: AlterTable, by: str | None = None) -> TableView:
        """Change properties, description or schema. It is evaluated on the head it follows, alone in its version."""
        table = await self._tables.get(name)

        def evaluate(head: Snapshot) -> tuple[Action, ...]:
            if head.metadata is None:
                raise ProblemError("table-read-only", "the log has no metaData, so there is nothing to alter")
            return (patched(head.metadata, change),)

        parameters = {k: v for k, v in msgspec.to_builtins(change).items() if k not in ("commitId", "readVersion")}
        intent = self._intent(operation_of(change), evaluate, change, parameters)
        intent.actions = evaluate(table.live.head)
        intent.footprint = footprint_of(intent.actions)
        if change.commit_id is not None:
            try:
                intent.commit_id = parse_commit_id(change.commit_id)
            except ValueError as error:
                raise invalid([{"pointer": "/commitId", "message": str(error)}]) from error
        intent.read_version = change.read_version
        intent.committed_by = by
        expect_committed(await self._commits.submit(table, intent))
        return self.view(table)

    async def drop(self, name: TableName, *, purge_files: bool = False, by: str | None = None) -> None:
        """Drop a table: a commit that ends its log, then the catalog entry. Purging deletes its files afterwards.

        A purge that was cut off goes on when it is asked for again.
        """
        try:
            table = await self._tables.get(name, 0)
        except ProblemError as problem:
            if not purge_files or problem.slug != "table-not-found" or not await self._purge_rest(name):
                raise
            return
        if table.live.read_only:
            if purge_files:
                detail = "a table that is registered read-only is not ours to delete; drop it without purge"
                raise ProblemError("table-read-only", detail)
            # Its log belongs to other writers: only the name goes.
            await self.mark_dropped(table.named)
            return
        parameters: dict[str, Any] = {"purge": purge_files}
        if purge_files:
            with table.live.translated():
                # Read now: once the log is purged, nothing else records which files are older than the table.
                parameters[CREATED] = await created_ms(table.live)
        intent = self._intent(DROP, lambda _: (), None, parameters)
        intent.committed_by = by
        expect_committed(await self._commits.submit(table, intent))
        await self.mark_dropped(table.named)
        if purge_files:
            await purge(table.live, self._world)

    async def _purge_rest(self, name: TableName) -> bool:
        """Delete what a purge left behind; whether there was anything. A drop without purge stays without."""
        named = await self._tables.catalog.find(name, 0)
        if named is None or not named.entry.dropped or named.number == 0:
            return False
        before = await self._tables.catalog.entry(name, named.number - 1)
        if before.entry.dropped or before.entry.read_only:
            return False
        live = (await self._tables.open(before)).live
        head = await live.refresh(0)
        if not head.dropped:
            return False
        with live.translated():
            last = await live.log.read(head.version)
        asked = [sub.operation_parameters for sub in last.sub_commits if sub.operation == DROP]
        return any(one.get("purge") is True for one in asked) and await purge(live, self._world) > 0

    async def mark_dropped(self, named: Named) -> None:
        """Write that the name is free; somebody else having written it is as good."""
        entry = Entry(id=named.entry.id, dropped=True)
        await self._tables.catalog.write(named.name, named.number + 1, entry)

    async def free_number(self, name: TableName) -> int:
        """The catalog number a new table of this name takes. ProblemError `table-exists`."""
        named = await self._tables.catalog.find(name, 0)
        if named is None:
            return 0
        if not named.entry.dropped:
            table = await self._tables.open(named)
            head = await table.live.refresh(0)
            if not head.dropped:
                raise ProblemError("table-exists", f"table {name} exists; drop it first or choose another name")
            # A drop that was cut off between its commit and its catalog entry is completed here.
            await self.mark_dropped(named)
            return named.number + 2
        return named.number + 1

    async def refuse_overlap(self, uri: str, sees: Sees = everything) -> None:
        """ProblemError when a location is another table's, or lies inside one, or around one."""
        for named in await self._tables.catalog.all():
            if not named.entry.dropped and overlap(self._uri(named), uri):
                seen = sees(named.name.namespace)
                whose = f"table {named.name} at {self._uri(named)}" if seen else "a table that this key may not see"
                raise ProblemError("location-overlap", f"{uri} overlaps {whose}; choose another location")

    async def give_way(self, ours: Named, *, end_log: bool, sees: Sees = everything) -> None:
        """Of two tables that took overlapping places at the same time, the one with the higher id goes.

        A rival with a higher id may have looked before our entry was there: it gets a moment to go, then we do. A log
        that was only registered is left as it is, since the rival may be the same log.
        """
        uri = self._uri(ours)
        for patience in (1, 0):
            rivals = [
                other
                for other in await self._tables.catalog.all()
                if other.name != ours.name and not other.entry.dropped and overlap(self._uri(other), uri)
            ]
            if not rivals:
                return
            if patience and all((ours.entry.id, ours.name) < (other.entry.id, other.name) for other in rivals):
                await self._world.sleep(GIVE_WAY_SECONDS)
                continue
            await (self.drop(ours.name) if end_log else self.mark_dropped(ours))
            named = next((f"table {one.name}" for one in rivals if sees(one.name.namespace)), "another table")
            detail = f"{uri} overlaps {named}, which was created meanwhile"
            raise ProblemError("location-overlap", detail)

    def view(self, table: OpenTable) -> TableView:
        """An open table, rendered."""
        head = table.live.head
        metadata = head.metadata
        if metadata is None:
            raise ProblemError("log-not-supported", f"the log of {table.live.name} has no metaData")
        try:
            schema = msgspec.json.decode(metadata.schema_string)
        except (msgspec.DecodeError, RecursionError):
            schema = {"type": "struct", "fields": []}
        return TableView(
            name=str(table.live.name),
            id=metadata.id,
            location=table.live.location,
            version=head.version,
            schema=schema,
            partition_columns=metadata.partition_columns,
            properties=metadata.configuration,
            description=metadata.description,
            protocol=self._snapshots.protocol_view(table, head.protocol),
            created_time=metadata.created_time,
            num_files=head.num_files,
            total_bytes=head.total_bytes,
            num_records=head.num_records,
            read_only=table.live.read_only,
            defaults=in_force(metadata.configuration, table.live.log.defaults),
            notes=tuple(PropertyNote(*note) for note in notes_on(metadata.configuration).items()),
        )

    def _uri(self, named: Named) -> str:
        """Where an entry points, also into a root that this replica is not configured for."""
        stored = named.entry.location
        return stored if "://" in stored else self._tables.roots.uri(self._tables.roots.warehouse, stored)

    def _place(self, request: CreateTable, name: TableName, table_id: str) -> tuple[Root, str]:
        if request.location is None:
            if request.adopt_existing_files:
                detail = "adoptExistingFiles is about the files at a location: name the location, or leave it out"
                errors = [{"pointer": "/adoptExistingFiles", "message": detail}]
                raise ProblemError("request-invalid", f"/adoptExistingFiles: {detail}", errors=errors)
            return self._tables.roots.warehouse, default_location(name, table_id)
        return self._tables.roots.find(request.location)

    async def _refuse_log(self, root: Root, prefix: str) -> None:
        try:
            found = await root.store.list(LogPaths(prefix).root, limit=1)
        except KeyRefused as error:
            raise ProblemError("location-not-allowed", f"the location cannot be used: {error}") from error
        except StoreError as error:
            raise storage_problem(error) from error
        if found:
            place = self._tables.roots.uri(root, prefix)
            detail = f"there is a log at {place}; register it instead, or choose another place"
            raise ProblemError("location-not-empty", detail)

    async def _refuse_files(self, root: Root, prefix: str, *, adopt: bool) -> None:
        """ProblemError `location-not-empty` when files exist at a location, or when it is inside another table.

        Files that are adopted must be older than version 0 by the store's clock, which may count whole seconds: a
        moment passes before it is written.
        """
        place = self._tables.roots.uri(root, prefix)
        try:
            around = await surrounding(root.store, prefix)
            found = None if around is not None else await first_object(root.store, prefix)
        except StoreError as error:
            raise storage_problem(error) from error
        if around is not None:
            key = self._tables.roots.uri(root, around.key)
            detail = f"{place} is inside the folder of another table ({key}); choose a location outside of it"
            raise ProblemError("location-not-empty", detail, object=key)
        if found is not None and adopt:
            await self._world.sleep(ADOPTED_SECONDS)
        elif found is not None:
            key = self._tables.roots.uri(root, found.key)
            detail = (
                f"{place} is not empty: {key} exists. Choose an empty location, or let an admin key create the table "
                "with adoptExistingFiles: true; the files stay as they are, and no vacuum or purge deletes them"
            )
            raise ProblemError("location-not-empty", detail, object=key)

    async def _write_first_version(self, store: ObjectStore, prefix: str, metadata: MetaData, by: str | None) -> None:
        sub = SubCommit(
            commit_id=str(self._world.uuid7()),
            seq=0,
            operation="CREATE TABLE",
            is_blind_append=False,
            action_count=2,
            committed_by=by,
        )
        put_id = self._world.uuid7().hex
        now = self._world.now_ms()
        info = CommitInfo(timestamp=now, version=0, put_id=put_id, engine_info=ENGINE, sub_commits=(sub,))
        data = encode(info, [encode_action(NEW_TABLE), encode_action(metadata)], compress=True)
        key = LogPaths(prefix).version(0)
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                if await store.put_if_absent(key, data) is PutResult.CREATED or await store.get(key) == data:
                    return
                raise ProblemError("location-not-empty", "another table was created at this place at the same time")
            except OutcomeUnknown:
                await self._world.sleep(0.1 * 2**attempt)
            except KeyRefused as error:
                raise ProblemError("location-not-allowed", f"the location cannot be used: {error}") from error
            except StoreError as error:
                raise storage_problem(error) from error
        raise ProblemError(
            "storage-unavailable", "the store did not say whether the table was written", retry_after=2.0
        )

    def _intent(self, operation: str, evaluate: Evaluate, change: Struct | None, parameters: dict[str, Any]) -> Intent:
        return Intent(
            commit_id=str(self._world.uuid7()),
            request_hash=change_hash(change) if change is not None else "",
            actions=(),
            lines=b"",
            footprint=footprint_of(()),
            reads=ReadSet(),
            read_version=None,
            isolation="serializable",
            operation=operation,
            parameters=parameters,
            metrics={},
            blind=False,
            alone=True,
            evaluate=evaluate,
        )


def parse_name(text: str) -> TableName:
    """A table name; ProblemError `table-name-invalid` says what one looks like."""
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise ProblemError("table-name-invalid", str(error)) from error


def parse_new_name(text: str) -> TableName:
    """The name of a new table; ProblemError `table-name-invalid` says what one looks like."""
    parse_name(text)
    try:
        return TableName.parse_new(text)
    except ValueError as error:
        raise ProblemError("table-name-invalid", str(error)) from error


def checked_schema(request: CreateTable, defaults: Mapping[str, str]) -> Schema:
    """The schema of a new table, its partition columns and properties checked."""
    try:
        schema = parse_schema(request.schema)
        check_schema_metadata(schema)
    except SchemaError as error:
        raise ProblemError("schema-invalid", f"schema: {error}") from error
    if not schema.fields:
        raise ProblemError("schema-invalid", "the schema has no columns; a table needs at least one")
    names = {field.name: field for field in schema.fields}
    seen: set[str] = set()
    for column in request.partition_columns:
        if column not in names:
            raise ProblemError("schema-invalid", f"partition column {column!r} is not in the schema")
        if column in seen:
            raise ProblemError("schema-invalid", f"partition column {column!r} is named twice")
        if not isinstance(names[column].type, Primitive):
            raise ProblemError("schema-invalid", f"partition column {column!r} must be of a primitive type")
        if (collation := names[column].collation) is not None:
            raise ProblemError(
                "schema-invalid",
                f"partition column {column!r} has the collation {collation}, under which two spellings are one value, "
                "and files of one partition hold one spelling: partition by a column with UTF8_BINARY, such as a "
                "normalised copy of it, or keep it as a column that the table is not partitioned by",
            )
        seen.add(column)
    _check_properties(request.properties, defaults)
    return schema


def _check_properties(properties: dict[str, str], defaults: Mapping[str, str]) -> None:
    try:
        check_properties(properties, None, defaults)
    except PropertyError as error:
        raise ProblemError("property-invalid", str(error)) from error
