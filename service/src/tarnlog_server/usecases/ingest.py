"""Write-behind: what tables apply goes to the index, by one task, batched, and never in the way of a commit.

A commit pays for one entry in a dict. The versions themselves wait where they are anyway, in the window of their table
in memory: nothing queues up however long the database is away, and what fell out of the window is read from storage.
A table is attached first: its rows are counted against its content hash, and one version is compared with the log.
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakKeyDictionary, WeakValueDictionary

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.index_rows import change_of
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.index_plan import Put, Source, StartOver, agrees, next_put
from tarnlog_server.core.index_rows import Change, IndexedTable, IndexWrong, TableFacts
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.index import IndexGap, IndexUnavailable
from tarnlog_server.ports.object_store import ObjectMissing, StoreError
from tarnlog_server.ports.telemetry import IndexStatus, Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.index_guard import IndexGuard
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.table_log import PARALLEL_READS

_log = logging.getLogger(__name__)
BATCH_VERSIONS, BATCH_COMMITS = 256, 4000
"""What one transaction puts at most."""
SLICE = 16
"""Versions that are made into rows before others get the loop: a commit waits no longer than for these."""
GATHER_SECONDS = 0.5
"""How long what was applied waits for more: a transaction for each version would cost more than its rows."""
BUSY_FACTOR = 4.0
"""While there is more to put, so many times as long as a batch took is left to others."""
LONGEST_REST = 1.0
AFTER_STORE_FAULT = 1.0
LARGEST = 2**63 - 1


class NotIndexed(Exception):
    """A version that others wrote: its time is not in its file, so it is not told by an index."""


class Ingest:
    """The one writer of this replica's index."""

    def __init__(self, guard: IndexGuard, world: World, telemetry: Telemetry | None = None) -> None:
        self.guard = guard
        self._world = world
        self._telemetry = telemetry or Telemetry()
        self._changed: dict[str, LiveTable] = {}
        self._put_off: WeakValueDictionary[str, LiveTable] = WeakValueDictionary()
        """Tables that changed while the index is away. One that is closed meanwhile is let go, with all its memory:
        what is missing of it is put when it is opened again."""
        self._wake = asyncio.Event()
        guard.on_failure = self._wake.set
        self._attached: WeakKeyDictionary[LiveTable, IndexedTable] = WeakKeyDictionary()
        self._held: set[str] = set()
        self._putting = asyncio.Lock()
        self._wrong: set[str] = set()

    def changed(self, live: LiveTable) -> None:
        """A table applied a version, or was opened. All that a commit pays for the index."""
        if self.guard.state == "degraded":
            self._put_off[live.location] = live
        else:
            self._changed[live.location] = live
        self._wake.set()

    def attached(self, live: LiveTable) -> IndexedTable | None:
        """What the index is known to hold of a table, if it was found to be of the same log."""
        return self._attached.get(live)

    def distrust(self, live: LiveTable, reason: str) -> None:
        """What was read of a table is wrong: nothing more is read of it until it was forgotten and put again."""
        _log.warning("table %s: the index is wrong and is made again: %s", live.name, reason)
        self._telemetry.index_wrong()
        self._attached.pop(live, None)
        self._wrong.add(live.location)
        self.changed(live)

    def look_again(self, live: LiveTable) -> None:
        """Rows are not where they were: another replica may have begun the table anew, so it is attached again."""
        self._attached.pop(live, None)
        self.changed(live)

    async def hold(self, live: LiveTable) -> None:
        """Leave a table to the caller, until `release`. Waits for what is being put at the moment."""
        self._held.add(live.location)
        async with self._putting:
            return

    def release(self, live: LiveTable) -> None:
        """Go on with a table; it is attached anew."""
        self._held.discard(live.location)
        self._attached.pop(live, None)
        self.changed(live)

    @staticmethod
    def oldest(live: LiveTable) -> int:
        """From which version on a log of ours is told here: those of others end with the one that was taken over."""
        adopted = live.tracker.adopted_from
        return max(live.floor, live.first_file, 0 if adopted is None else adopted + 1)

    def status(self) -> IndexStatus:
        """For metrics. Costs a look at each table that waits."""
        waiting = [live for live in {**self._put_off, **self._changed}.values() if live.opened]
        behind = 0
        for live in waiting:
            known = self._attached.get(live)
            behind += max(0, live.head.version - (known.last if known is not None else live.head.version - 1))
        return IndexStatus(self.guard.state, len(waiting), behind)

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self.flush()
            await self._wake.wait()
            await self._world.sleep(GATHER_SECONDS)

    async def flush(self) -> None:
        """Put everything that is not there yet, for as long as there is something."""
        while True:
            self._wake.clear()
            if self.guard.state != "ready":
                self._put_off.update(self._changed)
                self._changed = {}
            await self.guard.prepared()
            self._changed = {**self._put_off, **self._changed}
            self._put_off.clear()
            if not self._changed:
                return
            await self._round()

    async def _round(self) -> None:
        """Put some of every table that waits, then rest where there is more. Keeps no table in mind afterwards."""
        now, self._changed = self._changed, {}
        started = self._world.monotonic()
        rest = 0.0
        while now:
            location, live = now.popitem()
            try:
                async with self._putting:
                    more = await self._put_some(live)
                if more:
                    self._changed.setdefault(location, live)
            except IndexUnavailable:
                self._changed = {location: live, **now, **self._changed}
                return
            except StoreError:
                self._changed.setdefault(location, live)
                rest = AFTER_STORE_FAULT
        if self._changed:
            rest = max(rest, BUSY_FACTOR * (self._world.monotonic() - started))
            await self._world.sleep(min(rest, LONGEST_REST))

    async def _put_some(self, live: LiveTable) -> bool:
        """Put one batch of a table; whether there may be more."""
        if not live.opened or live.location in self._held or not live.tracker.is_ours:
            return False
        try:
            return await self._next_batch(live)
        except IndexGap:
            # Another replica has moved on, or began anew: look again at what is there.
            self._attached.pop(live, None)
        except IndexWrong as error:
            self.distrust(live, str(error))
        except (CorruptObject, ObjectMissing) as error:
            _log.warning("table %s: a version for the index cannot be read: %s", live.name, error)
            await self.forget(live)
            return False
        except NotIndexed:
            await self.forget(live)
            return False
        except ProblemError:
            # Its log was found broken meanwhile: it was closed, and tells of itself when it is opened again.
            return False
        return True

    async def _next_batch(self, live: LiveTable) -> bool:
        if live.head.dropped or live.location in self._wrong:
            await self.forget(live)
            return not live.head.dropped
        known = self._attached.get(live) or await self._attach(live)
        run = None if known is None or known.last < known.first else (known.first, known.last)
        memory = (live.tracker.first_step, live.head.version)
        wanted = next_put(run, memory, self.oldest(live), BATCH_VERSIONS)
        if isinstance(wanted, StartOver):
            await self.forget(live)
            return True
        changes = [] if wanted is None else await self._changes(live, wanted)
        if wanted is not None or known is None or known.facts.version < live.head.version:
            started = self._world.monotonic()
            known = await self.guard.write("put", lambda index: index.put(facts_of(live), changes))
            self._telemetry.index_written(len(changes), self._world.monotonic() - started)
            self._attached[live] = known
        if known.first < live.floor <= known.last:
            floor = live.floor
            await self.guard.write("trim", lambda index: index.trim(live.location, floor))
            self._attached.pop(live, None)
            return True
        return wanted is not None

    async def _attach(self, live: LiveTable) -> IndexedTable | None:
        """What is there of a table, if it can be believed; else it is forgotten. Costs a pass over its rows in the
        database, and at most one GET.
        """
        location = live.location
        table = await self.guard.write("table", lambda index: index.table(location))
        if table is None or table.last < table.first:
            return table
        counted = await self.guard.write("count", lambda index: index.count(location))
        if not agrees(table, counted):
            self.distrust(live, f"it counts {counted} and should have {table.first} to {table.last}")
        elif table.last < live.oldest or not await self._same(live, table.last):
            self.distrust(live, f"its version {table.last} is not that of the log")
        else:
            self._attached[live] = table
            return table
        await self.forget(live)
        return None

    async def _same(self, live: LiveTable, version: int) -> bool:
        """Whether the index tells of a version what the log tells. Asked of the last one, which may be above the head:
        other replicas write too. Where the log lacks it, storage was restored from an older copy.
        """
        try:
            record = await self._record(live, version)
        except ObjectMissing:
            return False
        rows = await self.guard.write("history", lambda index: index.history(live.location, version, version))
        return rows == [change_of(live.location, record).row]

    async def forget(self, live: LiveTable) -> None:
        """Forget what the index holds of a table, and with it what was wrong. Raises IndexUnavailable."""
        await self.guard.write("forget", lambda index: index.forget(live.location))
        self._attached.pop(live, None)
        self._wrong.discard(live.location)

    async def _changes(self, live: LiveTable, wanted: Put) -> list[Change]:
        found: list[Change] = []
        commits = 0
        versions = range(wanted.first, wanted.last + 1)
        # A run that grows downwards must end where the index begins.
        downwards = (known := self._attached.get(live)) is not None and wanted.last < known.first
        for start in range(0, len(versions), SLICE):
            some = versions[start : start + SLICE] if not downwards else versions[::-1][start : start + SLICE]
            records = await self._records(live, some, wanted.source)
            for record in records:
                if record.put_id is None:
                    raise NotIndexed
                found.append(change_of(live.location, record))
                commits += len(record.sub_commits)
            if commits >= BATCH_COMMITS:
                break
            await asyncio.sleep(0)
        return found[::-1] if downwards else found

    async def _records(self, live: LiveTable, versions: range, source: Source) -> list[VersionRecord]:
        if source is Source.MEMORY:
            return [await self._record(live, version) for version in versions]
        found: list[VersionRecord] = []
        for start in range(0, len(versions), PARALLEL_READS):
            window = versions[start : start + PARALLEL_READS]
            found += await asyncio.gather(*(self._record(live, version) for version in window))
        return found

    @staticmethod
    async def _record(live: LiveTable, version: int) -> VersionRecord:
        """A version from memory, or from storage once it has left the window."""
        step = live.tracker.step(version)
        return step.record if step is not None else await live.log.read(version)


def facts_of(live: LiveTable) -> TableFacts:
    """What the index tells about a table as a whole."""
    head = live.head
    return TableFacts(
        location=live.location,
        name=str(live.name),
        table_id=head.table_id or "",
        version=head.version,
        timestamp=head.timestamp,
        num_files=head.num_files,
        total_bytes=min(head.total_bytes, LARGEST),
        num_records=None if head.num_records is None else min(head.num_records, LARGEST),
        dropped=head.dropped,
    )
