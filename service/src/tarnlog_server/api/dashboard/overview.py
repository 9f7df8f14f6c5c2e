"""What the first page shows: how the service does, and a page of tables with what is known of each.

A view never walks a table. Names come from a listing that is kept for some seconds; figures come from tables that are
open, from counters, and for tables that nobody has open from the index.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.auth import Caller
from tarnlog_server.api.dashboard.closed_tables import ClosedTables
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.core.activity import Activity, Figures
from tarnlog_server.core.index_rows import TableFacts
from tarnlog_server.ports.telemetry import IndexStatus
from tarnlog_server.usecases.caches import CacheStats
from tarnlog_server.usecases.catalog import Named
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.open_tables import OpenTable
from tarnlog_server.usecases.replicas import Replicas, Role

TABLES_A_PAGE = 50
NAMES_KEPT_SECONDS = 10.0
NO_INDEX = IndexStatus("off", 0, 0)


class StateAge(Struct, frozen=True):
    """How far behind the newest state is. `seconds` None: its version is too old for its time to be in memory."""

    format: str
    version: int
    versions_since: int
    seconds: float | None


class TableRow(Struct, frozen=True, kw_only=True):
    """A table in the list. What is None is not known before the table is open."""

    name: str
    figures: Figures
    version: int | None = None
    files: int | None = None
    bytes: int | None = None
    waiting: int = 0
    read_only: bool = False
    from_index: bool = False
    """Nobody has it open here: this is what the index knew last."""
    state: StateAge | None = None
    seen_seconds: float | None = None
    problem: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """How the service does."""

    ready: bool
    closing: bool
    reasons: list[str]
    places: list[str]
    store: Figures
    store_failures: int
    commits: Figures
    waiting: int
    open_tables: int
    role: Role
    leases: int
    index: IndexStatus
    started_ms: int
    caches: dict[str, CacheStats]


class TableList(Struct, frozen=True):
    """A page of tables; `after` continues. `problem`: the catalog cannot be read, so only open ones are here."""

    rows: list[TableRow]
    found: int
    after: str | None
    problem: str | None


class Overview:
    """Gathers the first page."""

    def __init__(
        self, coordinator: Coordinator, readiness: Readiness, activity: Activity, replicas: Replicas | None = None
    ) -> None:
        self._coordinator = coordinator
        self._replicas = replicas or Replicas()
        self._readiness = readiness
        self._activity = activity
        self._world = coordinator.world
        self._started_ms = self._world.now_ms()
        self._names: tuple[float, list[Named]] | None = None
        self._listing = asyncio.Lock()
        self._closed = ClosedTables(coordinator)

    @property
    def started_ms(self) -> int:
        """When this process began to count."""
        return self._started_ms

    def health(self) -> Health:
        """How the service does, from counters alone."""
        now = self._world.monotonic()
        store = self._activity.of_store(now)
        tables = self._coordinator.open_tables.opened()
        return Health(
            ready=not self._readiness.reasons and not self._readiness.closing,
            closing=self._readiness.closing,
            reasons=self._readiness.reasons,
            places=[root.uri for root in self._coordinator.roots.all],
            store=store,
            store_failures=sum(store.outcomes.get(code, 0) for code in ("unknown", "unavailable", "refused")),
            commits=self._activity.of_all(now),
            waiting=sum(table.committer.waiting for table in tables),
            open_tables=len(tables),
            role=self._replicas.role,
            leases=self._replicas.leases(),
            index=NO_INDEX if self._coordinator.ingest is None else self._coordinator.ingest.status(),
            started_ms=self._started_ms,
            caches=self._coordinator.cache_stats(),
        )

    async def tables(self, caller: Caller, find: str, after: str | None) -> TableList:
        """A page of the tables that the caller sees and whose name holds `find`."""
        try:
            listed = [named for named in await self._listed() if not named.entry.dropped]
            problem = None
        except ProblemError as error:
            listed = [table.named for table in self._coordinator.open_tables.opened()]
            # The detail may name an object of any namespace.
            problem = error.detail if caller.namespaces is None else "the catalog cannot be read now"
        seen = [one for one in listed if caller.sees(one.name.namespace) and find.lower() in str(one.name).lower()]
        rest = [one for one in seen if after is None or str(one.name) > after]
        page = sorted(rest, key=lambda one: str(one.name))[:TABLES_A_PAGE]
        indexed = await self._closed.found(page)
        opened = {str(table.live.name): table for table in self._coordinator.open_tables.opened()}
        names = [str(named.name) for named in page]
        rows = [self._row(name, opened.get(name), indexed.get(name)) for name in names]
        return TableList(rows, len(seen), names[-1] if len(rest) > len(page) else None, problem)

    def row(self, table: OpenTable) -> TableRow:
        """What is known of an open table. Costs no I/O."""
        return self._row(str(table.live.name), table)

    def _row(self, name: str, table: OpenTable | None, facts: TableFacts | None = None) -> TableRow:
        now = self._world.monotonic()
        figures = self._activity.of_table(name, now)
        if table is None or not table.live.opened or table.live.head.dropped:
            if facts is None:
                return TableRow(name=name, figures=figures, problem=self._closed.problem(name))
            return TableRow(
                name=name,
                figures=figures,
                version=facts.version,
                files=facts.num_files,
                bytes=facts.total_bytes,
                from_index=True,
            )
        live = table.live
        return TableRow(
            name=name,
            figures=figures,
            version=live.head.version,
            files=live.head.num_files,
            bytes=live.head.total_bytes,
            waiting=table.committer.waiting,
            read_only=live.read_only,
            state=self._state(table),
            seen_seconds=max(0.0, now - live.tracker.observed_at),
        )

    def _state(self, table: OpenTable) -> StateAge | None:
        base = table.live.base
        if base is None:
            return None
        written = table.live.tracker.timestamp_of(base.ref.version)
        seconds = None if written is None else max(0.0, (self._world.now_ms() - written) / 1000)
        since = max(0, table.live.head.version - base.ref.version)
        return StateAge(base.ref.kind.value, base.ref.version, since, seconds)

    async def _listed(self) -> list[Named]:
        async with self._listing:
            now = self._world.monotonic()
            if self._names is None or now - self._names[0] >= NAMES_KEPT_SECONDS:
                self._names = (now, await self._coordinator.catalog.all())
            return self._names[1]
