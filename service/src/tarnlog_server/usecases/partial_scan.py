"""A table at one version, read from storage only as far as a filter needs it: what a plan is made from before the table
is open, or for a version that is not in memory.

The newest state below the version tells the bounds of its manifests. Those that may hold a match are read, the versions
after the state are applied on top, and the result is an ordinary snapshot that lacks files which cannot match. Whatever
is unusual (another writer's state, a checkpoint, a broken object) gives None: the table is then opened whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence

from tarnlog.protocol.plans import ExplainedManifest
from tarnlog.protocol.predicates import Predicate
from tarnlog_server.codec.manifest_filter import ManifestFilter
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest
from tarnlog_server.codec.table_state import State
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.codec.wanted_entries import Wanted
from tarnlog_server.core.match import file_filter
from tarnlog_server.core.protocol_gate import unsupported_for_reading
from tarnlog_server.core.replay import Snapshot, append
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.object_store import StoreError
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.explained import explained_manifests
from tarnlog_server.usecases.filters import Filter, understood
from tarnlog_server.usecases.meanwhile import Meanwhile
from tarnlog_server.usecases.state_read import Kind, NotOurs, States
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tarnlog_server.usecases.table_log import PARALLEL_READS, TableLog

FROM_FILES = 5000
"""Below, opening the whole table is as quick, and the next plan has it."""
MOST_SHARE = 0.5
"""The part of all entries above which reading only what may match saves too little to decode it twice. Where an index
has manifests decoded, it saves enough."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartialScan:
    """A snapshot that has every file which may match `predicate`, and only some of the others."""

    snapshot: Snapshot
    predicate: Predicate
    files_total: int
    """How many files the table has at that version."""
    by_partitions: bool
    """Whether partition values decide anything."""
    manifests: tuple[ExplainedManifest, ...]


class PartialScans:
    """Reads partial snapshots of one table's log."""

    def __init__(self, log: TableLog, states: States, world: World, *, from_files: int = FROM_FILES) -> None:
        self._log = log
        self._states = states
        self._world = world
        self._from_files = from_files

    async def newest(self, asked: Filter) -> PartialScan | None:
        """At the head. Raises ProblemError for the filter. Costs the hint, a round trip, and the manifests to read."""
        with contextlib.suppress(StoreError, CorruptObject, NotOurs):
            found = await self._at_head()
            if found is not None:
                return await self._scan(*found, asked)
        return None

    async def at(self, version: int, asked: Filter) -> PartialScan | None:
        """At a version. Raises ProblemError for the filter. Costs a listing of states where the hint is newer."""
        with contextlib.suppress(StoreError, CorruptObject, NotOurs):
            base = await self._state_below(version)
            if base is not None:
                return await self._scan(base, range(base.facts.version + 1, version + 1), asked)
        return None

    async def without_files(self) -> Snapshot | None:
        """The head with everything but files. Costs the hint, a round trip, and the versions after the state."""
        with contextlib.suppress(StoreError, CorruptObject, NotOurs):
            found = await self._at_head()
            if found is not None and found[0].num_files >= self._from_files:
                return (await self._bare(*found))[0]
        return None

    async def _bare(
        self, base: StateManifest, after: range | list[int]
    ) -> tuple[Snapshot | None, list[VersionRecord], int]:
        """The table without the files of a state (None where it cannot be read), the versions after the state, and how
        many of its files they removed."""
        records = await self._records(after)
        bare, removed = self._followed(snapshot_of(State(base.facts, [], ours=True)), records)
        if bare.dropped or unsupported_for_reading(bare.protocol) is not None:
            return None, records, removed
        return bare, records, removed

    async def _at_head(self) -> tuple[StateManifest, list[int]] | None:
        """The hinted state and the versions after it; as when a table is opened, the floor is read last."""
        ref = await self._states.hinted()
        if ref is None or ref.kind is not Kind.AVRO:
            return None
        async with Meanwhile(self._states.own_manifest(ref.version)) as reading:
            newer = await self._log.newer_than(ref.version)
            if newer.versions:
                states, floor = await asyncio.gather(self._states.newer(ref.version), self._log.floor())
                if any(not state.foreign for state in states):
                    return None
            else:
                floor = await self._log.floor()
            if newer.gap or floor > ref.version:
                return None
            return await reading, newer.versions

    async def _state_below(self, version: int) -> StateManifest | None:
        ref = await self._states.hinted()
        if ref is None or ref.version > version:
            below = [one for one in await self._states.all() if one.version <= version and not one.foreign]
            ref = next((one for one in below if (one.version, one.kind) not in self._states.distrusted), None)
        if ref is None or ref.kind is not Kind.AVRO or await self._log.floor() > ref.version:
            return None
        return await self._states.own_manifest(ref.version)

    async def _scan(self, base: StateManifest, after: range | list[int], asked: Filter) -> PartialScan | None:
        if base.num_files < self._from_files:
            return None
        bare, records, removed = await self._bare(base, after)
        if bare is None:
            return None
        predicate = await understood(asked, bare.metadata, self._world)
        if predicate is None:
            return None
        asking = ManifestFilter(predicate, bare.metadata, bare.truncation)
        kept = asking.kept(base)
        if self._log.segments is None and _entries(kept) > MOST_SHARE * _entries(base.manifests):
            return None
        wanted = _wanted(predicate, bare)
        files = await self._states.files(base, kept, wanted)
        state = State(base.facts, files, ours=True)
        snapshot, _ = await self._world.run_blocking(lambda: self._followed(snapshot_of(state), records))
        # Of the files that versions took away, those that no version brought were the state's.
        total = base.num_files + bare.num_files - removed
        return PartialScan(snapshot, predicate, total, wanted.by_partitions, explained_manifests(base, asking))

    async def _records(self, versions: range | list[int]) -> list[VersionRecord]:
        records: list[VersionRecord] = []
        for start in range(0, len(versions), PARALLEL_READS):
            window = versions[start : start + PARALLEL_READS]
            records += await asyncio.gather(*(self._log.read(version) for version in window))
        return records

    def _followed(self, snapshot: Snapshot, records: list[VersionRecord]) -> tuple[Snapshot, int]:
        """The snapshot after some versions, and how many files they removed that it did not have."""
        elsewhere = 0
        for record in records:
            applied = append(snapshot, self._log.following(snapshot, record))
            snapshot = applied.snapshot
            elsewhere += sum(gone is None for gone in applied.removed.values())
        return snapshot, elsewhere


def _entries(manifests: Sequence[ManifestInfo]) -> int:
    return sum(info.num_entries for info in manifests)


def _wanted(predicate: Predicate, bare: Snapshot) -> Wanted:
    """Which entries may match."""
    metadata = bare.metadata
    columns = metadata.partition_columns if metadata is not None else ()
    schema = schema_of(metadata.schema_string if metadata is not None else "")
    return Wanted(file_filter(predicate, schema, columns, bare.truncation), columns)
