"""Tables that a page shows and nobody has open: what the index says of them, else a few are opened.

With an index, a page costs one small query for each closed table on it. Without one, or where it does not know a table,
a view opens a few, and only while half of the memory for tables is free: looking on should push nobody out of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.index_rows import IndexWrong, TableFacts
from tarnlog_server.usecases.catalog import Named
from tarnlog_server.usecases.coordinator import Coordinator

OPENED_A_VIEW = 3
OPENING_SECONDS = 2.0
RETRY_SECONDS = 60.0


class ClosedTables:
    """Finds out about tables without walking any."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._world = coordinator.world
        self._unopenable: dict[str, tuple[float, str]] = {}
        """Tables that could not be opened: until when that is believed, and why."""
        self._opening: set[asyncio.Task[None]] = set()

    def problem(self, name: str) -> str | None:
        """Why a table could not be opened."""
        found = self._unopenable.get(name)
        return None if found is None else found[1]

    async def found(self, page: Sequence[Named]) -> dict[str, TableFacts]:
        """What the index knows of the closed ones of a page. Some of the others are opened meanwhile."""
        tables = self._coordinator.open_tables.opened()
        opened = {table.live.name for table in tables}
        closed = [named for named in page if named.name not in opened]
        facts = await asyncio.gather(*(self._indexed(named) for named in closed))
        known = {str(named.name): one for named, one in zip(closed, facts, strict=True) if one is not None}
        memory = self._coordinator.open_tables.memory
        room = memory.max_tables - len(tables)
        if 2 * sum(table.nbytes for table in tables) > memory.max_bytes:
            room = 0
        await self._open_some([named for named in closed if str(named.name) not in known], room)
        return known

    async def _indexed(self, named: Named) -> TableFacts | None:
        ingest = self._coordinator.ingest
        if ingest is None:
            return None
        roots = self._coordinator.roots
        try:
            location = roots.uri(*roots.resolve(named.entry.location))
            table = await ingest.guard.read("table", lambda index: index.table(location))
        except (ProblemError, IndexWrong):  # a place that is not configured here, rows that cannot be believed
            return None
        if table is None or table.facts.table_id != named.entry.id or table.facts.dropped:
            return None
        return table.facts

    async def _open_some(self, closed: list[Named], room: int) -> None:
        now = self._world.monotonic()
        wanted = [named for named in closed if self._unopenable.get(str(named.name), (now, ""))[0] <= now]
        most = min(OPENED_A_VIEW, room) - len(self._opening)
        tasks = [asyncio.create_task(self._open(named)) for named in wanted[: max(0, most)]]
        for task in tasks:
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=OPENING_SECONDS)  # what takes longer goes on, and is in a later view

    async def _open(self, named: Named) -> None:
        try:
            await self._coordinator.open_tables.get(named.name)
            self._unopenable.pop(str(named.name), None)
        except ProblemError as problem:
            self._unopenable[str(named.name)] = (self._world.monotonic() + RETRY_SECONDS, problem.detail)
