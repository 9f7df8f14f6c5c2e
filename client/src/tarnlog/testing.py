"""An in-memory tarnlog for tests of code that uses the client: no service, no storage, no waiting.

    fake = FakeTarnlog()
    fake.create_table("sales.orders", schema)
    code_under_test(fake)                       # takes a TableApi
    fake.next_commit(Unknown)                   # what the next commit answers instead

Modelled: tables, blind appends, commit ids (a resend answers what happened then), invalid commits, the conflict rules
`txn` and `delete-delete`, history, snapshots, files, changes, txns, skips and write sessions. A plan leaves out no file
but those with a cooldown: it checks the columns of a tree, and takes SQL as it is. `table` reads rows of real files,
where a table was created with the folder they are in as `location`, with trees as filters. States
are written when asked for, and never by themselves. Vacuum finds nothing: there are no files.
Not modelled: reads (filters, paths and isolation are taken and ignored, so `append` and `delete-read` never happen:
script them), several commits in one version, retention and expiry, schema evolution rules, keys, storage,
`register_table`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from tarnlog import _fake_plan as fake_plan
from tarnlog._api import Order, described
from tarnlog._connection import new_commit_id
from tarnlog._errors import Conflict, InvalidRequest, NotFound, error_from
from tarnlog._fake_rows import FakeRows
from tarnlog._fake_script import Scripted, scripted
from tarnlog._fake_table import FakeTable, must_be_live, rejected
from tarnlog._long import OnProgress, OperationInfo, Progress
from tarnlog._plans import ArrowPlan, Filter, Plan, PlanExplanation
from tarnlog._results import (
    AuditInfo,
    CheckInfo,
    CheckpointInfo,
    CleanupInfo,
    CommitRecord,
    EraseInfo,
    Health,
    NotInLog,
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
from tarnlog._sessions import TTL_SECONDS, WriteSession
from tarnlog._table import Table
from tarnlog._transaction import Transaction
from tarnlog._wire import Timestamp, table_path, time_text
from tarnlog.protocol.actions import Action, Add, Format, MetaData, Protocol, Skip
from tarnlog.protocol.commits import (
    CommitOutcome,
    Committed,
    Isolation,
    Reads,
    Unknown,
)
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import Schema, SchemaError, parse_schema, parse_schema_string
from tarnlog.protocol.tables import StateFormat

__all__ = ["FakeTarnlog"]


@described
class FakeTarnlog:
    """The same interface as `Client`, in memory.

    `clock` gives epoch milliseconds; `committed_by` is the id of the key that the service would have seen.
    """

    def __init__(
        self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000, *, committed_by: str | None = None
    ) -> None:
        self._clock = clock
        self._committed_by = committed_by
        self._tables: dict[str, FakeTable] = {}
        self._script: deque[tuple[Scripted, bool]] = deque()
        self._lock = threading.RLock()
        self._ids = itertools.count(1)

    def next_commit(self, outcome: Scripted | type[Scripted], *, landed: bool = False, **fields: Any) -> None:
        """Make the next commit answer this; several are used up in order. A class gets plausible fields.

        `fields` are those of the outcome: `next_commit(Conflicted, rule="delete-read", paths=("a",))`. A rule that the
        service does not have is a ValueError. `landed=True` goes with Unknown: the commit is made all the same, as when
        only its answer was lost.
        """
        self._script.append((scripted(outcome, fields), landed))

    # Tables

    def create_table(
        self,
        name: str,
        schema: Mapping[str, Any],
        *,
        partition_by: Iterable[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        adopt_existing_files: bool = False,
    ) -> TableInfo:
        table_path(name)
        try:
            TableName.parse_new(name)
        except ValueError as error:
            raise InvalidRequest(str(error), slug="table-name-invalid") from None
        columns = tuple(partition_by)
        parsed = _schema(schema)
        if missing := [column for column in columns if column not in parsed.names]:
            raise InvalidRequest(f"Partition columns {missing} are not in the schema.", slug="schema-invalid")
        with self._lock:
            if name in self._tables:
                raise Conflict(f"The table {name} exists already.", slug="table-exists", status=409)
            table_id = str(UUID(int=next(self._ids)))
            place = location or f"memory://{name.replace('.', '/')}-{table_id}"
            table = FakeTable(name, place, self._committed_by)
            now = self._clock()
            meta_data = MetaData(
                id=table_id,
                name=name,
                description=description,
                format=Format(),
                schema_string=parsed.to_schema_string(),
                partition_columns=columns,
                configuration=dict(properties or {}),
                created_time=now,
            )
            protocol = Protocol(min_reader_version=4, min_writer_version=4)
            table.append([protocol, meta_data], now_ms=now, operation="CREATE TABLE", commit_id=new_commit_id())
            self._tables[name] = table
            return self.get_table(name)

    def register_table(self, name: str, location: str, *, foreign_writers_stopped: bool = False) -> TableInfo:
        raise InvalidRequest("The fake has no storage, so there is no log to register.", slug="log-not-supported")

    def get_table(self, name: str) -> TableInfo:
        table = self._table(name)
        at = table.snapshot(table.head)
        return TableInfo(
            name=name,
            id=at.meta_data.id,
            location=table.location,
            version=at.version,
            schema=parse_schema_string(at.meta_data.schema_string).to_json_object(),
            partition_columns=at.meta_data.partition_columns,
            properties=at.meta_data.configuration,
            description=at.meta_data.description,
            protocol=msgspec.to_builtins(at.protocol),
            created_time=at.meta_data.created_time,
            num_files=at.num_files,
            total_bytes=at.total_bytes,
            num_records=at.num_records,
        )

    def list_tables(self, namespace: str | None = None, *, page_size: int | None = None) -> Iterator[TableEntry]:
        infos = [self.get_table(name) for name in sorted(self._tables)]
        return iter(
            [
                TableEntry(name=info.name, id=info.id, location=info.location)
                for info in infos
                if namespace is None or info.name.split(".")[0] == namespace
            ]
        )

    def alter_table(
        self,
        name: str,
        *,
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Iterable[str] = (),
        schema: Mapping[str, Any] | None = None,
        description: str | None = None,
        read_version: int | None = None,
        commit_id: str | None = None,
    ) -> TableInfo:
        with self._lock:
            table = self._table(name)
            old = table.snapshot(table.head).meta_data
            gone = set(unset_properties)
            kept = {key: value for key, value in old.configuration.items() if key not in gone}
            new = msgspec.structs.replace(
                old,
                configuration={**kept, **(set_properties or {})},
                schema_string=old.schema_string if schema is None else _schema(schema).to_schema_string(),
                description=old.description if description is None else description,
            )
            table.append([new], now_ms=self._clock(), operation="ALTER TABLE", commit_id=commit_id or new_commit_id())
            return self.get_table(name)

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        with self._lock:
            del self._tables[self._table(name).name]

    # Commits

    def commit(
        self,
        table: str,
        actions: Iterable[Action],
        *,
        commit_id: str | None = None,
        read_version: int | None = None,
        reads: Reads | None = None,
        isolation: Isolation | None = None,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        operation_metrics: Mapping[str, Any] | None = None,
        coalesce: bool | None = None,
        deadline: float | None = None,
    ) -> CommitOutcome:
        table_path(table)
        known_id = commit_id or new_commit_id()
        wanted = tuple(actions)
        if not wanted:
            raise InvalidRequest("A commit needs at least one action.", slug="commit-invalid")
        with self._lock:
            answer, landed = self._script.popleft() if self._script else (None, True)
            outcome: CommitOutcome | None = None
            if landed and table in self._tables:
                outcome = self._tables[table].commit(
                    wanted,
                    commit_id=known_id,
                    read_version=read_version,
                    blind=reads in (None, Reads()) and all(isinstance(action, Add) for action in wanted),
                    fingerprint=(wanted, reads, isolation, operation, dict(operation_parameters or {})),
                    now_ms=self._clock(),
                    operation=operation,
                    parameters=operation_parameters,
                    metrics=operation_metrics,
                )
            if answer is not None:
                return msgspec.structs.replace(answer, commit_id=known_id)
            return outcome or rejected(known_id, "table-not-found", _no_table(table))

    def commit_status(self, table: str, commit_id: str) -> Committed | Unknown | NotInLog:
        found = self._table(table)
        answer = found.status(commit_id)
        return answer or NotInLog(commit_id=commit_id, from_version=0, as_of_version=found.head)

    def transaction(
        self,
        table: str,
        *,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        isolation: Isolation | None = None,
        read_version: int | None = None,
        commit_id: str | None = None,
        check: bool = True,
    ) -> Transaction:
        return Transaction(
            self,
            table,
            commit_id or new_commit_id(),
            operation=operation,
            operation_parameters=operation_parameters,
            isolation=isolation,
            read_version=read_version,
            check=check,
        )

    # Reading a table

    def table(self, name: str) -> Table:
        """Read the rows of a table that was created with the folder of its files as `location`.

        Filters are trees: the fake reads no SQL. A table without a location has no files, and reading it says so.
        """
        table_path(name)
        return FakeRows(self, name)

    def history(
        self,
        table: str,
        *,
        from_: int | None = None,
        to: int | None = None,
        order: Order = "desc",
        page_size: int | None = None,
    ) -> Iterator[CommitRecord]:
        found = self._table(table)
        last = found.head if to is None else to
        records = [record for info in found.versions[(from_ or 0) : last + 1] for record in info.commits]
        return iter(records if order == "asc" else records[::-1])

    def version(self, table: str, number: int) -> VersionInfo:
        found = self._table(table)
        return found.versions[found.resolve(number, None)]

    def snapshot(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
    ) -> SnapshotInfo:
        found = self._table(table)
        return found.snapshot(found.resolve(version, _time_ms(timestamp)))

    def files(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        page_size: int | None = None,
    ) -> Iterator[Add]:
        found = self._table(table)
        return iter(list(found.state(found.resolve(version, _time_ms(timestamp))).files.values()))

    def plan(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        page_size: int | None = None,
    ) -> Plan:
        found = self._table(table)
        cooling = self.cooldowns(table) if exclude_cooldowns else {}
        return fake_plan.plan(found, filter, version, _time_ms(timestamp), cooling)

    def plan_arrow(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        fields: Sequence[str] | None = None,
        since: int | None = None,
    ) -> ArrowPlan:
        plan = self.plan(
            table,
            filter,
            version=version,
            timestamp=timestamp,
            max_staleness_seconds=max_staleness_seconds,
            exclude_cooldowns=exclude_cooldowns,
        )
        return fake_plan.as_arrow(plan, self._table(table), fields)

    def explain_plan(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        max_files: int | None = 1000,
    ) -> PlanExplanation:
        found = self._table(table)
        cooling = self.cooldowns(table) if exclude_cooldowns else {}
        plan = fake_plan.plan(found, filter, version, _time_ms(timestamp), cooling)
        return fake_plan.explained(plan, found, cooling, max_files)

    def changes(
        self, table: str, from_: int, to: int | None = None, *, page_size: int | None = None
    ) -> Iterator[VersionChange]:
        found = self._table(table)
        last = found.head if to is None else min(to, found.head)
        return iter([found.change(number) for number in range(from_, last + 1)])

    def events(self, table: str, *, after: int | None = None) -> Iterator[VersionChange]:
        """What was committed above `after` by the time it is read; unlike the service's, this feed then ends."""
        found = self._table(table)
        position = found.head if after is None else after

        def live() -> Iterator[VersionChange]:
            number = position + 1
            while number <= found.head:
                yield found.change(number)
                number += 1

        return live()

    def txn(self, table: str, app_id: str) -> TxnInfo | None:
        txn = self._table(table).state().txns.get(app_id)
        return None if txn is None else TxnInfo(app_id=app_id, version=txn.version, last_updated=txn.last_updated)

    # Skips

    def record_skip(
        self,
        table: str,
        path: str,
        *,
        reason: str,
        operation: str,
        partition_values: Mapping[str, str | None] | None = None,
        size: int | None = None,
        cooldown_hours: float | None = None,
    ) -> Skip:
        with self._lock:
            found, now = self._table(table), self._clock()
            state = found.state()
            must_be_live(state, path)
            before = state.skips.get(path_key(path))
            skip = Skip(
                path=path,
                skip_timestamp=now,
                reason=reason,
                operation=operation,
                partition_values=None if partition_values is None else dict(partition_values),
                size=size,
                retry_after=max(
                    now + int((24 if cooldown_hours is None else cooldown_hours) * 3_600_000),
                    (before.retry_after or 0) if before is not None else 0,
                ),
                skip_count=1 if before is None else before.skip_count + 1,
            )
            found.append([skip], now_ms=now, operation="SKIP", commit_id=new_commit_id())
            return skip

    def skips(self, table: str, *, page_size: int | None = None) -> Iterator[Skip]:
        return iter(list(self._table(table).state().skips.values()))

    def cooldowns(self, table: str) -> dict[str, int]:
        now = self._clock()
        return {skip.path: until for skip in self.skips(table) if (until := skip.retry_after or 0) > now}

    # States

    def checkpoint(
        self,
        table: str,
        format: StateFormat | None = None,  # noqa: A002
        *,
        on_progress: OnProgress | None = None,
    ) -> CheckpointInfo:
        with self._lock:
            found = self._table(table)
            state = found.state()
            wanted = format or (state.meta_data.configuration if state.meta_data else {}).get("state.format", "avro")
            files = list(state.files.values())
            if on_progress is not None:
                on_progress(Progress(len(files), len(files), "files"))
            found.newest_state = StateInfo(
                table_name=table,
                format="avro-state" if wanted == "avro" else wanted,
                version=found.head,
                num_files=len(files),
                num_manifests=1 if files and wanted == "avro" else 0,
                total_bytes=sum(file.size for file in files),
                status="ours",
            )
            return CheckpointInfo(
                table_name=table,
                checkpoint_version=found.head,
                num_actions=2 + len(files) + len(state.txns),
                num_files=len(files),
                protocol_version=state.protocol.min_reader_version if state.protocol else 1,
            )

    def compact(self, table: str, *, on_progress: OnProgress | None = None) -> CheckpointInfo:
        return self.checkpoint(table, "avro", on_progress=on_progress)

    def cleanup(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> CleanupInfo:
        with self._lock:
            found = self._table(table)
            newest = found.newest_state
            return CleanupInfo(
                table_name=table,
                status="dry-run" if dry_run else "success",
                checkpoint_version=newest.version if newest is not None else None,
                files_preserved=found.head + 1 + (newest is not None),
                message="the fake keeps every version",
            )

    def state(self, table: str) -> StateInfo:
        found = self._table(table)
        if found.newest_state is not None:
            return found.newest_state
        files = list(found.state().files.values())
        return StateInfo(table_name=table, num_files=len(files), total_bytes=sum(file.size for file in files))

    # Write sessions

    def write_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> WriteSession:
        return WriteSession(self, table, prefix, ttl_seconds)

    def begin_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        with self._lock:
            return self._table(table).sessions.begin(prefix, ttl_seconds, self._clock())

    def extend_session(self, table: str, session_id: str, *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        with self._lock:
            return self._table(table).sessions.extend(session_id, ttl_seconds, self._clock())

    def end_session(self, table: str, session_id: str) -> None:
        with self._lock:
            self._table(table).sessions.end(session_id)

    def sessions(self, table: str) -> tuple[SessionInfo, ...]:
        with self._lock:
            return self._table(table).sessions.active(self._clock())

    # Audits

    def verify(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        """What is in memory cannot be damaged: every check is fine."""
        with self._lock:
            self._table(table)
        if on_progress is not None:
            on_progress(Progress(0, None, "versions"))
        return AuditInfo(table_name=table, status="success", checks=(CheckInfo(name="log-contiguous", ok=True),))

    def repair(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        """There is never anything to repair."""
        return self.verify(table, on_progress=on_progress)

    def rebuild(self, table: str, *, on_progress: OnProgress | None = None) -> RebuildInfo:
        """Tells of the whole log: here it is the index, too."""
        with self._lock:
            last = self._table(table).head
        if on_progress is not None:
            on_progress(Progress(last + 1, last + 1, "versions"))
        return RebuildInfo(table_name=table, last_version=last, versions=last + 1, content_hash=f"{last:x}")

    # Data files

    def vacuum(
        self,
        table: str,
        *,
        dry_run: bool = True,
        retention_hours: float | None = None,
        override_minimum: bool = False,
        on_progress: OnProgress | None = None,
    ) -> VacuumInfo:
        """There is no storage here, so there is never anything to delete."""
        self._table(table)
        hours = 168.0 if retention_hours is None else retention_hours
        if hours < (0 if override_minimum else 24):
            detail = "/retentionHours: ask for at least 24 hours, or let an admin override the minimum."
            raise InvalidRequest(detail, slug="request-invalid", status=422)
        if on_progress is not None:
            on_progress(Progress(0, None, "files"))
        status = "dry-run" if dry_run else "success"
        message = "there was nothing to delete"
        return VacuumInfo(table_name=table, status=status, retention_hours=hours, dry_run=dry_run, message=message)

    def erase(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> EraseInfo:
        """There is no storage here, so there is never anything to delete, and every version stays."""
        self._table(table)
        if on_progress is not None:
            on_progress(Progress(0, None, "files"))
        status = "dry-run" if dry_run else "success"
        return EraseInfo(table_name=table, status=status, dry_run=dry_run)

    # The service

    def operations(self) -> tuple[OperationInfo, ...]:
        """Nothing takes long here."""
        return ()

    def operation(self, operation_id: str) -> OperationInfo:
        raise NotFound(f"There is no operation {operation_id}.", slug="operation-not-found", status=404)

    def cache_stats(self) -> dict[str, Any]:
        return {}

    def health(self) -> Health:
        return Health(ready=True, detail={"status": "ready", "role": "alone"})

    def close(self) -> None:
        """Nothing to let go of; the tables stay."""

    def __enter__(self) -> FakeTarnlog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _table(self, name: str) -> FakeTable:
        table_path(name)
        if name not in self._tables:
            raise error_from(ProblemError("table-not-found", _no_table(name)))
        return self._tables[name]


def _no_table(name: str) -> str:
    """As the service says it."""
    return f"there is no table {name}; create it with POST /v1/tables"


def _schema(schema: Mapping[str, Any]) -> Schema:
    try:
        return parse_schema(dict(schema))
    except SchemaError as error:
        raise InvalidRequest(str(error), slug="schema-invalid") from None


def _time_ms(value: Timestamp | None) -> int | None:
    text = time_text(value)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
