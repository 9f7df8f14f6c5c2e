"""Writing new manifests: sorted by partition, so many entries each, encoded in slices that let commits through."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from tarnlog.protocol.actions import MetaData
from tarnlog_server.codec.column_bounds import ColumnBoundsBuilder, bounded_columns
from tarnlog_server.codec.partition_bounds import BoundsBuilder, partition_fields
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.codec.state_avro import Compression, EncodedManifest, ManifestEncoder
from tarnlog_server.codec.state_manifest import ManifestInfo
from tarnlog_server.core.compaction_plan import pieces
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.lanes import PartsInFlight
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.pace import Pace
from tarnlog_server.usecases.state_order import FilesInOrder

SLICE = 128
"""Entries encoded at once: a few milliseconds."""


class ManifestWriter:
    """Writes the manifests of one state."""

    def __init__(
        self,
        paths: LogPaths,
        world: World,
        put: Callable[[str, bytes], Awaitable[object]],
        pace: Pace,
        *,
        compression: Compression,
        level: int,
        progress: Progress = unheard,
        at_once: int = 1,
    ) -> None:
        self._paths = paths
        self._world = world
        self._put = put
        self._pace = pace
        self._compression = compression
        self._level = level
        self._progress = progress
        self._at_once = at_once

    async def write(
        self, files: FilesInOrder, metadata: MetaData | None, entries_per_manifest: int
    ) -> list[ManifestInfo]:
        """Manifests of all files, none for no files. Holds the bytes of `at_once` manifests that are sent, and one."""
        bounds = BoundsBuilder(partition_fields(metadata))
        columns = ColumnBoundsBuilder(bounded_columns(metadata))
        infos = []
        async with PartsInFlight(self._at_once) as parts:
            for start, stop in pieces(len(files), entries_per_manifest):
                self._progress(start, len(files), "files")
                encoded = await self._encoded(files, start, stop, bounds.fresh(), columns.fresh())
                key = self._paths.manifest(encoded.content_hash, self._world.uuid7().hex[-8:])
                await parts.send(functools.partial(self._put, key, encoded.data))
                infos.append(
                    ManifestInfo(
                        path=self._paths.relative(key),
                        num_entries=encoded.num_entries,
                        min_added_at_version=encoded.min_added_at_version,
                        max_added_at_version=encoded.max_added_at_version,
                        partition_bounds=encoded.partition_bounds,
                        column_bounds=encoded.column_bounds,
                        live_entry_count=encoded.num_entries,
                        sha256=encoded.sha256,
                    )
                )
        return infos

    async def _encoded(
        self, files: FilesInOrder, start: int, stop: int, bounds: BoundsBuilder, columns: ColumnBoundsBuilder
    ) -> EncodedManifest:
        encoder = ManifestEncoder(bounds=bounds, columns=columns, compression=self._compression, level=self._level)
        for first in range(start, stop, SLICE):
            last = min(first + SLICE, stop)
            await self._pace.run(lambda first=first, last=last: encoder.take(files.files(first, last)))  # type: ignore[misc]
        return await self._pace.run(encoder.finish)
