"""The state that a floor stands on: checked whole before anything is deleted on its word, and built where none is left.

It is an Avro state whatever `state.format` says. Readers of other formats do not need it: they begin with their newest
checkpoint, and the versions from the floor on are all there.
"""

from __future__ import annotations

from tarnlog_server.codec.damage import sha256_hex
from tarnlog_server.codec.ids_file import decode_ids
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest, live_files
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.told_files import same_files
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.state_write import StateWriter


async def check_anchor(live: LiveTable, world: World, version: int, progress: Progress = unheard) -> StateManifest:
    """Read a state of ours whole: every object it names, each checksum. Raises CorruptObject, StoreError.

    Costs all its objects, one manifest in memory at a time.
    """
    paths, store = live.log.paths, live.log.store
    key = paths.state_manifest(version)
    manifest = await live.states.manifest(version)
    if not manifest.ours:
        raise CorruptObject(key, "it is another writer's, and no floor stands on such a state")
    files = size = 0
    shown: list[StateFile] = []
    for info in manifest.manifests:
        progress(files, manifest.num_files, "files checked")
        some, length = await _live(live, world, manifest, info)
        files, size = files + len(some), size + length
        if manifest.few is not None:
            shown += some
    if (files, size) != (manifest.num_files, manifest.total_bytes):
        detail = f"it announces {manifest.num_files} files of {manifest.total_bytes} bytes, but has {files} of {size}"
        raise CorruptObject(key, detail)
    if manifest.few is not None and not same_files(manifest.few, shown):
        raise CorruptObject(key, "the files that it tells are not those of its manifests")
    decode_ids(paths.state_ids(version), await store.get(paths.state_ids(version)))
    if sha256_hex(await store.get(paths.version(version))) != manifest.facts.version_sha256:
        raise CorruptObject(paths.version(version), "it is not the version file that the state of it was made from")
    return manifest


async def build_anchor(live: LiveTable, world: World, version: int, progress: Progress = unheard) -> StateManifest:
    """Write a state of a version of the past, over a damaged one if there is one, and check it whole.

    Costs what changed since the nearest older state, or the table where there is none; then all of the new state.
    """
    tracker, base = await live.rebuilt(version)
    await StateWriter(live, world, progress).write_at(tracker, base)
    return await check_anchor(live, world, version, progress)


async def _live(
    live: LiveTable, world: World, manifest: StateManifest, info: ManifestInfo
) -> tuple[list[StateFile], int]:
    """The files that one manifest shows, and their bytes."""
    entries = await live.states.entries(manifest, info)

    def shown() -> tuple[list[StateFile], int]:
        found = list(live_files(manifest.tombstones, entries))
        return found, sum(file.add.size for file in found)

    return await world.run_blocking(shown)
