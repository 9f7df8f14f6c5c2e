"""Writing states: never in a commit's way, validated before anything points to them, harmless when done twice.

A state describes exactly the version it is named after. Its parts are written first, the object that completes it last,
by put-if-absent: of two replicas that write the same one, the second finds it there. The hint moves only after what was
written has been read back and believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Iterable, Mapping

import msgspec

from tarnlog_server.codec.checkpoint_json import encode_checkpoint, encode_checkpoint_parts, encode_parts_manifest
from tarnlog_server.codec.checkpoint_order import count_actions
from tarnlog_server.codec.checkpoint_parquet import encode_parquet, encode_parquet_checksums, tell_parquet
from tarnlog_server.codec.checkpoint_parts import EncodedCheckpoint
from tarnlog_server.codec.damage import sha256_hex
from tarnlog_server.codec.ids_file import encode_ids, make_run
from tarnlog_server.codec.last_checkpoint import LastCheckpoint, encode_last_checkpoint
from tarnlog_server.codec.paths import state_dir
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.codec.table_state import StateFacts
from tarnlog_server.codec.told_files import FEW
from tarnlog_server.codec.uncompressed import uncompressed_size
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schema_dedup import Renormalised
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tarnlog_server.core.state_plan import Layout, StateSettings, layout, state_settings
from tarnlog_server.ports.object_store import OutcomeUnknown, PutResult, StoreError
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.avro_state import AvroStateWriter
from tarnlog_server.usecases.lanes import PartsInFlight
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_log import Base
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.pace import Pace
from tarnlog_server.usecases.renormalise import usable
from tarnlog_server.usecases.state_order import RenamedFiles, in_order
from tarnlog_server.usecases.state_read import Kind, StateRef
from tarnlog_server.usecases.state_snapshot import facts_of

PUT_ATTEMPTS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A state that is complete, validated and pointed to."""

    version: int
    format: str
    num_actions: int
    num_files: int
    parts: int
    size: int
    """Bytes that were sent to the store for it."""
    raw_size: int
    """What those would be without compression."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Whole:
    """How a state was stored. Only a JSON checkpoint in parts has an id: readers in the field take it for the sign."""

    format: str
    parts: int
    checkpoint_id: str | None = None


class StateWriter:
    """Writes the states of one table, one at a time."""

    def __init__(
        self,
        live: LiveTable,
        world: World,
        progress: Progress = unheard,
        renormalised: Renormalised | None = None,
    ) -> None:
        self._live = live
        self._renormalised = renormalised
        self._progress = progress
        self._world = world
        self._store = live.log.store
        self._paths = live.log.paths
        self._sent = self._raw = 0

    async def write(self, *, format: str | None = None, compact: bool = False) -> Written:  # noqa: A002
        """Write a state of the head as it is now. Raises StoreError, CorruptObject, ProblemError.

        An Avro state costs what changed since the last one; the other formats, and a compaction, cost the table.
        """
        snapshot = self._live.head
        configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
        settings = state_settings(configuration, self._live.log.defaults)
        if format is not None:
            settings = msgspec.structs.replace(settings, format=format)
        facts, ids = await self._facts(snapshot, self._live.tracker)
        renamed = usable(snapshot, self._renormalised) if self._renormalised is not None else {}
        self._sent = self._raw = 0
        size = count_actions(facts, snapshot.num_files)
        how = layout(size, settings)
        if how.format == "avro-state":
            manifest = await AvroStateWriter(self._live, self._world, self._put, self._progress, renamed).write(
                snapshot, facts, ids, settings, compact=compact
            )
            base = Base.of(StateRef(snapshot.version, Kind.AVRO), snapshot, ours=True, manifest=manifest)
            whole = _Whole(how.format, len(manifest.manifests))
        else:
            await self._put(self._paths.checkpoint_ids(snapshot.version), ids)
            whole = await self._whole(snapshot, facts, settings, how, renamed)
            kind = Kind.PARQUET if whole.format == "parquet" else Kind.JSON
            base = Base.of(StateRef(snapshot.version, kind), snapshot, ours=True)
            await self._validate(base.ref)
        await self._point(snapshot, size, whole)
        self._live.base = base
        return Written(snapshot.version, whole.format, size, snapshot.num_files, whole.parts, self._sent, self._raw)

    async def _validate(self, ref: StateRef) -> None:
        """Read a checkpoint back, thoroughly. Nobody is to open a table from one that does not stand up to that."""
        try:
            await self._live.states.read(ref)
        except CorruptObject:
            with contextlib.suppress(StoreError):
                await self._store.delete(self._live.states.key_of(ref))
            raise

    async def write_at(self, tracker: SnapshotTracker, base: Base | None) -> StateManifest:
        """An Avro state of a version of the past, which nothing points to. Costs what changed since its base."""
        snapshot = tracker.head
        metadata = self._live.head.metadata
        settings = state_settings(metadata.configuration if metadata is not None else {}, self._live.log.defaults)
        facts, ids = await self._facts(snapshot, tracker)
        self._sent = self._raw = 0
        return await AvroStateWriter(self._live, self._world, self._put, self._progress).write(
            snapshot, facts, ids, settings, compact=False, past=(tracker, base)
        )

    async def write_fresh(self, snapshot: Snapshot, tracker: SnapshotTracker) -> None:
        """An Avro state of a version that shares nothing with older ones, and the hint to it. Costs the table."""
        metadata = self._live.head.metadata
        settings = state_settings(metadata.configuration if metadata is not None else {}, self._live.log.defaults)
        facts, ids = await self._facts(snapshot, tracker)
        self._sent = self._raw = 0
        manifest = await AvroStateWriter(self._live, self._world, self._put, self._progress).write(
            snapshot, facts, ids, settings, compact=True, past=(tracker, None)
        )
        size = count_actions(facts, snapshot.num_files)
        await self._point(snapshot, size, _Whole("avro-state", len(manifest.manifests)))
        if self._live.base is None or self._live.base.ref.version < snapshot.version:
            self._live.base = Base.of(StateRef(snapshot.version, Kind.AVRO), snapshot, ours=True, manifest=manifest)

    async def _facts(self, snapshot: Snapshot, tracker: SnapshotTracker) -> tuple[StateFacts, bytes]:
        """The facts of a version and the ids known at it. Costs a GET of its version file."""
        version = snapshot.version
        data = await self._store.get(self._paths.version(version))
        step = tracker.step(version)
        put_id = step.record.put_id if step is not None else (await self._live.log.read(version)).put_id
        now = self._world.now_ms()
        unexpired = now - int(self._live.setting("deletedFileRetention.duration"))
        window = int(self._live.setting("commit.dedupe.duration")) + CLOCK_TOLERANCE_MS
        # The earlier of two clocks, the log's and this one: a clock that is ahead must not make ids look old.
        since = min(snapshot.timestamp, now) - window
        entries, complete_since = tracker.ids.upto(version, since)
        run = make_run(version, complete_since, snapshot.timestamp, entries)
        times = {v: time for v, time in tracker.foreign_times.items() if v >= self._live.floor}
        facts = facts_of(snapshot, put_id, sha256_hex(data), unexpired, times, tracker.adopted_from)
        return facts, encode_ids(run)

    async def _whole(
        self, snapshot: Snapshot, facts: StateFacts, settings: StateSettings, how: Layout, renamed: Mapping[str, str]
    ) -> _Whole:
        """A JSON or Parquet checkpoint: every file, sorted by path. Holds the parts that are sent at once, and one."""
        version = snapshot.version
        pace = self._live.pace()
        files = RenamedFiles(await in_order(snapshot, pace, by_partition=False), renamed)
        if how.format == "parquet":
            return _Whole(how.format, await self._parquet(version, facts, files, pace))
        compress = bool(self._live.setting("transaction.compression.enabled"))
        largest = int(self._live.setting("checkpoint.maxFileSize"))
        if how.format == "json":
            single = await pace.run(lambda: encode_checkpoint(facts, files, compress=compress))
            if len(single.data) <= largest:
                await self._put(self._paths.checkpoint_json(version), single.data)
                return _Whole(how.format, 1)
        checkpoint_id = self._world.uuid7().hex[-12:]
        names = []
        done = 0
        parts = encode_checkpoint_parts(
            facts,
            files,
            checkpoint_id=checkpoint_id,
            actions_per_part=settings.actions_per_part,
            max_file_size=largest,
            compress=compress,
        )
        async with self._in_flight() as sending:
            async for part in _stepwise(parts, pace):
                key = self._paths.checkpoint_part(version, checkpoint_id, part.number)
                await sending.send(functools.partial(self._put, key, part.data))
                names.append(self._paths.relative(key))
                done += part.actions
                self._progress(done, None, "actions")
        manifest = encode_parts_manifest(version, checkpoint_id, names, self._world.now_ms())
        await self._put(self._paths.checkpoint_json(version), manifest)
        return _Whole("json-multipart", len(names), checkpoint_id)

    async def _parquet(self, version: int, facts: StateFacts, files: RenamedFiles, pace: Pace) -> int:
        checksums = []
        size = 0
        encoded = encode_parquet(
            facts,
            files,
            compression=self._live.setting("checkpoint.compression"),
            max_file_size=int(self._live.setting("checkpoint.maxFileSize")),
        )
        async with self._in_flight() as sending:
            async for part in _stepwise(encoded, pace):
                number = None if part.number == 1 and part.last else part.number
                key = self._paths.checkpoint_parquet(version, number)
                await sending.send(functools.partial(self._put, key, part.data))
                checksums.append(sha256_hex(part.data))
                size += part.actions
                self._progress(size, None, "actions")
        told = tell_parquet(facts, files) if len(files) <= FEW else None
        info = encode_parquet_checksums(version, size, checksums, self._world.now_ms(), told)
        await self._put(self._paths.checkpoint_parquet_info(version), info)
        return len(checksums)

    def _in_flight(self) -> PartsInFlight:
        return PartsInFlight(int(self._live.setting("checkpoint.parallelism")))

    async def _point(self, snapshot: Snapshot, size: int, whole: _Whole) -> None:
        """Move the hint, unless it already names a newer state."""
        hint = await self._live.states.hint()
        if hint is not None and hint.version > snapshot.version:
            return
        last = LastCheckpoint(
            version=snapshot.version,
            size=size,
            size_in_bytes=snapshot.total_bytes,
            num_files=snapshot.num_files,
            created_time=self._world.now_ms(),
            parts=whole.parts if whole.checkpoint_id or (whole.format == "parquet" and whole.parts > 1) else None,
            checkpoint_id=whole.checkpoint_id,
            format=whole.format,
            state_dir=state_dir(snapshot.version) if whole.format == "avro-state" else None,
        )
        await self._store.put(self._paths.last_checkpoint, encode_last_checkpoint(last))
        # Hadoop's local file system would believe its old checksum of the hint more than the hint.
        await self._store.delete(self._paths.last_checkpoint_crc)

    async def _put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> PutResult:
        """Write an object until the store says that it is there. Takes a place of those for checkpoints."""
        for attempt in range(1, PUT_ATTEMPTS + 1):
            try:
                async with self._live.lanes.checkpointing:
                    if only_if_absent:
                        result = await self._store.put_if_absent(key, data)
                    else:
                        await self._store.put(key, data)
                        result = PutResult.CREATED
                self._sent += len(data)
                self._raw += uncompressed_size(data)
                return result
            except OutcomeUnknown:
                if attempt == PUT_ATTEMPTS:
                    raise
                await self._world.sleep(0.1 * 2**attempt)
        raise AssertionError("the loop returns or raises")


async def _stepwise(parts: Iterable[EncodedCheckpoint], pace: Pace) -> AsyncIterator[EncodedCheckpoint]:
    """The parts that an encoder makes one after the other, each made off the event loop."""
    rest = iter(parts)
    while (part := await pace.run(lambda: next(rest, None))) is not None:
        yield part
