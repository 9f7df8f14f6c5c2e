"""An Avro state of one version: incremental where it can be, compacted where it must be.

What the next state consists of is decided in core (state_files, compaction_plan); this orders the reading of the few
manifests that are needed for it, the writing of the new ones, and the object that completes the state.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

import msgspec

from tarnlog.protocol.actions import Add, Remove
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec import doc_mapping_registry
from tarnlog_server.codec.damage import check_sha256
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest, Tombstone, encode_state_manifest
from tarnlog_server.codec.state_manifest_avro import encode_state_manifest_avro
from tarnlog_server.codec.table_state import StateFacts, StateFile
from tarnlog_server.codec.told_files import FEW
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core import state_files
from tarnlog_server.core.compaction_plan import choose, spread_entries
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Step
from tarnlog_server.core.state_plan import AvroBase, Reason, Since, StateSettings, compaction
from tarnlog_server.ports.object_store import ObjectMissing, PutResult
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.foreign_writers import is_foreign_state
from tarnlog_server.usecases.lanes import some_at_a_time
from tarnlog_server.usecases.live_table import LiveTable, foreign_writer_problem
from tarnlog_server.usecases.manifest_write import ManifestWriter
from tarnlog_server.usecases.open_log import Base
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.state_order import FilesInOrder, ListedFiles, RenamedFiles, in_order

PARALLEL_HEADS = 16


class Put(Protocol):
    """Writes an object until the store says that it is there."""

    def __call__(self, key: str, data: bytes, *, only_if_absent: bool = False) -> Awaitable[PutResult]: ...


class _Plan:
    """What to write: entries for new manifests, manifests that are kept, tombstones that stay."""

    def __init__(
        self, files: FilesInOrder, kept: Iterable[ManifestInfo] = (), tombstones: Iterable[Tombstone] = ()
    ) -> None:
        self.files = files
        self.kept = tuple(kept)
        self.tombstones = tuple(tombstones)


class AvroStateWriter:
    """Writes one Avro state."""

    def __init__(
        self,
        live: LiveTable,
        world: World,
        put: Put,
        progress: Progress = unheard,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self._live = live
        self._progress = progress
        self._world = world
        self._put = put
        self._renamed = renamed or {}
        """What the mappings of files that are written are called instead."""
        self._paths = live.log.paths

    async def write(
        self,
        snapshot: Snapshot,
        facts: StateFacts,
        ids: bytes,
        settings: StateSettings,
        *,
        compact: bool,
        past: tuple[SnapshotTracker, Base | None] | None = None,
    ) -> StateManifest:
        """Write the state of `snapshot` and read back what is new. Costs the changes since the base, or the table.

        `past` is the way to a version of the past and what it began with; without, the table as it is open counts.
        """
        tracker, base = past or (self._live.tracker, self._live.base)
        plan = None if compact else await self._incremental(snapshot, settings, tracker, base)
        pace = self._live.pace()
        plan = plan or _Plan(await in_order(snapshot, pace))
        writer = ManifestWriter(
            self._paths,
            self._world,
            self._put,
            pace,
            compression=self._live.setting("state.compression"),
            level=int(self._live.setting("state.compressionLevel")),
            progress=self._progress,
            at_once=int(self._live.setting("checkpoint.parallelism")),
        )
        entries = settings.entries_per_manifest
        if not plan.kept and snapshot.metadata is not None and snapshot.metadata.partition_columns:
            entries = spread_entries(len(plan.files), entries, settings.max_manifests)
        files = RenamedFiles(plan.files, self._renamed) if self._renamed else plan.files
        infos = await writer.write(files, snapshot.metadata, entries)
        manifest = StateManifest(
            facts=facts,
            created_at=self._world.now_ms(),
            num_files=snapshot.num_files,
            total_bytes=snapshot.total_bytes,
            manifests=(*plan.kept, *infos),
            tombstones=plan.tombstones,
            schema_registry=doc_mapping_registry.from_configuration(
                snapshot.metadata.configuration if snapshot.metadata is not None else {}
            ),
        )
        version = snapshot.version
        few: tuple[StateFile, ...] | None = None
        if snapshot.num_files <= FEW:
            try:
                few = await self._shown(manifest)
            except (CorruptObject, ObjectMissing):
                if not plan.kept:
                    raise
                # What it would share is damaged or gone: stand on our own.
                return await self.write(snapshot, facts, ids, settings, compact=True, past=past)
            manifest = msgspec.structs.replace(manifest, few=few)
        await self._for_other_readers(version, encode_state_manifest_avro(manifest))
        await self._put(self._paths.state_ids(version), ids)
        # A compaction of a version that has a state replaces it: both tell the same, and readers see one or the other.
        # A state of the past is written only where there is none that is sound.
        written = await self._put(
            self._paths.state_manifest(version),
            encode_state_manifest(manifest),
            only_if_absent=not compact and past is None,
        )
        if written is PutResult.EXISTS:
            # Another replica completed it first, with manifests of its own: other readers must not be led to ours.
            try:
                manifest = await self._live.states.manifest(version)
            except (CorruptObject, ObjectMissing):
                # It is damaged, or a cleanup took it meanwhile: nobody can use it, so ours replaces it.
                return await self.write(snapshot, facts, ids, settings, compact=True, past=past)
            await self._for_other_readers(version, encode_state_manifest_avro(manifest))
        if not await self._all_there(plan.kept, version):
            # A cleanup took the base, which was not the newest any more, and its manifests: stand on our own.
            return await self.write(snapshot, facts, ids, settings, compact=True, past=past)
        if few is None:
            await self._read_back(infos, version)
        return await self._live.states.manifest(version)

    async def _shown(self, manifest: StateManifest) -> tuple[StateFile, ...]:
        """The files of a state, as its manifests show them. CorruptObject unless they are what it announces."""
        shown = tuple(await self._live.states.live(manifest))
        found = len(shown), sum(file.add.size for file in shown)
        if found != (manifest.num_files, manifest.total_bytes):
            key = self._paths.state_manifest(manifest.facts.version)
            raise CorruptObject(key, f"it would announce {manifest.num_files} files, but its manifests show {found[0]}")
        return shown

    async def _read_back(self, infos: list[ManifestInfo], version: int) -> None:
        """CorruptObject unless the store gives back what it was given."""

        async def check(info: ManifestInfo) -> None:
            key = self._paths.resolve_manifest(info.path, version)
            check_sha256(key, await self._live.log.store.get(key), info.sha256)

        places = int(self._live.setting("checkpoint.parallelism"))
        await some_at_a_time(places, [functools.partial(check, info) for info in infos])

    async def _for_other_readers(self, version: int, data: bytes) -> None:
        """Replaces only what is ours: another writer's state may be all there is of its version."""
        key = self._paths.state_manifest_avro(version)
        if await self._put(key, data, only_if_absent=True) is PutResult.EXISTS:
            try:
                found = await self._live.log.store.get(key)
            except ObjectMissing:
                found = b""  # a cleanup took it meanwhile
            if is_foreign_state(key, version, found):
                raise foreign_writer_problem(self._live.name, key)
            await self._put(key, data)

    async def _all_there(self, kept: tuple[ManifestInfo, ...], version: int) -> bool:
        """Whether the manifests that a state shares still exist, now that everyone can see that it uses them."""
        keys = [self._paths.resolve_manifest(info.path, version) for info in kept]
        for start in range(0, len(keys), PARALLEL_HEADS):
            some = keys[start : start + PARALLEL_HEADS]
            found = await asyncio.gather(*(self._live.log.store.head(key) for key in some), return_exceptions=True)
            for one in found:
                if isinstance(one, ObjectMissing):
                    return False
                if isinstance(one, BaseException):
                    raise one
        return True

    async def _incremental(
        self, snapshot: Snapshot, settings: StateSettings, tracker: SnapshotTracker, known: Base | None
    ) -> _Plan | None:
        """What follows from the last state of ours and the versions since; None when there is nothing to build on."""
        manifest = known.manifest if known is not None and known.ours else None
        if manifest is not None and manifest.facts.version < tracker.erased_at:
            return None
        steps = tracker.steps_after(manifest.facts.version) if manifest is not None else None
        if manifest is None or steps is None or manifest.facts.version > snapshot.version:
            return None
        steps = [step for step in steps if step.record.version <= snapshot.version]
        base = _base(manifest)
        step = state_files.step(base, _changes(steps), _live_in_base(steps, manifest.facts.version).get)
        if (step.num_files, step.total_bytes) != (snapshot.num_files, snapshot.total_bytes):
            return None
        reason = compaction(_numbers(base, step), _since(steps), settings)
        names: tuple[str, ...] = ()
        if reason is not None:
            rewrite = choose(
                base.manifests,
                step.tombstones,
                step.num_files,
                len(step.added),
                tombstone_threshold=settings.tombstone_threshold,
                max_manifests=settings.max_manifests,
                entries_per_manifest=settings.entries_per_manifest,
                dead_first=reason is Reason.MERGE,
            )
            if rewrite.full:
                return None
            names = tuple(rewrite.names)
        contents = await self._contents(manifest, {*step.suspects, *names})
        settled = state_files.settle(base, step, contents, names)
        kept_names = {one.name for one in settled.kept}
        return _Plan(
            ListedFiles((entry.file for entry in settled.written), snapshot.metadata),
            [info for info in manifest.manifests if info.path in kept_names],
            [Tombstone(one.path, one.version, one.added_at) for _, one in sorted(settled.tombstones.items())],
        )

    async def _contents(self, manifest: StateManifest, names: set[str]) -> Mapping[str, list[state_files.Entry]]:
        found = {}
        for info in manifest.manifests:
            if info.path in names:
                found[info.path] = [_entry(file) for file in await self._live.states.entries(manifest, info)]
        return found


def _base(manifest: StateManifest) -> state_files.Base:
    tombstones = {
        key: state_files.Tombstone(
            key,
            stone.path,
            state_files.UNKNOWN_TIME if stone.version is None else stone.version,
            stone.added_at,
        )
        for stone in manifest.tombstones
        for key in (path_key(stone.path),)
    }
    infos = tuple(
        state_files.Manifest(info.path, info.num_entries, info.min_added_at_version, info.max_added_at_version)
        for info in manifest.manifests
    )
    return state_files.Base(manifest.facts.version, infos, tombstones, manifest.num_files, manifest.total_bytes)


def _entry(file: StateFile) -> state_files.Entry:
    return state_files.Entry(path_key(file.add.path), file.add.path, file.added_at_version, file.add.size, file)


def _changes(steps: list[Step]) -> Iterable[state_files.Change]:
    for step in steps:
        record = step.record
        for action in record.actions:
            if isinstance(action, Add):
                yield _entry(StateFile(action, record.version, record.timestamp))
            elif isinstance(action, Remove):
                yield state_files.Removal(path_key(action.path), record.version)


def _live_in_base(steps: list[Step], version: int) -> dict[str, state_files.Entry]:
    """The files that the base showed and that a later version took away or replaced."""
    found: dict[str, state_files.Entry] = {}
    for step in steps:
        for key, (add, since) in step.gone_since.items():
            if since <= version and key not in found:
                found[key] = _entry(StateFile(add, since, 0))
    return found


def _numbers(base: state_files.Base, step: state_files.Step) -> AvroBase:
    return AvroBase(step.num_files, len(step.tombstones), len(base.manifests) + (1 if step.added else 0))


def _since(steps: list[Step]) -> Since:
    removes = sum(isinstance(action, Remove) for step in steps for action in step.record.actions)
    operations = {sub.operation for step in steps for sub in step.record.sub_commits}
    return Since(versions=len(steps), removes=removes, operations=operations)
