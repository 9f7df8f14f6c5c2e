"""Auditing a table: one walk over its versions, with replay going along, and each state compared where it stands.

It reads everything and believes nothing that it can check. It needs no open table: a log that cannot be served is what
it is most needed for. Memory holds the table as it is replayed and one state beside it, whatever the history.
"""

from __future__ import annotations

import asyncio
import dataclasses

from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.audit import Check, SeenIds, missing_versions, some
from tarnlog_server.core.replay import Snapshot, empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.audit_files import check_data_files
from tarnlog_server.usecases.audit_states import StateAudit, StateFindings
from tarnlog_server.usecases.foreign_writers import ForeignWriters
from tarnlog_server.usecases.open_log import LogOpener, Opened
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.state_read import Loaded, StateRef, States
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tarnlog_server.usecases.table_log import PARALLEL_READS, TableLog

LITTLE = Window(versions=1, snapshots=1)
AGAIN = 3
"""How often it starts anew when a cleanup moved the floor under it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found: the checks for people, the findings for a repair."""

    checks: tuple[Check, ...]
    states: StateFindings
    head: int | None
    """The newest version that can be read; None when the log cannot be opened."""

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


async def audit(log: TableLog, world: World, progress: Progress, *, data_files: bool = True) -> Audited:
    """Every check on one table. Costs reading its whole log, and a listing of its data files. Raises StoreError."""
    for attempt in range(AGAIN):
        floor = await log.floor()
        audited = await _Walk(log, world, progress, floor).run(data_files=data_files)
        if audited.ok or attempt == AGAIN - 1 or await log.floor() == floor:
            break
    return audited


class _Walk:
    def __init__(self, log: TableLog, world: World, progress: Progress, floor: int) -> None:
        self._log = log
        self._world = world
        self._progress = progress
        self._floor = floor
        self._states = States(log, world)
        self._audit = StateAudit(log, self._states, world)
        self._ids = SeenIds()
        self._unreadable: list[str] = []
        self._forked: list[str] = []
        self._theirs = 0
        self._tracker: SnapshotTracker | None = None
        self._lost_at: int | None = None
        self._opened: Opened | None = None
        self._refs: dict[int, list[StateRef]] = {}
        self._before: list[StateRef] = []
        """States of other writers that the first version file follows on."""

    async def run(self, *, data_files: bool) -> Audited:
        closed = await self._open()
        opened = self._opened
        ours = opened is not None and opened.tracker.is_ours
        first = max(self._floor, 0 if opened is None else opened.first_file)
        oldest = first if opened is None else min(first, opened.oldest)
        await self._list_states(ours, oldest, first)
        listed = [*self._before, *(ref for refs in self._refs.values() for ref in refs)]
        versions = [version for version in await self._log.all_versions() if version >= first]
        last = max([*versions[-1:], -1 if opened is None else opened.tracker.head.version])
        missing = missing_versions(versions, first, last) if versions or opened is None else []
        await self._start(first, ours)
        await self._versions(versions)
        for ref in [ref for refs in self._refs.values() for ref in refs]:
            await self._audit.compare(ref, None)
        head = None if opened is None else opened.tracker.head
        await self._audit.settle(listed)
        await self._audit.check_hint()
        checks = [
            self._contiguous(first, last, missing, closed),
            self._readable(len(versions)),
            self._chained(),
            self._unique(),
            *self._audit.checks(self._not_compared()),
        ]
        if data_files:
            checks.append(await self._data_files(head))
        checks.append(await self._foreign(opened if ours else None))
        return Audited(tuple(checks), self._audit.found, None if head is None else head.version)

    async def _open(self) -> str | None:
        """Open the log as every reader does; else why it cannot be."""
        try:
            self._opened = await LogOpener(self._log, self._states, self._world, LITTLE).open(lambda *_: None)
        except CorruptObject as error:
            return str(error)
        except ObjectMissing as error:
            return f"{error.key} is missing"
        return self._opened.behind and f"{self._opened.behind} holds a newer version and cannot be read"

    async def _list_states(self, ours: bool, oldest: int, first: int) -> None:
        """What is to be looked at: in a log of ours not what others left, elsewhere not the strays below."""
        adopted = self._opened.tracker.adopted_from if self._opened is not None and ours else None
        theirs = -1 if adopted is None else adopted
        for ref in await self._states.all():
            if ref.version == first - 1 and first > self._floor:
                self._before.append(ref)
            elif ref.version >= oldest and ref.version > theirs and not (ours and ref.foreign):
                self._refs.setdefault(ref.version, []).append(ref)

    async def _start(self, first: int, ours: bool) -> None:
        """Where replay begins: at the start, or with the state that the first version follows, or stands on."""
        if first == 0:
            self._tracker = SnapshotTracker(empty(), LITTLE)
            return
        for ref in self._before:
            # In a log of ours it is needed no more, and nobody's concern.
            loaded = await (self._states.believed(ref, lambda *_: None) if ours else self._audit.compare(ref, None))
            if loaded is not None and self._tracker is None:
                self._tracker = self._continued(loaded)
        for ref in self._refs.pop(first, []) if first == self._floor else []:
            loaded = await self._audit.compare(ref, None)
            if loaded is not None and self._tracker is None:
                self._tracker = self._continued(loaded)

    def _continued(self, loaded: Loaded) -> SnapshotTracker:
        tracker = SnapshotTracker(snapshot_of(loaded.state), LITTLE)
        tracker.foreign_base = not loaded.state.ours
        return tracker

    async def _versions(self, versions: list[int]) -> None:
        for start in range(0, len(versions), PARALLEL_READS):
            window = versions[start : start + PARALLEL_READS]
            records = await asyncio.gather(*(self._read(version) for version in window))
            for version, record in zip(window, records, strict=True):
                self._apply(version, record)
                await self._compare_at(version)
            self._progress(start + len(window), len(versions), "versions")

    async def _read(self, version: int) -> VersionRecord | None:
        try:
            return await self._log.read(version)
        except CorruptObject as error:
            self._unreadable.append(str(error))
        except ObjectMissing as error:
            self._unreadable.append(f"{error.key} is missing")
        return None

    def _apply(self, version: int, record: VersionRecord | None) -> None:
        tracker = self._tracker
        if record is not None:
            self._theirs += record.put_id is None
            for sub in record.sub_commits:
                if sub.commit_id:
                    self._ids.add(sub.commit_id, version)
        if tracker is None or version <= tracker.head.version:
            return
        if record is None or version != tracker.head.version + 1:
            self._tracker, self._lost_at = None, version
            return
        try:
            tracker.advance(self._log.following(tracker.head, record))
        except CorruptObject as error:
            self._forked.append(str(error))
            self._tracker, self._lost_at = None, version

    async def _compare_at(self, version: int) -> None:
        for ref in self._refs.pop(version, []):
            at = self._tracker.head if self._tracker is not None else None
            since = -1 if self._tracker is None else self._tracker.base_version
            loaded = await self._audit.compare(ref, at if at is not None and at.version == version else None, since)
            if self._tracker is None and loaded is not None and loaded.state.ours:
                self._tracker = self._continued(loaded)

    def _not_compared(self) -> str | None:
        if self._lost_at is None:
            return None
        return f"replay ended before version {self._lost_at}, and went on from the next sound state"

    def _contiguous(self, first: int, last: int, missing: list[int], closed: str | None) -> Check:
        if missing:
            keys = [self._log.paths.version(version) for version in missing]
            return Check("log-contiguous", False, f"missing: {some(keys)}")
        if closed is not None:
            return Check("log-contiguous", False, f"the table cannot be read up to its newest version: {closed}")
        if first > last:
            return Check("log-contiguous", True, f"version {last} is in another writer's state, as all before it")
        return Check("log-contiguous", True, f"versions {first} to {last} without a gap")

    def _readable(self, count: int) -> Check:
        theirs = f", {self._theirs} of them by other writers" if self._theirs else ""
        good = f"{count} version files are whole{theirs}"
        return Check("version-files", not self._unreadable, some(self._unreadable) or good)

    def _chained(self) -> Check:
        good = "each version that names its predecessor follows that one"
        return Check("version-chain", not self._forked, some(self._forked) or good)

    def _unique(self) -> Check:
        twice = [f"one id in the versions {', '.join(map(str, places))}" for places in self._ids.twice()]
        return Check("commit-ids-unique", not twice, some(twice) or f"{len(self._ids)} ids, each once")

    async def _data_files(self, head: Snapshot | None) -> Check:
        if head is None:
            return Check("data-files", False, "not looked at: the table cannot be opened")
        if head.dropped:
            return Check("data-files", True, "the table is dropped")
        return await check_data_files(self._log, head, self._progress)

    async def _foreign(self, opened: Opened | None) -> Check:
        if opened is None:
            return Check("foreign-writers", True, "the log is other software's, and only read here")
        adopted = opened.tracker.adopted_from
        after = max(opened.floor - 1, -1 if adopted is None else adopted)
        trace = await ForeignWriters(self._log).trace(after)
        return Check("foreign-writers", trace is None, f"{trace} is another writer's" if trace else "no trace of any")
