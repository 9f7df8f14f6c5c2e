"""The files of an Avro state: its manifests read some at a time, checked, and put together without what is hidden.

A state of ours with many files becomes columns (`codec.file_columns`), decoded by a fast reader where there is one.
Anything else, and whatever that reader cannot decode, is decoded entry by entry: slower, and never different.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import pyarrow as pa

from tarnlog_server.codec.damage import check_sha256
from tarnlog_server.codec.file_columns import FileColumns, UnexpectedColumns, of_partitions
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.state_avro import decode_manifest
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest, hidden_below, live_files
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.codec.wanted_entries import without_numbers
from tarnlog_server.core.table_settings import setting
from tarnlog_server.ports.columns import ColumnReader
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.checkpoint_read import arrived
from tarnlog_server.usecases.lanes import some_at_a_time
from tarnlog_server.usecases.table_log import DECODE_OFF_LOOP_ABOVE, TableLog

COLUMNS_FROM = 1000
"""Entries from which on columns are worth it: below, decoding one by one is as quick and the actions are small."""
AT_ONCE, AT_ONCE_BYTES = 100, 16 * 1024
"""Entries and bytes up to which decoding takes no longer than the way to a thread and back."""
DECODING = 2
"""Manifests of a table that are decoded at the same time. More are read meanwhile, but each takes some 40 MB on the
way, and a million files are to fit into 600 MB."""
T = TypeVar("T")
Keep: TypeAlias = Callable[[tuple[str | None, ...]], bool]
"""Whether the files of a partition are wanted, by its values in the order of the partition columns."""


class StateEntries:
    """Reads the manifests of one table's states."""

    def __init__(self, log: TableLog, world: World) -> None:
        self._store = log.store
        self._paths = log.paths
        self._columns = log.columns
        self._segments = log.segments
        self._defaults = log.defaults
        self._world = world
        self._decoding = asyncio.Semaphore(DECODING)

    async def live(self, manifest: StateManifest) -> FileColumns | list[StateFile]:
        """The files that a state shows. Raises CorruptObject, StoreError."""
        return await self.live_of(manifest, manifest.manifests)

    async def check(self, manifest: StateManifest) -> None:
        """Whether the manifests of a state are there, and as they were written. Raises CorruptObject, StoreError.

        Nothing is decoded: the state is not read from them, but the next one may be built on them.
        """

        async def check(info: ManifestInfo) -> None:
            key, data = await self._get(manifest, info)
            if len(data) <= DECODE_OFF_LOOP_ABOVE:
                check_sha256(key, data, info.sha256)
            else:
                await self._world.run_blocking(lambda: check_sha256(key, data, info.sha256))

        await self._each(manifest, manifest.manifests, check)

    async def live_of(
        self, manifest: StateManifest, infos: Sequence[ManifestInfo], keep: Keep | None = None
    ) -> FileColumns | list[StateFile]:
        """The files that some of its manifests show; those of other partitions than `keep` wants may be left out."""
        if self._columns is not None and manifest.ours and sum(info.num_entries for info in infos) >= COLUMNS_FROM:
            found = await self._as_columns(manifest, infos, self._columns, keep)
            if found is not None:
                return found
        parts = await self._each(manifest, infos, lambda info: self.entries(manifest, info))
        return [file for part in parts for file in live_files(manifest.tombstones, part)]

    async def entries(self, manifest: StateManifest, info: ManifestInfo) -> list[StateFile]:
        """The entries of one manifest of a state, tombstoned ones included."""
        key, data = await self._get(manifest, info)

        def decode() -> list[StateFile]:
            return decode_manifest(
                key, data, sha256=info.sha256, num_entries=info.num_entries, partition_columns=_partitions(manifest)
            )

        # Both must be small: what a state says of a manifest is not checked yet.
        if info.num_entries <= AT_ONCE and len(data) <= AT_ONCE_BYTES:
            return decode()
        return await self._world.run_blocking(decode)

    async def _as_columns(
        self, manifest: StateManifest, infos: Sequence[ManifestInfo], reader: ColumnReader, keep: Keep | None
    ) -> FileColumns | None:
        async def read(info: ManifestInfo) -> PackedEntries:
            # Whoever wants all entries builds on the manifests, and has to know that they are there and whole.
            known = await self._segments.find(info) if keep is not None and self._segments is not None else None
            if known is not None:
                return await self._world.run_blocking(lambda: PackedEntries(chosen(known)))
            key, data = await self._get(manifest, info)
            # Packed at once: what the reader leaves takes several times the room.
            async with self._decoding:
                packed = await self._world.run_blocking(
                    lambda: PackedEntries(chosen(_decoded(reader, key, data, info)))
                )
            if self._segments is not None:
                self._segments.offer(key, info, data)
            return packed

        def chosen(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
            if keep is None:
                return batches
            return [without_numbers(of_partitions(batch, _partitions(manifest), keep)) for batch in batches]

        try:
            chunks = await self._each(manifest, infos, read)
            hidden = hidden_below(manifest.tombstones)
            return await self._world.run_blocking(lambda: _segment(chunks, hidden, _partitions(manifest)))
        except (UnexpectedColumns, _Undecodable):
            return None

    async def _get(self, manifest: StateManifest, info: ManifestInfo) -> tuple[str, bytes]:
        key = self._paths.resolve_manifest(info.path, manifest.facts.version)
        return key, await arrived(self._store, key, _configuration(manifest), self._defaults)

    async def _each(
        self, manifest: StateManifest, infos: Sequence[ManifestInfo], read: Callable[[ManifestInfo], Awaitable[T]]
    ) -> list[T]:
        """What `read` gives for each manifest, in their order; at most `state.read.parallelism` at the same time."""
        places = int(setting(_configuration(manifest), "state.read.parallelism", self._defaults))
        return await some_at_a_time(places, [lambda info=info: read(info) for info in infos])  # type: ignore[misc]


def _segment(
    chunks: list[PackedEntries], hidden: Mapping[str, int | None], partition_columns: Sequence[str]
) -> FileColumns:
    files = FileColumns.live(PackedEntries.merged(chunks, use_up=True), hidden, partition_columns)
    # Arrow keeps what it used on the way for the next time, which is the next restart.
    pa.default_memory_pool().release_unused()
    return files


class _Undecodable(Exception):
    """The fast reader does not understand a manifest whose bytes are as they were written."""


def _decoded(reader: ColumnReader, key: str, data: bytes, info: ManifestInfo) -> list[pa.RecordBatch]:
    check_sha256(key, data, info.sha256)
    try:
        batches = reader.read_avro(data)
    except ValueError as error:
        raise _Undecodable(str(error)) from error
    found = sum(batch.num_rows for batch in batches)
    if found != info.num_entries:
        raise CorruptObject(key, f"its state announces {info.num_entries} entries, but {found} are there")
    return batches


def _partitions(manifest: StateManifest) -> tuple[str, ...]:
    return manifest.facts.metadata.partition_columns if manifest.facts.metadata is not None else ()


def _configuration(manifest: StateManifest) -> Mapping[str, str]:
    metadata = manifest.facts.metadata
    return metadata.configuration if metadata is not None else {}
