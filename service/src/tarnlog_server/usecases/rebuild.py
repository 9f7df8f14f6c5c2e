"""Making the index of a table again from storage: everything the log still has, and nothing else."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.index_rows import change_of
from tarnlog_server.core.index_plan import agrees
from tarnlog_server.core.index_rows import IndexedTable, IndexWrong
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.index import IndexGap, IndexUnavailable
from tarnlog_server.usecases.ingest import BATCH_COMMITS, Ingest, facts_of
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.table_log import PARALLEL_READS

UNIT = "versions"
TRIES = 3
"""How often it begins again because other replicas wrote in between."""


class RebuildView(Struct, frozen=True, rename="camel"):
    """What the index holds of a table after it was made again. `versions` is 0 for a log that others write."""

    table_name: str
    status: str
    first_version: int
    last_version: int
    versions: int
    content_hash: str


class Rebuild:
    """The verb. `ingest` is None where there is no index."""

    def __init__(self, tables: OpenTables, ingest: Ingest | None) -> None:
        self._tables = tables
        self._ingest = ingest

    async def rebuild(self, name: TableName, progress: Progress = unheard) -> RebuildView:
        """Forget what the index holds of a table, and read it from storage. Costs every version the log still has.

        ProblemError `index-unavailable`. Commits and reads go on meanwhile; stopped anywhere, it heals by itself.
        """
        if self._ingest is None:
            raise ProblemError("index-unavailable", "this service runs without an index: set TARNLOG_DATABASE_URL")
        table = await self._tables.get(name, 0)
        live = table.live
        with live.translated(close=False):
            await live.look_at_floor()
        await self._ingest.hold(live)
        try:
            made = await self._made(self._ingest, live, progress)
        except IndexUnavailable as error:
            detail = f"the index does not answer ({error}); commits and reads go on without it, try again later"
            raise ProblemError("index-unavailable", detail, retry_after=5.0) from error
        finally:
            self._ingest.release(live)
        versions = made.last - made.first + 1
        return RebuildView(str(name), "success", made.first, made.last, versions, f"{made.content:x}")

    async def _made(self, ingest: Ingest, live: LiveTable, progress: Progress) -> IndexedTable:
        for attempt in range(TRIES):
            try:
                return await self._from_scratch(ingest, live, progress)
            except (IndexGap, IndexWrong) as error:
                if attempt == TRIES - 1:
                    raise IndexUnavailable(f"other replicas change it at the same time: {error}") from error
        raise AssertionError("unreachable")

    async def _from_scratch(self, ingest: Ingest, live: LiveTable, progress: Progress) -> IndexedTable:
        """Newest versions first: those that other replicas add meanwhile follow on them without a gap."""
        location, guard = live.location, ingest.guard
        await ingest.forget(live)
        oldest = ingest.oldest(live) if live.tracker.is_ours else live.head.version + 1
        facts, end = facts_of(live), live.head.version
        total = end + 1 - oldest
        made = IndexedTable(facts, 0, -1, 0)
        while end >= oldest:
            progress(total - (end + 1 - oldest), total, UNIT)
            records = await self._below(live, end, oldest)
            changes = [change_of(location, record) for record in records]
            made = await guard.write("put", lambda index, changes=changes: index.put(facts, changes))  # type: ignore[misc]
            end = records[0].version - 1
        progress(total, total, UNIT)
        counted = await guard.write("count", lambda index: index.count(location))
        there = await guard.write("table", lambda index: index.table(location))
        if there is not None and not agrees(there, counted):
            raise IndexWrong(f"it counts {counted} after it was made from {made.first} to {made.last}")
        return made

    async def _below(self, live: LiveTable, end: int, oldest: int) -> list[VersionRecord]:
        """A batch of versions that ends at one, in order."""
        found: list[VersionRecord] = []
        commits = 0
        while end >= oldest and commits < BATCH_COMMITS and len(found) < 2 * PARALLEL_READS * PARALLEL_READS:
            versions = range(max(oldest, end - PARALLEL_READS + 1), end + 1)
            try:
                some = await asyncio.gather(*(live.read_version(version) for version in versions))
            except ProblemError as problem:
                if problem.slug != "version-expired":
                    raise
                detail = "versions were cleaned up meanwhile; start the rebuild again"
                raise ProblemError("storage-unavailable", detail, retry_after=1.0) from problem
            found[:0] = some
            commits += sum(len(record.sub_commits) for record in some)
            end = versions[0] - 1
        return found
