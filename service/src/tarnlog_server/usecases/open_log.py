"""Opening a log: the newest state that can be believed, then the versions after it; else everything from version 0.

Whatever goes wrong with a state costs time, never a version: older states are tried, then the log itself. Only when
none of them reaches the floor is the table unreadable, and the error names what is missing.
"""

from __future__ import annotations

import dataclasses

from tarnlog_server.codec.ids_file import CommitIdRun
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.dedupe import SealedRun
from tarnlog_server.core.replay import empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.state_read import Broken, Loaded, StateRef, States
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tarnlog_server.usecases.table_log import LogMissing, TableLog


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Base:
    """The state that a table was opened from, or that was written last: what the next one may build on."""

    ref: StateRef
    ours: bool
    manifest: StateManifest | None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A log that was read up to its head."""

    tracker: SnapshotTracker
    floor: int
    oldest: int
    """The oldest version that can still be rebuilt."""
    base: Base | None
    source: str
    """Where most of it came from, for metrics: `avro-state`, `json`, `parquet` or `replay`."""


class LogOpener:
    """Opens one table's log, at its head or at a version of the past."""

    def __init__(self, log: TableLog, states: States, world: World, window: Window) -> None:
        self._log = log
        self._states = states
        self._world = world
        self._window = window

    async def open(self, broken: Broken) -> Opened:
        """The log up to its head. Raises LogMissing, CorruptObject, StoreError.

        From a state it costs that state, one LIST and the versions since; without one, every version.
        """
        loaded = await self._states.newest(broken)
        if loaded is not None and loaded.state.ours:
            opened = await self._after(loaded)
            if opened is not None:
                return opened
            # The log moved on under us: a newer state must be there by now.
            loaded = await self._states.newest(broken)
            opened = await self._after(loaded) if loaded is not None and loaded.state.ours else None
            if opened is not None:
                return opened
        return await self._from_versions(loaded)

    async def at(self, version: int, broken: Broken, *, whole: bool) -> SnapshotTracker:
        """The table at a version of the past, from the nearest state at or below it.

        Where the log is `whole`, from version 0 on, other writers' states are not needed: they may omit a commit.
        """
        loaded = await self._states.newest(broken, at_most=version, ours=whole)
        small = Window(versions=1, snapshots=1)
        tracker = SnapshotTracker(empty() if loaded is None else snapshot_of(loaded.state), small)
        await self._log.apply(tracker, list(range(tracker.head.version + 1, version + 1)))
        if tracker.head.version != version:
            missing = self._log.paths.version(tracker.head.version + 1)
            raise CorruptObject(missing, "the version file is missing and no state covers it")
        return tracker

    async def _after(self, loaded: Loaded) -> Opened | None:
        """A state of ours and what follows it; None when versions in between were cleaned away."""
        started = self._world.monotonic()
        newer = await self._log.newer_than(loaded.ref.version)
        floor = await self._log.floor()
        if newer.gap or floor > loaded.ref.version:
            return None
        tracker = self._tracker(loaded)
        tracker.observed_at = started
        await self._log.apply(tracker, newer.versions)
        base = Base(loaded.ref, loaded.state.ours, loaded.manifest)
        return Opened(tracker, floor, floor, base, loaded.ref.kind.value)

    async def _from_versions(self, foreign: Loaded | None) -> Opened:
        """Everything from version 0; for a log whose later versions are only in states, from the newest of those."""
        started = self._world.monotonic()
        versions = await self._log.all_versions()
        # Read after the versions: what lies below the floor does not exist, even where an object is left or came back.
        floor = await self._log.floor()
        versions = [version for version in versions if version >= floor]
        newest_state = -1 if foreign is None else foreign.ref.version
        if not versions and foreign is None:
            raise LogMissing(self._log.paths.root)
        if versions and versions[0] > 0 and (purged := await self._log.purged(versions[-1], self._window)) is not None:
            purged.observed_at = started
            return Opened(purged, floor, versions[-1], None, "replay")
        if versions and versions[0] == 0 and versions[-1] != len(versions) - 1:
            missing = next(number for number in range(len(versions)) if versions[number] != number)
            if await self._log.exists(missing):
                # It came while the listing was made, so what is before it was the whole log when the listing began.
                versions = versions[:missing]
        whole = bool(versions) and versions[0] == 0 and versions[-1] == len(versions) - 1
        if whole and versions[-1] >= newest_state:
            tracker = SnapshotTracker(empty(), self._window)
            tracker.observed_at = started
            await self._log.apply(tracker, versions)
            return Opened(tracker, floor, 0, None, "replay")
        return await self._from_foreign(foreign, versions, floor, started)

    async def _from_foreign(self, foreign: Loaded | None, versions: list[int], floor: int, started: float) -> Opened:
        after = [] if foreign is None else [version for version in versions if version > foreign.ref.version]
        if foreign is None or after != list(range(foreign.ref.version + 1, foreign.ref.version + 1 + len(after))):
            expected = range(floor, versions[-1] + 1) if versions else range(1)
            missing = next((number for number in expected if number not in set(versions)), 0)
            raise CorruptObject(self._log.paths.version(missing), "the version file is missing and no state covers it")
        tracker = self._tracker(foreign)
        tracker.observed_at = started
        await self._log.apply(tracker, after)
        base = Base(foreign.ref, False, foreign.manifest)
        return Opened(tracker, floor, foreign.ref.version, base, foreign.ref.kind.value)

    def _tracker(self, loaded: Loaded) -> SnapshotTracker:
        tracker = SnapshotTracker(snapshot_of(loaded.state), self._window)
        tracker.foreign_times.update(loaded.state.facts.version_timestamps)
        if loaded.ids is not None:
            tracker.ids.add_run(sealed(loaded.ids))
        return tracker


def sealed(run: CommitIdRun) -> SealedRun:
    """The ids of a state as the tracker keeps them."""
    return SealedRun(run.hashes, run.versions, run.seqs, run.newest_ms)
