"""The tables this replica has open, found by name, opened once, closed when nobody used them for long."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import Kind, ProblemError
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.ports.columns import ColumnReader
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.catalog import Catalog, Named
from tarnlog_server.usecases.committer import Committer, CommitterSettings, Written
from tarnlog_server.usecases.lanes import LanedStore, Lanes
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.segment_cache import SegmentCache
from tarnlog_server.usecases.table_log import TableLog
from tarnlog_server.usecases.table_memory import BYTES_A_TABLE, TableMemory


@dataclasses.dataclass(slots=True, eq=False)
class OpenTable:
    """A live table with its committer."""

    live: LiveTable
    committer: Committer
    named: Named
    last_used: float = 0.0

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return BYTES_A_TABLE + (self.live.tracker.nbytes if self.live.opened else 0)

    @property
    def idle(self) -> bool:
        """Whether no commit waits for it."""
        return self.committer.idle


class OpenTables:
    """Open tables by location. A name is looked up in the catalog, whose answer may be as old as the head may be."""

    def __init__(
        self,
        catalog: Catalog,
        roots: Roots,
        world: World,
        telemetry: Telemetry,
        settings: CommitterSettings,
        *,
        memory: TableMemory | None = None,
        columns: ColumnReader | None = None,
        lanes: Lanes | None = None,
        changed: Callable[[LiveTable], None] | None = None,
        segments: SegmentCache | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.defaults: Mapping[str, str] = defaults or {}
        """The service's settings for table properties."""
        self.catalog = catalog
        self.roots = roots
        self.world = world
        self.telemetry = telemetry
        self.settings = settings
        self.lanes = lanes or Lanes()
        self.memory = memory or TableMemory(telemetry)
        self._columns = columns
        self._segments = segments
        self._changed = changed
        self._open: dict[str, OpenTable] = {}
        self.written: Written | None = None
        """Hears of each version that is written here."""
        self._opening: dict[str, asyncio.Task[OpenTable]] = {}
        self._soon: set[asyncio.Task[OpenTable]] = set()
        """Openings that nobody waits for yet."""
        self._broken: dict[str, LiveTable] = {}
        """Tables that could not be opened: each remembers for a moment that its log is not worth another replay."""

    async def get(self, name: TableName, max_age: float | None = None) -> OpenTable:
        """The table of a name, its head at most `max_age` seconds old. ProblemError `table-not-found`."""
        age = self.settings.head_max_age_seconds if max_age is None else max_age
        named = await self.catalog.find(name, age)
        for _ in range(2):
            if named is None or named.entry.dropped:
                break
            table = await self.open(named)
            head = await table.live.refresh(age)
            if not head.dropped:
                return table
            # The name may already belong to a new table: what we believed of the catalog is older than the drop.
            self.catalog.forget(name)
            again = await self.catalog.find(name, 0)
            if again == named:
                break
            named = again
        raise ProblemError("table-not-found", f"there is no table {name}; create it with POST /v1/tables")

    async def open(self, named: Named) -> OpenTable:
        """The table of a catalog entry, whether or not its log says it was dropped. Callers share the opening."""
        place = named.entry.location
        table = self._open.get(place)
        self.memory.looked_up(hit=table is not None)
        if table is None or (table.live.name, table.live.read_only) != (named.name, named.entry.read_only):
            task = self._opening.get(place)
            if task is None:
                task = asyncio.create_task(self._load(named))
                self._opening[place] = task
                task.add_done_callback(lambda _: self._opening.pop(place, None))
            table = await asyncio.shield(task)
        table.named = named
        table.last_used = self.world.monotonic()
        return table

    def opened(self) -> list[OpenTable]:
        """What is open now."""
        return list(self._open.values())

    async def close(self, grace_seconds: float) -> None:
        """Answer everyone who waits, then let go."""
        await asyncio.gather(*(table.committer.close(grace_seconds) for table in self.opened()))
        unfinished = [*self._soon, *self._opening.values()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        self._open.clear()

    def is_open(self, named: Named) -> bool:
        """Whether the table of a catalog entry is in memory."""
        table = self._open.get(named.entry.location)
        return table is not None and (table.live.name, table.live.read_only) == (named.name, named.entry.read_only)

    def open_soon(self, named: Named) -> None:
        """Begin to open a table without waiting for it. A failure is told to the next who waits."""
        if not self.is_open(named) and named.entry.location not in self._opening:
            task = asyncio.create_task(self.open(named))
            self._soon.add(task)
            task.add_done_callback(self._soon.discard)
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def log_of(self, named: Named) -> TableLog:
        """The log of a table, open or not."""
        root, prefix = self._resolved(named)
        store = LanedStore(root.store, self.lanes)
        return TableLog(store, LogPaths(prefix), self.world, self._columns, self._segments, self.defaults)

    def _resolved(self, named: Named) -> tuple[Root, str]:
        """Where a table is. ProblemError `location-not-allowed` outside of the roots of this replica."""
        try:
            return self.roots.resolve(named.entry.location)
        except ProblemError as problem:
            detail = f"the catalog says that table {named.name} is at {named.entry.location[:200]}: {problem.detail}; "
            advice = "add its root to TARNLOG_LOCATIONS, or restore the catalog object from a copy"
            raise ProblemError(problem.slug, detail + advice) from problem

    async def _load(self, named: Named) -> OpenTable:
        root, prefix = self._resolved(named)
        log = self.log_of(named)
        live = LiveTable(
            named.name,
            self.roots.uri(root, prefix),
            log,
            self.world,
            self.telemetry,
            window=self.settings.window,
            read_only=named.entry.read_only,
            lanes=self.lanes,
            changed=self._changed,
            loads=self.memory.loads,
        )
        broken = self._broken.pop(named.entry.location, None)
        if broken is not None and (broken.name, broken.read_only) == (live.name, live.read_only):
            live = broken
        try:
            await live.open()
        except ProblemError as problem:
            if problem.code.kind is Kind.CORRUPT:
                self._broken[named.entry.location] = live
            raise
        committer = Committer(live, self.world, self.telemetry, self.settings, hedge=root.hedge, written=self.written)
        table = OpenTable(live, committer, named, self.world.monotonic())
        replaced = self._open.get(named.entry.location)
        self._open[named.entry.location] = table
        if replaced is not None:
            await replaced.committer.close(1.0)
        await self.make_room()
        return table

    @property
    def max_open(self) -> int:
        """How many tables may be open at the same time."""
        return self.memory.max_tables

    @max_open.setter
    def max_open(self, count: int) -> None:
        self.memory.max_tables = count

    async def make_room(self) -> None:
        """Keep memory bounded: tables that were not used for longest go, unless commits wait for them.

        Costs a glance at every open table.
        """
        for table in self.memory.victims(self.opened()):
            if self._open.get(table.named.entry.location) is table:
                del self._open[table.named.entry.location]
                await table.committer.close(0)
