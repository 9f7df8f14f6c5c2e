"""Auditing the states of a log: every object of every state is read, and compared with what replay gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

from tarnlog_server.codec.checkpoint_order import count_actions
from tarnlog_server.codec.last_checkpoint import decode_last_checkpoint
from tarnlog_server.codec.paths import state_dir
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.codec.state_manifest_avro import decode_state_manifest_avro, encode_state_manifest_avro
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.audit import Check, differences, some
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.foreign_writers import is_foreign_state
from tarnlog_server.usecases.state_read import Kind, Loaded, StateRef, States
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tarnlog_server.usecases.table_log import TableLog

HINT_TRIES = 5
SETTLE_SECONDS = 1.0
"""How long the deletion of a state, which takes several calls, is given to end."""
Place: TypeAlias = tuple[int, Kind]
"""Which state: a version may have one of each kind."""


@dataclasses.dataclass(slots=True)
class StateFindings:
    """What was found about states. `unlike` are those that are whole and tell something else than the log."""

    sound: dict[Place, bool] = dataclasses.field(default_factory=dict)
    """The states that can be believed, and whether each is ours."""
    damaged: dict[Place, str] = dataclasses.field(default_factory=dict)
    unlike: dict[Place, str] = dataclasses.field(default_factory=dict)
    compared: int = 0
    other_readers: dict[int, str] = dataclasses.field(default_factory=dict)
    """States that are sound for us, but not as other software reads them."""
    hint: str | None = None
    """What is wrong with the hint."""

    @property
    def broken(self) -> dict[Place, str]:
        return {**self.damaged, **self.unlike}


class StateAudit:
    """Reads one state after the other; in memory is one at a time."""

    def __init__(self, log: TableLog, states: States, world: World) -> None:
        self._log = log
        self._world = world
        self._states = states
        self.found = StateFindings()

    async def compare(self, ref: StateRef, replayed: Snapshot | None, since: int = -1) -> Loaded | None:
        """Read a state, and compare it with replay where there is one of its version. Gives it if it is sound.

        `since` is the version that replay began with.
        """
        place = (ref.version, ref.kind)
        try:
            loaded = await self._states.read(ref)
            stored = snapshot_of(loaded.state)
        except CorruptObject as error:
            self.found.damaged[place] = str(error)
            return None
        except ObjectMissing as error:
            if await self._is_there(ref):
                self.found.damaged[place] = f"{error.key} is missing"
            return None
        if loaded.state.ours and replayed is not None:
            unlike = differences(replayed, stored, since)
            self.found.compared += 1
            if unlike:
                self.found.unlike[place] = "; ".join(unlike)
                return None
        self.found.sound[place] = loaded.state.ours
        if loaded.manifest is not None and loaded.manifest.ours:
            await self._compare_for_others(loaded.manifest)
        return loaded

    async def settle(self, refs: Iterable[StateRef]) -> None:
        """Forget what was found about states that a cleanup was just deleting, once it had a moment to go on."""
        suspects = {*self.found.damaged, *((version, Kind.AVRO) for version in self.found.other_readers)}
        if not suspects:
            return
        await self._world.sleep(SETTLE_SECONDS)
        for ref in refs:
            if (ref.version, ref.kind) in suspects and not await self._is_there(ref):
                self.found.damaged.pop((ref.version, ref.kind), None)
                self.found.sound.pop((ref.version, ref.kind), None)
                if ref.kind is Kind.AVRO:
                    self.found.other_readers.pop(ref.version, None)

    async def _is_there(self, ref: StateRef) -> bool:
        """Whether the object that completes a state is there now."""
        key = self._log.paths.state_manifest(ref.version) if ref.kind is Kind.AVRO else self._states.key_of(ref)
        for one in {key, self._states.key_of(ref)} if ref.foreign else {key}:
            try:
                await self._log.store.head(one)
            except ObjectMissing:
                continue
            return True
        return False

    async def check_hint(self) -> None:
        """Whether the hint leads to a state that can be believed, and tells the truth about it.

        It may move while it is looked at, to a state that the walk did not see: then it is looked at again.
        """
        key = self._log.paths.last_checkpoint
        last: bytes | None = None
        for _ in range(HINT_TRIES):
            try:
                data = await self._log.store.get(key)
            except ObjectMissing:
                ours = any(self.found.sound.values())
                self.found.hint = "there is none, although there are states: opening must list them" if ours else None
                return
            if data == last:
                return
            last = data
            self.found.hint = await self._hint_fault(key, data)
            if self.found.hint is None:
                return

    async def _hint_fault(self, key: str, data: bytes) -> str | None:
        try:
            hint = decode_last_checkpoint(key, data)
        except CorruptObject as error:
            return str(error)
        kind = {"avro-state": Kind.AVRO, "parquet": Kind.PARQUET}.get(hint.format or "json", Kind.JSON)
        try:
            loaded = await self._states.read(StateRef(hint.version, kind))
        except (CorruptObject, ObjectMissing):
            return f"it names a state of version {hint.version} that is missing or damaged"
        if (hint.version, kind) in self.found.unlike:
            return f"it names the state of version {hint.version}, which is wrong"
        if loaded.state.ours:
            snapshot = snapshot_of(loaded.state)
            told = (hint.size, hint.size_in_bytes, hint.num_files)
            true = (count_actions(loaded.state.facts, snapshot.num_files), snapshot.total_bytes, snapshot.num_files)
            if told != true or hint.state_dir != (state_dir(hint.version) if kind is Kind.AVRO else None):
                return f"what it tells of the state of version {hint.version} is not so"
        return None

    async def _compare_for_others(self, manifest: StateManifest) -> None:
        version = manifest.facts.version
        key = self._log.paths.state_manifest_avro(version)
        try:
            data = await self._log.store.get(key)
            if data == (ours := encode_state_manifest_avro(manifest)):
                return
            if is_foreign_state(key, version, data):
                self.found.other_readers[version] = f"{key} is another writer's"
            elif decode_state_manifest_avro(key, version, data) != decode_state_manifest_avro(key, version, ours):
                self.found.other_readers[version] = f"{key} tells something else than the state"
        except ObjectMissing:
            self.found.other_readers[version] = f"{key} is missing"
        except CorruptObject as error:
            self.found.other_readers[version] = str(error)

    def checks(self, not_compared: str | None) -> list[Check]:
        """The findings as checks. `not_compared` says why replay did not reach every state."""
        found = self.found
        count = len(found.sound) + len(found.unlike)
        damaged = [f"version {version} ({kind.value}): {why}" for (version, kind), why in found.damaged.items()]
        unlike = [f"version {version} ({kind.value}): {why}" for (version, kind), why in found.unlike.items()]
        compared = f"{found.compared} states tell what replay gives" + (f"; {not_compared}" if not_compared else "")
        return [
            Check("states-sound", not damaged, some(damaged) or f"{count} states are whole"),
            Check("state-equals-replay", not unlike, some(unlike) or compared),
            Check(
                "states-for-other-readers",
                not found.other_readers,
                some(list(found.other_readers.values())) or "what other software reads is what the states tell",
            ),
            Check(
                "last-checkpoint", found.hint is None, found.hint or "it leads to a sound state, or nothing is there"
            ),
        ]
