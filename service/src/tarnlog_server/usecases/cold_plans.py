"""Plans that do not wait for a table to be opened: made from storage, while the opening goes on for the next ones."""

from __future__ import annotations

from tarnlog.protocol.ids import TableName
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.filters import Filter
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.partial_scan import FROM_FILES, PartialScan, PartialScans
from tarnlog_server.usecases.records import Records
from tarnlog_server.usecases.state_read import States


class ColdPlans:
    """Finds what a plan needs without the whole table, where that is quicker."""

    def __init__(self, tables: OpenTables, records: Records, world: World) -> None:
        self._tables = tables
        self._records = records
        self._world = world
        self.from_files = FROM_FILES

    async def is_table(self, name: TableName, table_id: str, max_staleness: float | None) -> bool:
        """Whether a name is still that of a table, as the catalog says. Costs a LIST where that is too old."""
        age = self._tables.settings.head_max_age_seconds if max_staleness is None else max_staleness
        named = await self._tables.catalog.find(name, age)
        return named is not None and not named.entry.dropped and named.entry.id == table_id

    async def scan(
        self, name: TableName, version: int | None, timestamp: int | None, max_staleness: float | None, asked: Filter
    ) -> PartialScan | None:
        """None where the whole table is in memory at that version, or has to be. Raises ProblemError."""
        if asked is None:
            return None
        age = self._tables.settings.head_max_age_seconds if max_staleness is None else max_staleness
        named = await self._tables.catalog.find(name, age)
        if named is None or named.entry.dropped:
            return None
        if not self._tables.is_open(named):
            if timestamp is not None:
                return None  # only an open table tells which version that is
            log = self._tables.log_of(named)
            scans = PartialScans(log, States(log, self._world), self._world, from_files=self.from_files)
            found = await (scans.newest(asked) if version is None else scans.at(version, asked))
            if found is not None:
                self._tables.open_soon(named)
            return found
        if version is None and timestamp is None:
            return None
        live = (await self._tables.get(name, max_staleness)).live
        version = await self._records.resolved(live, version, timestamp)
        if self._records.at_hand(live, version):
            return None
        return await PartialScans(live.log, live.states, self._world, from_files=self.from_files).at(version, asked)
