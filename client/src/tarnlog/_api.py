"""The interface that the client and its in-memory fake share: write against this, test with the fake."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from tarnlog._long import OnProgress, OperationInfo
from tarnlog._plans import ArrowPlan, Filter, Plan, PlanExplanation
from tarnlog._results import (
    AuditInfo,
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
from tarnlog._sessions import TTL_SECONDS
from tarnlog._wire import Timestamp
from tarnlog.protocol.actions import Action, Add, Skip
from tarnlog.protocol.commits import CommitOutcome, Committed, Isolation, Reads, Unknown
from tarnlog.protocol.tables import StateFormat

if TYPE_CHECKING:
    from tarnlog._sessions import WriteSession
    from tarnlog._table import Table
    from tarnlog._transaction import Transaction

Order: TypeAlias = Literal["asc", "desc"]
K = TypeVar("K", bound=type)


def described(kind: K) -> K:
    """A class whose methods have the docstrings of `TableApi` where they have none: `help()` shows them."""
    for name, method in vars(TableApi).items():
        own = vars(kind).get(name)
        if inspect.isfunction(own) and own.__doc__ is None:
            own.__doc__ = method.__doc__
    return kind


class TableApi(Protocol):
    """What can be done with tables. Every method but `commit` raises a TarnlogError when it cannot do its work."""

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
        """Create a table; `schema` is Spark's StructType JSON. Conflict when the name is taken.

        A `location` must be empty, else Conflict with the slug `location-not-empty`; an admin may pass
        `adopt_existing_files`: the files there stay, and are never deleted by vacuum or purge.
        """

    def register_table(self, name: str, location: str, *, foreign_writers_stopped: bool = False) -> TableInfo:
        """Serve a log that is already there: read-only, unless every other writer has stopped for good."""

    def get_table(self, name: str) -> TableInfo:
        """The table at its newest version."""

    def list_tables(self, namespace: str | None = None, *, page_size: int | None = None) -> Iterator[TableEntry]:
        """All tables, or those of a namespace, page by page as they are consumed."""

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
        """Change properties, schema or description in one version of its own."""

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Drop a table; `purge` deletes its data files too."""

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
        """Commit, and say truthfully what became of it. Every outcome is a return value.

        A blind append (adds only, nothing read) needs no read_version. The commit id is made up front and kept for
        every resend; give your own to be able to ask for it, or to resend it, after a crash.
        """

    def commit_status(self, table: str, commit_id: str) -> Committed | Unknown | NotInLog:
        """What became of a commit. NotInLog is never final: resend the same commit id to settle it."""

    def table(self, name: str) -> Table:
        """Read the rows of a table with pyarrow, pandas, polars or DuckDB. Costs nothing until something is read."""

    def history(
        self,
        table: str,
        *,
        from_: int | None = None,
        to: int | None = None,
        order: Order = "desc",
        page_size: int | None = None,
    ) -> Iterator[CommitRecord]:
        """The commits of versions from_ to to, both inclusive, newest first unless told otherwise."""

    def version(self, table: str, number: int) -> VersionInfo:
        """Everything one version says."""

    def snapshot(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
    ) -> SnapshotInfo:
        """The table at its newest version, at a version, or as it was at a time."""

    def files(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        page_size: int | None = None,
    ) -> Iterator[Add]:
        """The live files of one version, page by page as they are consumed."""

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
        """The files of one version that may hold rows which a filter wants, and what left out the others.

        `time_zone` is that of times in SQL text that name none, such as Europe/Berlin; UTC by default.
        """

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
        """The same with the files as a `pyarrow.Table`: for tables of many files. Needs the extra `arrow`.

        With `fields` only these are sent, and `path`: fewer bytes for whoever needs no bounds. With `since`, a version
        whose plan with this filter the caller has, the answer may be what came and went since then; its `since` says
        whether it is, and what to check before both are put together.
        """

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
        """Why manifests and files are read or not; of so many files, dropped ones included."""

    def changes(
        self, table: str, from_: int, to: int | None = None, *, page_size: int | None = None
    ) -> Iterator[VersionChange]:
        """What versions from_ to to changed, both inclusive, without a gap."""

    def events(self, table: str, *, after: int | None = None) -> Iterator[VersionChange]:
        """Live changes above version `after` (default: from now on), once each, in order, without a gap."""

    def txn(self, table: str, app_id: str) -> TxnInfo | None:
        """How far an application got; None when it has not committed to this table."""

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
        """Note that a live file could not be processed; it stays live, and is left alone until the cooldown ends."""

    def skips(self, table: str, *, page_size: int | None = None) -> Iterator[Skip]:
        """The skip records of live files."""

    def cooldowns(self, table: str) -> dict[str, int]:
        """Paths that should be left alone, each with the time from which to try again."""

    def checkpoint(
        self,
        table: str,
        format: StateFormat | None = None,  # noqa: A002
        *,
        on_progress: OnProgress | None = None,
    ) -> CheckpointInfo:
        """Write a state of the newest version now, in the table's format or the one given.

        This and the other calls with `on_progress` may take long: they return when the work is done.
        """

    def compact(self, table: str, *, on_progress: OnProgress | None = None) -> CheckpointInfo:
        """Write an Avro state from scratch: no tombstones, few manifests. Data files stay as they are."""

    def cleanup(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> CleanupInfo:
        """Delete what of the log is older than the table's retention. A dry run only tells what would go."""

    def state(self, table: str) -> StateInfo:
        """How the newest state of a table does."""

    def write_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> WriteSession:
        """A `with` block in which vacuum leaves the files below a prefix alone; it extends itself until it ends."""

    def begin_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        """Keep vacuum away from what lies below a prefix, for that long. `write_session` is easier to use."""

    def extend_session(self, table: str, session_id: str, *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        """Let a session last that long from now on. Expired when it is too late for that."""

    def end_session(self, table: str, session_id: str) -> None:
        """End a session; one that is not there any more is fine."""

    def sessions(self, table: str) -> tuple[SessionInfo, ...]:
        """The sessions of a table that have not expired, oldest first."""

    def verify(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        """Check a table whole: its log, its states, its data files. Changes nothing, and works on broken tables."""

    def repair(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        """Make broken states again. Version files and data files are never touched; twice does no harm."""

    def rebuild(self, table: str, *, on_progress: OnProgress | None = None) -> RebuildInfo:
        """Make the index of a table again from storage. Nothing in storage changes; commits and reads go on."""

    def vacuum(
        self,
        table: str,
        *,
        dry_run: bool = True,
        retention_hours: float | None = None,
        override_minimum: bool = False,
        on_progress: OnProgress | None = None,
    ) -> VacuumInfo:
        """Delete data files that no kept version has, no session covers, and that are older than the retention.

        A dry run only finds them. Less than 24 hours needs `override_minimum`, and a key of scope admin.
        """

    def erase(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> EraseInfo:
        """Delete the files that versions up to now removed, with the versions and states that name them.

        For data that must be gone now: after a delete, its rows cannot be read any more, and time travel begins with
        the newest version. A dry run only lists what would go. Needs a key of scope admin.
        """

    def operations(self) -> tuple[OperationInfo, ...]:
        """The long calls of the process that answers: those that run, and those that ended lately."""

    def operation(self, operation_id: str) -> OperationInfo:
        """How a long call does. NotFound when the process that answers does not run it, or forgot it."""

    def cache_stats(self) -> dict[str, Any]:
        """Hit rates per cache of the service."""

    def health(self) -> Health:
        """Whether the service is ready; raises only when it cannot be asked."""

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
        """Collect actions in a `with` block and commit them at its end."""

    def close(self) -> None:
        """Let go of connections."""
