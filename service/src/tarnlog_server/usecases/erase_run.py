"""One erase of one table: what versions up to now removed becomes unreadable, in an order that may stop anywhere.

1. List what the log consists of, and collect the paths that its versions removed.
2. Commit an ERASE: the history records who asked for it. From that version on no replica keeps removes in its states,
   and none builds on an older state.
3. Write a state of that version which shares nothing with older ones, and check it whole.
4. Publish the floor there. From here on everything below does not exist for any reader.
5. Delete the removed data files. The versions that name them are still there, so a run that was interrupted finds the
   rest when it is started again.
6. Delete checkpoints, states, manifests and copies of damaged ones that were listed in step 1.
7. Delete the versions below the floor; those that are young are replaced by the ids of their commits. A replica that is
   behind cannot take their slots, and a commit that is sent again is recognised.

What was written after step 1 belongs to the versions from the ERASE on, or to a state that another replica began
before: such a state is below the floor, and the next cleanup or erase deletes it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from tarnlog.protocol.actions import Remove
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject, ErasedVersion, encode_erased
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.vacuum_plan import retention
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing, OutcomeUnknown
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.anchor import check_anchor
from tarnlog_server.usecases.catalog import SETTLE_ATTEMPTS
from tarnlog_server.usecases.deleting import Deleting
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.log_listing import Directories, listed
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.purge import CLOCK_MARGIN_MS
from tarnlog_server.usecases.slots import FLOOR_CHECK_AFTER_SECONDS
from tarnlog_server.usecases.table_log import LATEST_MS, PARALLEL_READS
from tarnlog_server.usecases.vacuum_run import VacuumRun

Commit = Callable[[dict[str, Any]], Awaitable[int]]
"""Commits an ERASE with these parameters; its version."""
Rewrite = Callable[[int], Awaitable[None]]
"""Writes a state of a version that shares nothing with older ones."""


@dataclasses.dataclass(slots=True)
class LogObjects:
    """What a log consisted of before the erase."""

    versions: list[tuple[int, ObjectInfo]] = dataclasses.field(default_factory=list)
    checkpoints: list[str] = dataclasses.field(default_factory=list)
    states: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    manifests: list[str] = dataclasses.field(default_factory=list)
    damaged: list[str] = dataclasses.field(default_factory=list)


class EraseRun:
    """One run. Counts are true at any time, so that a run that fails can still report what it did."""

    def __init__(self, live: LiveTable, world: World, *, dry_run: bool, progress: Progress) -> None:
        self.version: int | None = None
        """The version of the ERASE."""
        self.versions = self.states = self.checkpoints = self.manifests = 0
        self.failures = 0
        self.files: VacuumRun | None = None
        self._live = live
        self._world = world
        self._store = live.log.store
        self._paths = live.log.paths
        self._dry_run = dry_run
        self._progress = progress
        self._deleting = Deleting(self._store, stop_at_failure=False, progress=progress)

    async def run(self, commit: Commit, rewrite: Rewrite) -> None:
        """Raises StoreError, CorruptObject, ProblemError.

        I/O: 1 LIST for each 1000 objects of the log and of the folder, 1 GET for each version, a state of the whole
        table, the deletions.
        """
        found = await self._listed()
        removed = await self._removed(found)
        head = self._live.head.version
        if self._dry_run:
            self._plan(found)
            await self._erase_files(found, removed, head, dry_run=True)
            return
        planned = await self._erase_files(found, removed, head, dry_run=True)
        self.version = await commit(
            {"versions": len(found.versions), "files": planned.found, "bytes": planned.found_bytes}
        )
        removed |= await self._meanwhile(found, self.version)
        await rewrite(self.version)
        await check_anchor(self._live, self._world, self.version, self._progress)
        await self._publish(self.version)
        files = await self._erase_files(found, removed, self.version, dry_run=False)
        await self._delete_states(found, self.version)
        # The next run has to find what is withheld for now: the version that removed it stays until then.
        needed = {removed[key] for key in files.waiting if key in removed}
        await self._erase_versions(found, self.version, needed)
        self.failures = self._deleting.failures

    def _plan(self, found: LogObjects) -> None:
        self.versions, self.states = len(found.versions), len(found.states)
        self.checkpoints, self.manifests = len(found.checkpoints), len(found.manifests)

    async def _listed(self) -> LogObjects:
        found, paths = LogObjects(), self._paths
        async for info in listed(self._store, paths.root):
            key = info.key
            if (version := paths.parse_version(key)) is not None:
                found.versions.append((version, info))
            elif (state := paths.parse_state(key)) is not None:
                found.states.setdefault(state, []).append(key)
            elif paths.parse_manifest(key) is not None:
                found.manifests.append(key)
            elif key.startswith(paths.damaged(paths.root)):
                found.damaged.append(key)
            elif key.startswith((paths.checkpoints_prefix, paths.numbered_prefix)):
                found.checkpoints.append(key)
        return found

    async def _removed(self, found: LogObjects) -> dict[str, int]:
        """The key of every file that a version, or a state of one, says was removed; and that version."""
        removed = {key: version for key, (_, version) in self._live.head.tombstones.known.items()}
        for version in found.states:
            try:
                manifest = await self._live.states.manifest(version)
            except (CorruptObject, ObjectMissing):
                continue  # the versions say the same, as far as they are there
            removed.update((path_key(one.path), one.version) for one in manifest.facts.removes)
        for start in range(0, len(found.versions), PARALLEL_READS):
            window = [version for version, _ in found.versions[start : start + PARALLEL_READS]]
            for version, record in zip(window, await asyncio.gather(*map(self._record, window)), strict=True):
                actions = () if record is None else record.actions
                removed.update((path_key(one.path), version) for one in actions if isinstance(one, Remove))
            self._progress(start + len(window), len(found.versions), "versions")
        return removed

    async def _meanwhile(self, found: LogObjects, erase: int) -> dict[str, int]:
        """Add the versions that were committed between the listing and the ERASE; what they removed."""
        last = max((version for version, _ in found.versions), default=erase - 1)
        late = LogObjects()
        for version in range(last + 1, erase):
            late.versions.append((version, await self._store.head(self._paths.version(version))))
        found.versions += late.versions
        return await self._removed(late)

    async def _record(self, version: int) -> VersionRecord | None:
        """None for a version that was erased, or that cannot be read and is below the floor."""
        step = self._live.tracker.step(version)
        if step is not None:
            return step.record
        try:
            return await self._live.log.read(version)
        except ErasedVersion:
            return None
        except (CorruptObject, ObjectMissing):
            if version < await self._live.log.floor():
                return None
            raise

    async def _erase_files(self, found: LogObjects, removed: dict[str, int], floor: int, *, dry_run: bool) -> VacuumRun:
        """The removed files, and what a vacuum would delete now that nothing below `floor` is needed.

        A file was removed when the store created that version: the same clock stamps both, whole seconds included.
        Where the version is gone, the name alone counts.
        """
        times = {version: info.modified_ms for version, info in found.versions}
        configured = int(self._live.setting("deletedFileRetention.duration"))
        run = self.files = VacuumRun(
            self._live,
            self._world,
            retention_ms=retention(configured),
            dry_run=dry_run,
            progress=self._progress,
            erased={key: times.get(version, LATEST_MS) for key, version in removed.items()},
            floor=floor,
        )
        await run.run()
        return run

    async def _publish(self, floor: int) -> None:
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                await self._store.put_if_absent(self._paths.floor(floor), b"")
                break
            except OutcomeUnknown:
                if attempt == SETTLE_ATTEMPTS - 1:
                    raise
                await self._world.sleep(0.1 * 2**attempt)
        self._live.raise_floor(floor)

    async def _delete_states(self, found: LogObjects, floor: int) -> None:
        await self._deleting.each(found.checkpoints, "checkpoints")
        await self._deleting.groups((sorted(keys) for keys in found.states.values()), "states")
        await self._deleting.each(found.damaged, "damaged")
        directories = Directories(self._paths, self._store, self._live.states)
        kept = await directories.all(self._world.now_ms(), after=floor - 1)
        if any(one.fact.manifests is None for one in kept.values()):
            raise ProblemError("storage-unavailable", "a state cannot be read: erase again later", retry_after=5.0)
        used = {f"{self._paths.root}{name}" for one in kept.values() for name in one.fact.manifests or ()}
        await self._deleting.each([key for key in found.manifests if key not in used], "manifests")
        gone = self._deleting.gone
        self.checkpoints, self.states, self.manifests = gone["checkpoints"], gone["states"], gone["manifests"]

    async def _erase_versions(self, found: LogObjects, floor: int, needed: set[int]) -> None:
        dedupe = int(self._live.setting("commit.dedupe.duration")) + CLOCK_TOLERANCE_MS
        behind = int(FLOOR_CHECK_AFTER_SECONDS * 1000) + CLOCK_MARGIN_MS
        young_since = self._world.now_ms() - max(dedupe, behind)
        below = [(version, info) for version, info in found.versions if version < floor and version not in needed]
        await self._deleting.each((info.key for _, info in below if info.modified_ms < young_since), "versions")
        self.versions = self._deleting.gone["versions"]
        for version, info in below:
            if info.modified_ms >= young_since and await self._replace(version, floor):
                self.versions += 1

    async def _replace(self, version: int, floor: int) -> bool:
        """Put the ids of a version's commits in its place; whether it was not done before."""
        try:
            record = await self._live.log.read(version)
        except (ErasedVersion, ObjectMissing):
            return False
        except CorruptObject:
            await self._deleting.each([self._paths.version(version)], "versions")
            return True
        data = encode_erased(record, floor)
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                await self._store.put(self._paths.version(version), data)
                return True
            except OutcomeUnknown:
                if attempt == SETTLE_ATTEMPTS - 1:
                    raise
                await self._world.sleep(0.1 * 2**attempt)
        return False
