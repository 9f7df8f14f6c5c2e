"""What a table says beside its files (how far applications got, which files were skipped) before it is open.

A state tells it in one small object, and the versions after it tell the rest: nothing of the million files is decoded.
The index keeps these rows too, but is not asked: that a row is missing, or is an older one of its kind, no checksum of
a row can show, and looking would cost as much as reading the truth.
"""

from __future__ import annotations

from tarnlog.protocol.ids import TableName
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.partial_scan import FROM_FILES, PartialScans
from tarnlog_server.usecases.state_read import States


class ColdFacts:
    """Reads them from storage, and has the table opened for the next who asks."""

    def __init__(self, tables: OpenTables, *, from_files: int = FROM_FILES) -> None:
        self._tables = tables
        self.from_files = from_files

    async def at_head(self, name: TableName, max_staleness: float | None) -> Snapshot | None:
        """A snapshot of the head that lacks files; None where the whole table is in memory, or has to be.

        Costs the hint, the state's own object, a LIST, and the versions after the state.
        """
        age = self._tables.settings.head_max_age_seconds if max_staleness is None else max_staleness
        named = await self._tables.catalog.find(name, age)
        if named is None or named.entry.dropped or self._tables.is_open(named):
            return None
        log, world = self._tables.log_of(named), self._tables.world
        found = await PartialScans(log, States(log, world), world, from_files=self.from_files).without_files()
        if found is not None:
            self._tables.open_soon(named)
        return found
