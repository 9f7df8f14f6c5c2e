"""What lies in a log, listed page by page: the facts that a cleanup is planned from, and the objects behind each fact.

A listing is no snapshot. What was created meanwhile is missing from it and so is kept; what is being written right now
is told by its age, and left out while it could still be completed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator, Mapping

import msgspec

from tarnlog_server.codec.damage import names_object
from tarnlog_server.codec.paths import LogPaths, state_dir
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.retention_facts import (
    CheckpointFact,
    FloorFact,
    LogFacts,
    ManifestFact,
    StateFact,
    VersionFact,
)
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing, ObjectStore
from tarnlog_server.usecases.state_read import States

PAGE = 1000
PARALLEL_READS = 8
INCOMPLETE_MS = HOUR
"""How long the parts of a state may wait for the object that completes it, before they are what a crash left."""
UNSETTLED_MS = 10 * 60 * 1000
"""How long a state's time and size do not identify it: for stores that count seconds, and clocks that differ."""
_LAST_OF_STATE = ("_manifest.avro", "_manifest.json")


async def listed(store: ObjectStore, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
    """Every object below a prefix. Costs a LIST a thousand."""
    while True:
        page = await store.list(prefix, start_after=start_after, limit=PAGE)
        for info in page:
            yield info
        if len(page) < PAGE:
            return
        start_after = page[-1].key


@dataclasses.dataclass(frozen=True, slots=True)
class StateObjects:
    """A state directory as listed, and what its document says."""

    fact: StateFact
    keys: tuple[str, ...]
    """In the order of deletion: without `_manifest.avro` other software finds no state here, then ours does not."""


@dataclasses.dataclass(frozen=True, slots=True)
class LogListing:
    """One pass over a log. `checkpoints` are keyed as their facts are: by version and format."""

    facts: LogFacts
    states: Mapping[int, StateObjects]
    checkpoints: Mapping[tuple[int, str], tuple[str, ...]]


class Directories:
    """The manifests that states name, read once for each state as it lies there: they are many, and rarely change."""

    def __init__(self, paths: LogPaths, store: ObjectStore, states: States) -> None:
        self._paths = paths
        self._store = store
        self._states = states
        self._known: dict[int, tuple[tuple[int, int], bool, frozenset[str] | None]] = {}

    async def all(self, now_ms: int, after: int | None = None) -> dict[int, StateObjects]:
        """Every state directory, or those after a version. Costs a LIST a thousand objects and a GET for new ones."""
        found: dict[int, list[ObjectInfo]] = {}
        start = None if after is None else f"{self._paths.root}{state_dir(after)}0"
        async for info in listed(self._store, f"{self._paths.root}state-v", start):
            version = self._paths.parse_state(info.key)
            if version is not None:
                found.setdefault(version, []).append(info)
        objects: dict[int, StateObjects] = {}
        versions = sorted(found)
        for first in range(0, len(versions), PARALLEL_READS):
            some = versions[first : first + PARALLEL_READS]
            for one in await asyncio.gather(*(self._state(version, found[version], now_ms) for version in some)):
                if one is not None:
                    objects[one.fact.version] = one
        if after is None:
            self._known = {version: known for version, known in self._known.items() if version in found}
        return objects

    async def _state(self, version: int, infos: list[ObjectInfo], now_ms: int) -> StateObjects | None:
        age = now_ms - max(info.modified_ms for info in infos)
        keys = sorted((info.key for info in infos), key=_deletion_order)
        complete = {info.key: info for info in infos}.get(self._paths.state_manifest(version))
        avro = any(info.key == self._paths.state_manifest_avro(version) for info in infos)
        if complete is None and not avro and age <= INCOMPLETE_MS:
            return None
        mark = (complete.modified_ms, complete.size) if complete is not None else (-1, len(infos))
        known = self._known.get(version)
        if known is None or known[0] != mark:
            known = (mark, *await self._document(version))
            # A state that is written again within the resolution of the store's clock may look the same: what is young
            # is read every time.
            if known[2] is not None and age > UNSETTLED_MS:
                self._known[version] = known
        _, ours, manifests = known
        if manifests is None and complete is None:
            # Nobody can read it: it was never completed, or is half deleted.
            if age <= INCOMPLETE_MS:
                return None
            manifests, ours = frozenset(), False
            fact = StateFact(version, age, ours, False, manifests, state_dir(version))
        else:
            fact = StateFact(
                version, age, ours, None if manifests is not None else False, manifests, state_dir(version)
            )
        return StateObjects(fact, tuple(keys))

    async def _document(self, version: int) -> tuple[bool, frozenset[str] | None]:
        """Whether a state is ours, and its manifests as keys below the log's root; None when it cannot be read."""
        try:
            manifest = await self._states.manifest(version)
            with names_object(self._paths.state_manifest(version), "a manifest's path"):
                keys = [self._paths.resolve_manifest(info.path, version) for info in manifest.manifests]
        except (CorruptObject, ObjectMissing):
            return False, None
        # Neighbouring states name the same manifests: each name is kept once.
        return manifest.ours, frozenset(sys.intern(self._paths.relative(key)) for key in keys)


async def list_log(store: ObjectStore, paths: LogPaths, directories: Directories, now_ms: int) -> LogListing:
    """All of a log but its manifests. Costs a LIST a thousand objects, and a GET for each state not known yet."""
    versions: list[VersionFact] = []
    parts: dict[tuple[int, str], list[ObjectInfo]] = {}
    async for info in listed(store, paths.numbered_prefix):
        version = paths.parse_version(info.key)
        if version is not None:
            versions.append(VersionFact(version, now_ms - info.modified_ms))
        elif (number := _json_checkpoint(paths, info.key)) is not None:
            parts.setdefault((number, "json"), []).append(info)
    ids: dict[int, ObjectInfo] = {}
    async for info in listed(store, paths.checkpoints_prefix):
        number = _parquet_checkpoint(paths, info.key)
        if number is not None:
            parts.setdefault((number, "parquet"), []).append(info)
        elif (number := paths.parse_checkpoint_ids(info.key)) is not None:
            ids[number] = info
    for number, info in ids.items():
        kinds = [key for key in parts if key[0] == number] or [(number, "ids")]
        for kind in kinds:
            parts.setdefault(kind, []).append(info)
    states = await directories.all(now_ms)
    floors = await list_floors(store, paths, now_ms)
    checkpoints = {key: found for key, found in parts.items() if _settled(paths, key, found, now_ms)}
    facts = LogFacts(
        versions=tuple(versions),
        states=tuple(one.fact for one in states.values()),
        checkpoints=tuple(
            CheckpointFact(version, now_ms - max(info.modified_ms for info in found), None, kind)
            for (version, kind), found in sorted(checkpoints.items())
        ),
        floors=floors,
    )
    ordered = {key: _checkpoint_keys(paths, key, found) for key, found in checkpoints.items()}
    return LogListing(facts, states, ordered)


async def list_floors(store: ObjectStore, paths: LogPaths, now_ms: int) -> tuple[FloorFact, ...]:
    """Every floor that was published and is still there."""
    found = []
    async for info in listed(store, paths.floor_prefix):
        version = paths.parse_floor(info.key)
        if version is not None:
            found.append(FloorFact(version, now_ms - info.modified_ms))
    return tuple(found)


async def list_manifests(store: ObjectStore, paths: LogPaths, now_ms: int) -> tuple[ManifestFact, ...]:
    """The shared manifests."""
    found = []
    async for info in listed(store, paths.manifests_prefix):
        name = paths.parse_manifest(info.key)
        if name is not None:
            found.append(ManifestFact(name, now_ms - info.modified_ms))
    return tuple(found)


def marked(facts: LogFacts, states: Mapping[int, bool], checkpoints: Mapping[tuple[int, str], bool]) -> LogFacts:
    """The same facts with what was found about the soundness of some states and checkpoints."""
    return msgspec.structs.replace(
        facts,
        states=tuple(
            msgspec.structs.replace(one, valid=states[one.version]) if one.version in states else one
            for one in facts.states
        ),
        checkpoints=tuple(
            msgspec.structs.replace(one, valid=checkpoints[(one.version, one.name)])
            if (one.version, one.name) in checkpoints
            else one
            for one in facts.checkpoints
        ),
    )


def _deletion_order(key: str) -> tuple[int, str]:
    name = key.rsplit("/", 1)[-1]
    return (_LAST_OF_STATE.index(name) if name in _LAST_OF_STATE else len(_LAST_OF_STATE), key)


def _json_checkpoint(paths: LogPaths, key: str) -> int | None:
    part = paths.parse_checkpoint_part(key)
    return part[0] if part is not None else paths.parse_checkpoint_json(key)


def _parquet_checkpoint(paths: LogPaths, key: str) -> int | None:
    part = paths.parse_checkpoint_parquet(key)
    return part[0] if part is not None else paths.parse_checkpoint_parquet_info(key)


def _completing(paths: LogPaths, version: int, kind: str) -> str:
    """The object that makes a checkpoint one: without it, its parts are nothing."""
    return paths.checkpoint_json(version) if kind == "json" else paths.checkpoint_parquet_info(version)


def _settled(paths: LogPaths, key: tuple[int, str], found: list[ObjectInfo], now_ms: int) -> bool:
    """Whether a checkpoint is complete, or so old that nobody can still be writing it."""
    completing = _completing(paths, *key)
    youngest = max(info.modified_ms for info in found)
    return now_ms - youngest > INCOMPLETE_MS or any(info.key == completing for info in found)


def _checkpoint_keys(paths: LogPaths, key: tuple[int, str], found: list[ObjectInfo]) -> tuple[str, ...]:
    completing = _completing(paths, *key)
    return tuple(sorted((info.key for info in found), key=lambda name: (name != completing, name)))
