"""A table this replica has open: what it knows of the log, kept fresh, and the committer that extends it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject, ErasedVersion
from tarnlog_server.core.dedupe import Known
from tarnlog_server.core.protocol_gate import unsupported_for_reading
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.table_settings import setting
from tarnlog_server.core.version_record import PutId, VersionRecord
from tarnlog_server.ports.object_store import ObjectMissing, StoreError, StoreRefused
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.foreign_writers import ForeignWriters
from tarnlog_server.usecases.lanes import Lanes
from tarnlog_server.usecases.load_times import LoadTimes
from tarnlog_server.usecases.open_log import Base, LogOpener, Opened
from tarnlog_server.usecases.pace import Pace
from tarnlog_server.usecases.state_read import Kind, StateRef, States
from tarnlog_server.usecases.table_log import Newer, TableLog

_log = logging.getLogger(__name__)
QUARANTINE_SECONDS = 5.0
"""How long a broken log is not read again: a replay is too dear to repeat for every request."""


def storage_problem(error: StoreError) -> ProblemError:
    """What a client is told when the store does not do its part."""
    if isinstance(error, StoreRefused):
        return ProblemError("storage-refused", f"the object store refused: {error}", retry_after=5.0)
    return ProblemError("storage-unavailable", "the object store does not answer; try again", retry_after=1.0)


def corrupt_problem(table: TableName, error: CorruptObject) -> ProblemError:
    """A table whose log cannot be read is closed until the object is restored; others go on."""
    return ProblemError(
        "log-corrupt",
        f"table {table} cannot be served: {error}; restore that object from a copy, the table opens again by itself",
        object=error.key,
    )


def foreign_writer_problem(table: TableName, key: str) -> ProblemError:
    """Other software still writes to a log that was taken over: whoever goes on would lose its versions."""
    return ProblemError(
        "foreign-writer-detected",
        f"other software wrote {key} into the log of table {table}, without a version file: nothing is committed until "
        "that writer has stopped, the files of its state are committed here, and its object is moved out of the log",
        object=key,
    )


def expired(oldest: int) -> ProblemError:
    """The answer for a version from before the oldest one kept."""
    detail = f"the oldest version kept is {oldest}; ask for that one or a newer one"
    return ProblemError("version-expired", detail, oldestVersion=oldest)


class LiveTable:
    """One open table. All changes to what it knows happen on the event loop; readers take snapshots."""

    def __init__(
        self,
        name: TableName,
        location: str,
        log: TableLog,
        world: World,
        telemetry: Telemetry | None = None,
        *,
        window: Window | None = None,
        read_only: bool = False,
        lanes: Lanes | None = None,
        changed: Callable[[LiveTable], None] | None = None,
        loads: LoadTimes | None = None,
    ) -> None:
        self.name = name
        self.location = location
        self.log = log
        self.read_only = read_only
        self.lanes = lanes or Lanes()
        self.states = States(log, world)
        self.base: Base | None = None
        """The newest state of this table that this replica knows."""
        self.unreadable_below = 0
        """Commits planned on versions below cannot be checked any more: what followed them was cleaned away."""
        self.purged = False
        """Whether it was dropped and purged here: what the purge had to leave can go later."""
        self.floor = 0
        self.oldest = 0
        """The oldest version that can be read."""
        self.first_file = 0
        """From which version on there are version files: before it, a table is only in another writer's states."""
        self.broken_states = False
        """Whether a state was passed over: then one from scratch is due, which readers find instead."""
        self._known_broken: set[tuple[int, Kind]] = set()
        self.behind: str | None = None
        """The object that holds a version newer than the head, and cannot be read."""
        self._foreign_writers = ForeignWriters(log)
        self._foreign_trace: str | None = None
        self._traced_at = float("-inf")
        window = dataclasses.replace(window or Window(), defaults=log.defaults)
        self._opener = LogOpener(log, self.states, world, window)
        self._world = world
        self._telemetry = telemetry or Telemetry()
        self._loads = loads or LoadTimes()
        self._tracker: SnapshotTracker | None = None
        self._quarantine: tuple[float, ProblemError] | None = None
        self._newest_read: tuple[int, PutId, str | None] | None = None
        """The newest version that was ever read here, its identity, and the table's id: a log never goes back."""
        self._loaded_at = float("-inf")
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._tell_changed = changed
        """Told after each change of the head, inside the commit: it must cost next to nothing."""
        self._settings_of: MetaData | None = None
        self._settings: dict[str, Any] = {}
        """What was asked of the settings of this metaData: every commit asks several times."""

    @property
    def tracker(self) -> SnapshotTracker:
        if self._tracker is None:
            # Whoever held the table while it was put into quarantine learns why.
            raise self._quarantine[1] if self._quarantine is not None else RuntimeError("open the table first")
        return self._tracker

    @property
    def opened(self) -> bool:
        """Whether its log was read, and not found broken since."""
        return self._tracker is not None

    @property
    def head(self) -> Snapshot:
        return self.tracker.head

    def setting(self, name: str) -> Any:
        """A table setting: the property if it is set, else the service's setting, else its default."""
        metadata = self._tracker.head.metadata if self._tracker is not None else None
        if metadata is not self._settings_of:
            self._settings_of, self._settings = metadata, {}
        found = self._settings.get(name)
        if found is None:
            configuration = metadata.configuration if metadata is not None else {}
            found = self._settings[name] = setting(configuration, name, self.log.defaults)
        return found

    def pace(self) -> Pace:
        """For long work on this table: it leaves most of the time to commits while versions are added."""
        return Pace(
            self._world,
            lambda: self._tracker.head.version if self._tracker is not None else None,
            self.lanes.checkpointing,
        )

    async def open(self) -> None:
        """Load the log. Raises ProblemError."""
        async with self._lock:
            if self._tracker is None:
                await self._load()

    async def refresh(self, max_age: float) -> Snapshot:
        """The head, known to be the head at most `max_age` seconds ago. Raises ProblemError.

        Costs nothing while fresh, else one LIST (and a GET for each new version); callers share it.
        """
        wanted = self._world.monotonic() - max_age
        if self._tracker is None or self._tracker.observed_at < wanted:
            async with self._lock:
                if self._tracker is None:
                    await self._load()
                elif self._tracker.observed_at < wanted:
                    await self._look()
        self._check_readable(self.tracker.head)
        return self.tracker.head

    async def reload(self) -> None:
        """Forget everything and read the log again: what we knew is too old to go on from."""
        async with self._lock:
            await self._load()

    def advance(self, record: VersionRecord, observed_at: float) -> None:
        """Apply a version that is known to be in the log; one that is already applied is fine."""
        tracker = self.tracker
        if record.version == tracker.head.version + 1:
            tracker.advance(record)
            self._announce()
        if record.version == tracker.head.version:
            tracker.observed_at = max(tracker.observed_at, observed_at)

    async def catch_up(self) -> None:
        """Apply the versions after the head, of which the next one exists. Raises ProblemError.

        I/O: 1 LIST and a GET for each new version. Reading slot after slot until one is empty would cost as much, and
        would take a missing version for the end of the log.
        """
        async with self._lock:
            if self._tracker is None:
                await self._load()
            else:
                await self._look()

    async def read_version(self, version: int) -> VersionRecord:
        """A version at or below the head, from storage. Raises ProblemError `version-expired`, `log-corrupt`.

        I/O: 1 GET; where it is missing, a LIST of the floor. Damage closes the table only where its head depends on it.
        """
        with self.translated(close=False):
            try:
                return await self.log.read(version)
            except ObjectMissing:
                if version < await self.look_at_floor():
                    raise expired(self.oldest) from None
                damage = self.log.lost(version)
            except CorruptObject as error:
                if isinstance(error, ErasedVersion) and version < await self.look_at_floor():
                    raise expired(self.oldest) from None
                damage = error
        raise await self.damaged(version, damage)

    async def damaged(self, version: int, damage: CorruptObject) -> ProblemError:
        """The answer for a damaged version that a read met. Raises it where the head depends on that version.

        Another replica may have written a state that covers it, so the table is read again before it is closed.
        """
        if self.needs(version):
            async with self._lock:
                if self._tracker is None or self.needs(version):
                    await self._load()
        return corrupt_problem(self.name, damage)

    async def _ids_of(self, version: int) -> VersionRecord:
        """A version for the sake of its commit ids, which an erase keeps. Raises as `read_version`."""
        try:
            with self.translated(close=False):
                return await self.log.read(version)
        except ProblemError as problem:
            if isinstance(problem.__cause__, ErasedVersion):
                return problem.__cause__.record
        return await self.read_version(version)

    def needs(self, version: int) -> bool:
        """Whether the head can be read again only with this version's file: no native state covers it."""
        return self.base is None or not self.base.ours or version >= self.base.ref.version

    async def find_sealed(self, commit_id: str) -> Known | None:
        """Where an id is that left the recent ones, verified in its version file. Raises ProblemError.

        None holds until the generation of the known ids changes.
        """
        while True:
            generation = self.tracker.ids.generation
            for version, seq in self.tracker.ids.candidates(commit_id):
                try:
                    record = await self._ids_of(version)
                except ProblemError as problem:
                    if problem.slug != "version-expired":
                        raise
                    detail = f"commit {commit_id} is in version {version}, which was deleted by a cleanup; look in "
                    raise ProblemError("commit-id-expired", detail + "the history, then make a new id") from problem
                for sub in record.sub_commits:
                    if sub.seq == seq and sub.commit_id == commit_id:
                        return Known(version, seq, record.timestamp, sub.request_hash)
            if self.tracker.ids.generation is generation:
                return None

    async def past(self, version: int) -> SnapshotTracker:
        """The table as it was at a version, on its own: from the nearest state below it. Raises ProblemError.

        A broken object of the past does not close the table: its head stands on newer ones.
        """
        with self.translated(close=False):
            return (await self._opener.at(version, self._state_broken, first_file=self.first_file))[0]

    async def rebuilt(self, version: int) -> tuple[SnapshotTracker, Base | None]:
        """The same with all that a state of that version needs, and the state it was made from.

        Raises CorruptObject, StoreError: its caller knows what a version that cannot be rebuilt means.
        """
        window = Window(snapshots=1, defaults=self.log.defaults)
        return await self._opener.at(version, self._state_broken, first_file=self.first_file, window=window)

    async def look_at_floor(self) -> int:
        """The floor as it is now: another replica may have moved it. Costs a LIST. Raises StoreError."""
        self.raise_floor(await self.log.floor())
        return self.floor

    def raise_floor(self, floor: int) -> None:
        """What lies below the floor does not exist. A floor never goes back."""
        self.floor = max(self.floor, floor)
        self.oldest = max(self.oldest, floor)
        self.first_file = max(self.first_file, floor)

    async def foreign_writer(self, max_age: float) -> ProblemError | None:
        """Why nothing may be written: a trace of another writer, looked for at most `max_age` seconds ago.

        A store that does not answer says nothing: the next look is soon.
        """
        now = self._world.monotonic()
        if not self.tracker.is_ours or self.tracker.adopted_from is None:
            # All of it is other writers', until it is taken over; or none of it ever was, and nobody else knows it.
            return None
        if now - self._traced_at > (max_age if self._foreign_trace is None else min(max_age, QUARANTINE_SECONDS)):
            adopted = self.tracker.adopted_from
            with contextlib.suppress(StoreError):
                found = await self._foreign_writers.trace(max(self.floor - 1, adopted))
                if found is not None and found != self._foreign_trace:
                    _log.error("table %s: another writer left %s; commits are refused", self.name, found)
                    self._telemetry.foreign_writer()
                self._foreign_trace, self._traced_at = found, now
        return None if self._foreign_trace is None else foreign_writer_problem(self.name, self._foreign_trace)

    async def wait_for_change(self, after_version: int, timeout: float) -> None:
        """Return when the head is above a version, or after `timeout` seconds."""
        if self._tracker is not None and self.head.version > after_version:
            return
        event = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await event.wait()

    async def _load(self) -> None:
        if self._quarantine is not None and self._world.monotonic() - self._quarantine[0] < QUARANTINE_SECONDS:
            raise self._quarantine[1]
        self._remember_newest()
        with self.translated(close=True):
            started = self._world.monotonic()
            opened = await self._opener.open(self._state_broken)
            self._check_still_there(opened)
            spent = self._world.monotonic() - started
            self._telemetry.table_opened(opened.source, spent)
            self._loads.note(opened.source, spent)
        tracker = opened.tracker
        self._check_readable(tracker.head)
        self._tracker = tracker
        self.floor, self.oldest, self.base = opened.floor, opened.oldest, opened.base
        self._loaded_at = self._world.monotonic()
        self.first_file, self.behind = max(opened.floor, opened.first_file), opened.behind
        self._announce()

    def _remember_newest(self) -> None:
        if self._tracker is not None and self._tracker.head_has_file:
            head = self._tracker.head
            self._newest_read = (head.version, head.put_id, head.table_id)

    def _check_still_there(self, opened: Opened) -> None:
        """CorruptObject when the log does not reach what was read of it before, or has another file there."""
        if self._newest_read is None:
            return
        version, put_id, table_id = self._newest_read
        head = opened.tracker.head
        if None not in (head.table_id, table_id) and head.table_id != table_id:
            return  # another table was created at this place
        advice = "if an older copy was restored on purpose, restart the service"
        if head.version < version and opened.floor <= version:
            key = self.log.paths.version(head.version + 1)
            raise CorruptObject(key, f"the version file is missing, although {version} was read before; {advice}")
        at = opened.tracker.snapshot_at(version)
        if at is not None and UNSET not in (at.put_id, put_id) and at.put_id != put_id:
            key = self.log.paths.version(version)
            raise CorruptObject(key, f"it is not the file that was read before in this place; {advice}")

    def _state_broken(self, ref: StateRef, reason: str) -> None:
        """A state that cannot be believed costs a longer way to the same answer; the next one replaces it."""
        _log.warning("table %s: the state of version %s is passed over: %s", self.name, ref.version, reason)
        self._telemetry.state_broken(ref.kind.value)
        if (ref.version, ref.kind) not in self._known_broken:
            # Each only once: one that lies in the way of time travel must not be repaired for again and again.
            self._known_broken.add((ref.version, ref.kind))
            self.broken_states = True

    async def _look(self) -> None:
        tracker = self.tracker
        with self.translated():
            started = self._world.monotonic()
            # Other writers may tell new versions by states alone. States first: each comes after its version.
            ahead = await self.states.newest_after(tracker.head.version) if self.read_only else -1
            try:
                newer = await self.log.newer_than(tracker.head.version, has_file=tracker.head_has_file)
            except CorruptObject:
                # A newer state may cover what is missing: then the head does not depend on it.
                newer = Newer([], gap=True)
            if newer.gap or self.floor > tracker.head.version + len(newer.versions):
                await self._load()
                return
            if ahead > tracker.head.version + len(newer.versions) and self._worth_loading(started):
                await self._load()
                return
            try:
                await self.log.apply(tracker, newer.versions)
            except (CorruptObject, ObjectMissing):
                # Damage, or this replica is behind an erase, or behind what a cleanup deletes just now: the log is read
                # again, from its newest state.
                await self._load()
                return
            if newer.versions:
                self._announce()
            tracker.observed_at = max(tracker.observed_at, started)

    def _worth_loading(self, now: float) -> bool:
        """A newest version that could not be read is not tried again at once."""
        return self.behind is None or now - self._loaded_at >= QUARANTINE_SECONDS

    def _check_readable(self, head: Snapshot) -> None:
        """Another writer may raise the protocol at any version: from there on nothing is answered from the log."""
        lacking = unsupported_for_reading(head.protocol)
        if lacking is not None:
            raise ProblemError("protocol-not-supported", f"table {self.name} needs {lacking}")

    def _announce(self) -> None:
        self.tracker.forget_expired_ids(self._world.now_ms())
        self._changed.set()
        self._changed = asyncio.Event()
        if self._tell_changed is not None:
            self._tell_changed(self)

    @contextlib.contextmanager
    def translated(self, *, close: bool | None = None) -> Iterator[None]:
        """Turn what storage and codec raise into problems a client understands.

        Corruption closes the table, unless (with None) the object is a version file that the head does not depend on:
        damage of the past belongs to the read that met it.
        """
        try:
            yield
        except CorruptObject as error:
            problem = corrupt_problem(self.name, error)
            version = self.log.paths.parse_version(error.key)
            if close or (close is None and (self._tracker is None or version is None or self.needs(version))):
                self._remember_newest()
                self._tracker = None
                self._quarantine = (self._world.monotonic(), problem)
            raise problem from error
        except ObjectMissing as error:
            version = self.log.paths.parse_version(error.key)
            if version is not None and self._tracker is not None and version >= self._tracker.head.version:
                # No cleanup deletes the newest version.
                raise corrupt_problem(self.name, self.log.lost(version)) from error
            raise ProblemError(
                "storage-unavailable", f"{error.key} disappeared while reading", retry_after=1.0
            ) from error
        except StoreError as error:
            raise storage_problem(error) from error
