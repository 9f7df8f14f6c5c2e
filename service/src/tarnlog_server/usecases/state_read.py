"""Finding and reading states: one interface, whatever format and whoever wrote them.

A state is believed only when everything it names is there and fits: its own checksum, its manifests', and, for one of
ours, the very version file it describes. What is not believed is reported and passed over; it never costs a read.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from tarnlog_server.codec.damage import sha256_hex
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.ids_file import CommitIdRun, decode_ids
from tarnlog_server.codec.last_checkpoint import LastCheckpoint, decode_last_checkpoint
from tarnlog_server.codec.state_avro import written_here
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest, decode_state_manifest
from tarnlog_server.codec.state_manifest_avro import decode_state_manifest_avro
from tarnlog_server.codec.table_state import State, StateFile
from tarnlog_server.codec.told_files import same_files
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.checkpoint_read import CheckpointReader
from tarnlog_server.usecases.foreign_facts import ForeignFacts
from tarnlog_server.usecases.meanwhile import Meanwhile
from tarnlog_server.usecases.state_entries import Keep, StateEntries
from tarnlog_server.usecases.table_log import DECODE_OFF_LOOP_ABOVE, TableLog

PAGE = 1000


class Kind(enum.Enum):
    """How a state is stored."""

    AVRO = "avro-state"
    JSON = "json"
    PARQUET = "parquet"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class StateRef:
    """A state that seems to be there."""

    version: int
    kind: Kind = dataclasses.field(compare=False)
    foreign: bool = dataclasses.field(default=False, compare=False)
    """Only what other writers leave was listed: it cannot be one of ours that is complete."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A state that was read and believed. `manifest` is what an incremental Avro state can be built on."""

    ref: StateRef
    state: State
    ids: CommitIdRun | None
    manifest: StateManifest | None = None


Broken = Callable[[StateRef, str], None]
"""Told about every state that was passed over, and why."""
Ids = Awaitable[CommitIdRun]
"""The commit ids of a state, on their way: only one of ours has them."""


class NotOurs(Exception):
    """Another writer's state, where one of ours was asked for."""


class States:
    """The states of one table's log."""

    def __init__(self, log: TableLog, world: World) -> None:
        self._log = log
        self._store = log.store
        self._paths = log.paths
        self._world = world
        self._foreign = ForeignFacts(log)
        self.distrusted: frozenset[tuple[int, Kind]] = frozenset()
        """States that are whole and yet wrong, as an audit found: they are passed over until they are replaced."""
        self._entries = StateEntries(log, world)
        self._checkpoints = CheckpointReader(log, world)

    async def newest(
        self,
        broken: Broken,
        at_most: int | None = None,
        *,
        ours: bool = False,
        listed: list[StateRef] | None = None,
        known_broken: Iterable[StateRef] = (),
    ) -> Loaded | None:
        """The newest state that can be believed (at or below a version; of ours); None when there is none.

        `listed` then gets every state there seems to be: whoever goes on to other writers' need not list them again.
        Those of `known_broken` were tried a moment ago, and are not tried again.

        Opening costs the hint, a probe for newer states and that state; only a broken one costs a listing of them all.
        """
        tried = {(ref.version, ref.kind) for ref in known_broken}
        for whole in (False, True):
            refs = await (self.all() if whole else self._hinted(at_most))
            if listed is not None and whole:
                listed[:] = refs
            for ref in refs:
                if (at_most is not None and ref.version > at_most) or (ref.version, ref.kind) in tried:
                    continue
                tried.add((ref.version, ref.kind))
                if (ours and ref.foreign) or (ref.version, ref.kind) in self.distrusted:
                    continue
                loaded = await self.believed(ref, broken, ours=ours)
                if loaded is not None:
                    return loaded
        return None

    async def believed(self, ref: StateRef, broken: Broken, *, ours: bool = False) -> Loaded | None:
        """One state; None when it cannot be believed, which is reported, or is not of ours where that is wanted."""
        try:
            loaded = await self.read(ref, ours=ours, thorough=False)
            return loaded if loaded.state.ours or not ours else None
        except NotOurs:
            return None
        except CorruptObject as error:
            broken(ref, str(error))
        except ObjectMissing as error:
            broken(ref, f"{error.key} is missing")
        return None

    async def read(self, ref: StateRef, *, ours: bool = False, thorough: bool = True) -> Loaded:
        """One state, whole. Raises CorruptObject, ObjectMissing. Costs its objects, in two round trips.

        A small state tells its files twice. Both ways are sealed: only a thorough reader decodes both and compares.

        What only a state of ours has is asked for before it is known whose this is; from others, nobody waits for it.
        With `ours`, raises NotOurs as soon as it shows that another writer made it.
        """
        ids_key = (self._paths.state_ids if ref.kind is Kind.AVRO else self._paths.checkpoint_ids)(ref.version)
        near = self._log.near
        async with (
            Meanwhile(self._ids(ids_key), near=near) as ids,
            Meanwhile(self._version_sha256(ref.version), near=near) as found,
        ):
            if ref.kind is Kind.AVRO:
                loaded = await self._read_avro(ref, ours, ids, thorough)
            else:
                loaded = await self._read_checkpoint(ref, ids, thorough)
            if loaded.state.ours:
                _check_version_file(self._paths.version(ref.version), loaded.state, await found)
                return loaded
        registry = loaded.manifest.schema_registry if loaded.manifest is not None else {}
        facts = await self._foreign.completed(self.key_of(ref), loaded.state.facts, registry)
        return dataclasses.replace(loaded, state=State(facts, loaded.state.files, ours=False))

    async def is_native(self, ref: StateRef) -> bool:
        """Whether a state is whole and written by tarnlog, whatever became of its version. I/O: its own objects."""
        try:
            if ref.kind is Kind.AVRO:
                return (await self.manifest(ref.version)).ours
            reader = self._checkpoints.json if ref.kind is Kind.JSON else self._checkpoints.parquet
            return (await reader(ref.version)).ours
        except (CorruptObject, ObjectMissing):
            return False

    def key_of(self, ref: StateRef) -> str:
        """The object whose existence completes another writer's state."""
        if ref.kind is Kind.AVRO:
            return self._paths.state_manifest_avro(ref.version)
        if ref.kind is Kind.JSON:
            return self._paths.checkpoint_json(ref.version)
        return self._paths.checkpoint_parquet_info(ref.version)

    async def all(self) -> list[StateRef]:
        """Every state there seems to be, newest first. Costs a pass over states, checkpoints and version files."""
        refs: dict[tuple[int, Kind], bool] = {}
        for prefix in (f"{self._paths.root}state-v", self._paths.checkpoints_prefix, self._paths.numbered_prefix):
            after: str | None = None
            while True:
                page = await self._store.list(prefix, start_after=after, limit=PAGE)
                self._note(page, refs)
                if len(page) < PAGE:
                    break
                after = page[-1].key
        return sorted((StateRef(*ref, foreign) for ref, foreign in refs.items()), reverse=True)

    async def newest_after(self, version: int) -> int:
        """The highest version above `version` that has an Avro state; `version` when there is none."""
        after = f"{self._paths.state_prefix(version)[:-1]}0"
        while True:
            page = await self._store.list(f"{self._paths.root}state-v", start_after=after, limit=PAGE)
            found = [ref[0] for info in page if (ref := self._ref(info.key)) is not None]
            version = max([version, *found])
            if len(page) < PAGE:
                return version
            after = page[-1].key

    def _note(self, page: list[ObjectInfo], refs: dict[tuple[int, Kind], bool]) -> None:
        for info in page:
            ref = self._ref(info.key)
            if ref is not None:
                foreign = info.key.endswith("/_manifest.avro")
                refs[ref] = foreign and refs.get(ref, True)

    async def hint(self) -> LastCheckpoint | None:
        """What `_last_checkpoint` says, if it is there and readable."""
        key = self._paths.last_checkpoint
        try:
            return decode_last_checkpoint(key, await self._store.get(key))
        except (ObjectMissing, CorruptObject):
            return None

    async def hinted(self) -> StateRef | None:
        """The state that the hint names, unless that one is known to be wrong."""
        hint = await self.hint()
        if hint is None:
            return None
        kind = {"avro-state": Kind.AVRO, "parquet": Kind.PARQUET}.get(hint.format or "json", Kind.JSON)
        return None if (hint.version, kind) in self.distrusted else StateRef(hint.version, kind)

    async def newer(self, version: int) -> list[StateRef]:
        """Avro states above a version, newest first: a hint may be older than the newest state. Costs a LIST."""
        after = f"{self._paths.root}state-v{version:020d}0"
        newer: dict[tuple[int, Kind], bool] = {}
        self._note(await self._store.list(f"{self._paths.root}state-v", start_after=after, limit=PAGE), newer)
        return sorted((StateRef(*ref, foreign) for ref, foreign in newer.items()), reverse=True)

    async def _hinted(self, at_most: int | None) -> list[StateRef]:
        """The hinted state behind newer ones. A version that is missing after it says nothing about newer states."""
        ref = await self.hinted()
        if ref is None:
            return []
        if at_most is not None and ref.version >= at_most:
            return [ref]
        return [*await self.newer(ref.version), ref]

    def _ref(self, key: str) -> tuple[int, Kind] | None:
        state = self._paths.parse_state(key)
        if state is not None:
            return (state, Kind.AVRO) if key.rsplit("/", 1)[-1] in ("_manifest.json", "_manifest.avro") else None
        parquet = self._paths.parse_checkpoint_parquet_info(key)
        if parquet is not None:
            return parquet, Kind.PARQUET
        single = self._paths.parse_checkpoint_json(key)
        return (single, Kind.JSON) if single is not None else None

    async def manifest(self, version: int) -> StateManifest:
        """An Avro state without its entries: our document, or the record other writers leave."""
        key = self._paths.state_manifest(version)
        try:
            return decode_state_manifest(key, version, await self._store.get(key))
        except ObjectMissing:
            other = self._paths.state_manifest_avro(version)
            data = await self._store.get(other)
            # Ours is written for other readers before the state is complete: only another writer's counts.
            if written_here(data):
                raise
            return decode_state_manifest_avro(other, version, data)

    async def own_manifest(self, version: int) -> StateManifest:
        """An Avro state of ours without its entries, of the very version file that is there. Costs one round trip.

        Raises NotOurs, CorruptObject, ObjectMissing.
        """
        async with Meanwhile(self._version_sha256(version), near=self._log.near) as found:
            manifest = await self.manifest(version)
            if not manifest.ours:
                raise NotOurs
            _check_version_file(self._paths.version(version), State(manifest.facts, (), ours=True), await found)
        return manifest

    async def entries(self, manifest: StateManifest, info: ManifestInfo) -> list[StateFile]:
        """The entries of one manifest of a state, tombstoned ones included."""
        return await self._entries.entries(manifest, info)

    async def live(self, manifest: StateManifest) -> Iterable[StateFile]:
        """The files that a state shows, from its manifests. Raises CorruptObject, StoreError."""
        return await self._entries.live(manifest)

    async def _read_avro(self, ref: StateRef, ours: bool, ids: Ids, thorough: bool) -> Loaded:
        manifest = await self.manifest(ref.version)
        if ours and not manifest.ours:
            raise NotOurs
        files: FileColumns | Sequence[StateFile]
        if manifest.few is not None and not thorough:
            files = manifest.few
            await self._entries.check(manifest)
        else:
            files = await self._entries.live(manifest)
            if manifest.few is not None and not same_files(manifest.few, files):
                detail = "the files that it tells are not those of its manifests"
                raise CorruptObject(self._paths.state_manifest(ref.version), detail)
        if manifest.ours and len(files) != manifest.num_files:
            detail = f"it announces {manifest.num_files} files, but its manifests show {len(files)}"
            raise CorruptObject(self._paths.state_manifest(ref.version), detail)
        state = State(manifest.facts, files, manifest.ours)
        # The files are kept once.
        kept = manifest if manifest.few is None else msgspec.structs.replace(manifest, few=None)
        return Loaded(ref, state, await ids if manifest.ours else None, kept)

    async def files(self, manifest: StateManifest, infos: Sequence[ManifestInfo], keep: Keep) -> Iterable[StateFile]:
        """The files that some manifests of a state show, at least those of partitions that `keep` wants.

        Raises CorruptObject, StoreError.
        """
        return await self._entries.live_of(manifest, infos, keep)

    async def _read_checkpoint(self, ref: StateRef, ids: Ids, thorough: bool) -> Loaded:
        if ref.kind is Kind.JSON:
            state = await self._checkpoints.json(ref.version)
        else:
            state = await self._checkpoints.parquet(ref.version, thorough=thorough)
        return Loaded(ref, state, await ids if state.ours else None)

    async def _ids(self, key: str) -> CommitIdRun:
        return decode_ids(key, await self._store.get(key))

    async def _version_sha256(self, version: int) -> str:
        data = await self._store.get(self._paths.version(version))
        if len(data) > DECODE_OFF_LOOP_ABOVE:
            return await self._world.run_blocking(lambda: sha256_hex(data))
        return sha256_hex(data)


def _check_version_file(key: str, state: State, sha256: str) -> None:
    """A state of ours describes one version file; another in its place means another log."""
    if sha256 != state.facts.version_sha256:
        raise CorruptObject(key, "it is not the version file that the state beside it was made from")
