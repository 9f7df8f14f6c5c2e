"""Opening a log: the newest state that can be believed, then the versions after it; else everything from version 0.

Whatever goes wrong with a state costs time, never a version: older states are tried, then the log itself. Only when
none of them reaches the floor is the table unreadable, and the error names what is missing.
"""

from __future__ import annotations

import asyncio
import dataclasses

from msgspec import UNSET

from tarnlog_server.codec.ids_file import CommitIdRun
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.dedupe import SealedRun
from tarnlog_server.core.replay import Snapshot, empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.version_record import PutId
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.meanwhile import Meanwhile
from tarnlog_server.usecases.state_read import Broken, Loaded, StateRef, States
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tarnlog_server.usecases.table_log import Newer, TableLog

ONE_VERSION = Window(versions=1, snapshots=1)
"""What is kept of the way to a version of the past by those who only want to see it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Base:
    """The state that a table was opened from, or that was written last: what the next one may build on."""

    ref: StateRef
    ours: bool
    manifest: StateManifest | None
    num_files: int
    total_bytes: int
    """What the state's own version counts, which in another writer's manifest need not be right."""

    @classmethod
    def of(cls, ref: StateRef, snapshot: Snapshot, *, ours: bool, manifest: StateManifest | None = None) -> Base:
        """The state that `snapshot` was read from or written to."""
        return cls(ref, ours, manifest, snapshot.num_files, snapshot.total_bytes)


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
    first_file: int = 0
    """From which version on every version has its file. What is before is only in another writer's states."""
    behind: str | None = None
    """The object without which the newest version cannot be read, where that one is only in a state."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """What lies in a log that no state of ours opens."""

    versions: list[int]
    refs: list[StateRef]
    ahead: int
    """The newest version that a state, or the hint to one, speaks of."""
    floor: int
    started: float

    @property
    def run_start(self) -> int:
        """Where the last versions without a gap begin."""
        start = len(self.versions) - 1
        while start > 0 and self.versions[start - 1] == self.versions[start] - 1:
            start -= 1
        return self.versions[start] if self.versions else 0

    def usable(self) -> list[StateRef]:
        """Other writers' states that lead to the newest version, best first.

        Where versions are only in states, the newest state tells most. Where version files go further, they are the
        commits and a state may omit one: the oldest state that they follow on leaves the most to them.
        """
        last = self.versions[-1] if self.versions else -1
        start = self.run_start - 1 if self.versions else -1
        above = [ref for ref in self.refs if ref.version > last]
        within = [ref for ref in self.refs if start <= ref.version <= last]
        if self.ahead > last:
            return above if start < 0 else [*above, *reversed(within)]
        return within[::-1]


class LogOpener:
    """Opens one table's log, at its head or at a version of the past."""

    def __init__(self, log: TableLog, states: States, world: World, window: Window) -> None:
        self._log = log
        self._states = states
        self._world = world
        self._window = window

    async def open(self, broken: Broken) -> Opened:
        """The log up to its head. Raises CorruptObject, StoreError.

        From a state it costs that state, one LIST and the versions since; without one, every version. The state that
        the hint names takes three round trips. A version that is missing is corruption, never the head.
        """
        broken = _told_once(broken)
        seen = 0
        while True:
            passed: list[StateRef] = []
            try:
                opened = await self._opened(_noted(broken, passed))
                await self._check_newest(opened, passed)
                return opened
            except (CorruptObject, ObjectMissing):
                # A cleanup may have built a state and published its floor after states were listed, and deleted
                # versions after these were listed: look once more.
                floor = await self._log.floor()
                if floor <= seen:
                    raise
                seen = floor

    async def _check_newest(self, opened: Opened, passed: list[StateRef]) -> None:
        """CorruptObject when a native state proves that a version existed which is newer than the head that was found.

        A state is written after its version. I/O: the states that were passed over and are newer, which are rare.
        """
        head = opened.tracker.head.version
        for ref in passed:
            if ref.version > head and await self._states.is_native(ref) and not await self._log.exists(ref.version):
                key = self._log.paths.version(ref.version)
                raise CorruptObject(key, f"the version file is missing, although a state of {ref.version} exists")

    async def _opened(self, broken: Broken) -> Opened:
        refs: list[StateRef] = []
        tried: list[StateRef] = []
        opened = await self._at_hint(broken, tried)
        if opened is not None:
            return opened
        loaded = await self._states.newest(broken, ours=True, listed=refs, known_broken=tried)
        for _ in range(2):
            if loaded is None:
                break
            opened = await self._after(loaded)
            if opened is not None:
                return opened
            # The log moved on under us: a newer state must be there by now.
            loaded = await self._states.newest(broken, ours=True, listed=refs)
        # States were listed before versions: a writer makes them in the other order, so none is ahead of its version.
        return await self._from_versions(refs if loaded is None else await self._states.all(), broken)

    async def at(
        self, version: int, broken: Broken, *, first_file: int, window: Window = ONE_VERSION
    ) -> tuple[SnapshotTracker, Base | None]:
        """The table at a version of the past, from the nearest state of ours at or below it; and that state.

        Other writers' states may omit a commit, so only the one that the first version file follows on is used.
        """
        loaded = await self._states.newest(broken, at_most=version, ours=True)
        if loaded is None and first_file > 0:
            refs = [ref for ref in await self._states.all() if ref.version == first_file - 1]
            loaded = await self._first_believed(refs, broken)
        tracker = SnapshotTracker(empty(), window) if loaded is None else self._tracker(loaded, window)
        base = None if loaded is None else _base(loaded, tracker, ours=loaded.state.ours)
        try:
            await self._log.apply(tracker, list(range(tracker.head.version + 1, version + 1)))
        except ObjectMissing as error:
            missing_version, floor = self._log.paths.parse_version(error.key), await self._log.floor()
            if missing_version is None or version < floor:
                raise
            if missing_version < floor:
                raise self._no_way_from(floor) from None
            raise self._log.lost(missing_version) from None
        if tracker.head.version != version:
            missing = self._log.paths.version(tracker.head.version + 1)
            raise CorruptObject(missing, "the version file is missing and no state covers it")
        return tracker, base

    async def _at_hint(self, broken: Broken, tried: list[StateRef]) -> Opened | None:
        """From the state that the hint names, read while the log is asked what follows it.

        None when that is not the state to open from; `tried` then gets it if another try would fail in the same way.
        A state tells the same whenever it is read. That no version is missed rests on the listing of the log alone, as
        in `TableLog.newer_than_state`: the floor is read after it.
        """
        ref = await self._states.hinted()
        if ref is None:
            return None
        started = self._world.monotonic()
        told: list[str] = []
        believing = self._states.believed(ref, lambda _, reason: told.append(reason), ours=True)
        async with Meanwhile(believing, near=self._log.near) as reading:
            newer, better, hole = Newer([]), False, None
            try:
                newer = await self._log.newer_than(ref.version)
            except CorruptObject as error:
                hole = error
            if newer.versions or hole is not None:
                # Where a newer state covers the missing version, the head does not depend on it.
                states, floor = await asyncio.gather(self._states.newer(ref.version), self._log.floor())
                better = any(not state.foreign for state in states)
            else:
                floor = await self._log.floor()
            if better or newer.gap or floor > ref.version:
                # A cleanup may be taking this state away: what was wrong with it is not worth telling.
                return None
            loaded = await reading
        for reason in told:
            broken(ref, reason)
        if loaded is None:
            tried.append(ref)
            return None
        if hole is not None:
            raise hole
        return await self._followed(loaded, newer, floor, started)

    async def _after(self, loaded: Loaded) -> Opened | None:
        """A state of ours and what follows it; None when versions in between were cleaned away."""
        started = self._world.monotonic()
        newer, floor = await self._log.newer_than_state(loaded.ref.version)
        if newer.gap or floor > loaded.ref.version:
            return None
        return await self._followed(loaded, newer, floor, started)

    async def _followed(self, loaded: Loaded, newer: Newer, floor: int, started: float) -> Opened:
        tracker = self._tracker(loaded)
        tracker.observed_at = started
        base = _base(loaded, tracker, ours=loaded.state.ours)
        await self._log.apply(tracker, newer.versions)
        first = tracker.first_file()
        return Opened(tracker, floor, max(floor, first), base, loaded.ref.kind.value, first)

    async def _from_versions(self, refs: list[StateRef], broken: Broken) -> Opened:
        """Everything from version 0; for a log that does not start there, from the state that its versions follow."""
        started = self._world.monotonic()
        hint = await self._states.hint()
        versions = await self._log.all_versions()
        # Read after the versions: what lies below the floor does not exist, even where an object is left or came back.
        floor = await self._log.floor()
        if versions and versions[-1] < floor:
            detail = f"it names {floor} as the oldest version, but the newest version is {versions[-1]}"
            raise CorruptObject(self._log.paths.floor(floor), detail)
        versions = [version for version in versions if version >= floor]
        if not versions and not refs:
            raise CorruptObject(self._log.paths.version(0), "the version file is missing, as is all of the log")
        if versions and versions[0] > 0 and (purged := await self._log.purged(versions[-1], self._window)) is not None:
            purged.observed_at = started
            return Opened(purged, floor, versions[-1], None, "replay")
        if versions and versions[0] == 0 and versions[-1] != len(versions) - 1:
            missing = next(number for number in range(len(versions)) if versions[number] != number)
            if await self._log.exists(missing):
                # It came while the listing was made, so what is before it was the whole log when the listing began.
                versions = versions[:missing]
        whole = bool(versions) and versions[0] == 0 and versions[-1] == len(versions) - 1
        ahead = max([-1 if hint is None else hint.version, *(ref.version for ref in refs)])
        replayed: Opened | None = None
        if whole:
            replayed = await self._replayed(versions, floor, started)
            own = len(replayed.tracker.foreign_times) < len(versions)
            # In a log that is ours, or was taken over, only version files count.
            if own or versions[-1] >= ahead:
                return replayed
        return await self._from_foreign(_Found(versions, refs, ahead, floor, started), replayed, broken)

    async def _replayed(self, versions: list[int], floor: int, started: float) -> Opened:
        tracker = SnapshotTracker(empty(), self._window)
        tracker.observed_at = started
        await self._log.apply(tracker, versions)
        return Opened(tracker, floor, 0, None, "replay")

    async def _from_foreign(self, found: _Found, replayed: Opened | None, broken: Broken) -> Opened:
        """From another writer's state, and the versions after it; else what replay gives, if it gives anything."""
        versions = found.versions
        first = await self._log.read(found.run_start) if versions else None
        ours = first is not None and first.put_id is not None and replayed is None
        adopted = first is not None and ours and first.adopted_from == found.run_start - 1
        if ours:
            refs = [ref for ref in found.refs if adopted and ref.version == found.run_start - 1]
        else:
            refs = found.usable()
        loaded = await self._first_believed(refs, broken)
        if loaded is None:
            if replayed is not None:
                return dataclasses.replace(replayed, behind=self._newest_key(found))
            expected = range(found.floor, versions[-1] + 1) if versions else range(1)
            missing = next((number for number in expected if number not in set(versions)), 0)
            if ours:
                # What is before may be in another writer's states alone.
                missing = max(found.run_start - 1, 0)
            if missing < found.floor:
                raise self._no_way_from(found.floor)
            raise CorruptObject(self._log.paths.version(missing), "the version file is missing and no state covers it")
        tracker = self._tracker(loaded, put_id=await self._put_id(loaded.ref.version))
        tracker.observed_at = found.started
        base = _base(loaded, tracker, ours=False)
        await self._log.apply(tracker, [version for version in versions if version > loaded.ref.version])
        oldest = found.run_start if ours else loaded.ref.version
        behind = self._newest_key(found) if not ours and tracker.head.version < found.ahead else None
        return Opened(tracker, found.floor, oldest, base, loaded.ref.kind.value, tracker.first_file(), behind)

    async def _first_believed(self, refs: list[StateRef], broken: Broken) -> Loaded | None:
        for ref in refs:
            loaded = await self._states.believed(ref, broken)
            if loaded is not None:
                return loaded
        return None

    def _no_way_from(self, floor: int) -> CorruptObject:
        """The versions below a floor are gone for good, so its state is what has to come back."""
        key = self._log.paths.state_manifest(floor)
        reason = f"versions below {floor} were cleaned up, and this state, or ids.bin or a manifest of it, is damaged"
        return CorruptObject(key, reason)

    def _newest_key(self, found: _Found) -> str:
        """What holds the newest version of a log whose newest version is only in a state."""
        newest = next((ref for ref in found.refs if ref.version == found.ahead), None)
        return self._log.paths.last_checkpoint if newest is None else self._states.key_of(newest)

    async def _put_id(self, version: int) -> PutId:
        """The identity of a version that is known from another writer's state: mostly it has no file."""
        try:
            return (await self._log.read(version)).put_id
        except ObjectMissing:
            return None
        except CorruptObject:
            return UNSET

    def _tracker(self, loaded: Loaded, window: Window | None = None, put_id: PutId = UNSET) -> SnapshotTracker:
        snapshot = snapshot_of(loaded.state)
        if not loaded.state.ours:
            snapshot = dataclasses.replace(snapshot, put_id=put_id)
        tracker = SnapshotTracker(snapshot, window or self._window)
        tracker.foreign_times.update(loaded.state.facts.version_timestamps)
        tracker.foreign_base = not loaded.state.ours
        tracker.adopted_from = loaded.state.facts.adopted_from
        if loaded.ids is not None:
            tracker.ids.add_run(sealed(loaded.ids), loaded.ids.oldest_ms)
        return tracker


def _base(loaded: Loaded, tracker: SnapshotTracker, *, ours: bool) -> Base:
    """The state that a tracker begins with, before a version is applied to it."""
    return Base.of(loaded.ref, tracker.head, ours=ours, manifest=loaded.manifest)


def _noted(broken: Broken, passed: list[StateRef]) -> Broken:
    """The same, and each state that is passed over is added to `passed`."""

    def tell(ref: StateRef, reason: str) -> None:
        passed.append(ref)
        broken(ref, reason)

    return tell


def _told_once(broken: Broken) -> Broken:
    """A state that two searches came across is reported by the first."""
    told: set[tuple[int, str]] = set()

    def tell(ref: StateRef, reason: str) -> None:
        if (ref.version, ref.kind.value) not in told:
            told.add((ref.version, ref.kind.value))
            broken(ref, reason)

    return tell


def sealed(run: CommitIdRun) -> SealedRun:
    """The ids of a state as the tracker keeps them."""
    return SealedRun(run.hashes, run.versions, run.seqs, run.newest_ms)
