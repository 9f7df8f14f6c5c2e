"""Which states and checkpoints of a log are sound: read whole, as far as a cleanup has to know it."""

from __future__ import annotations

from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.retention_facts import LogFacts, RetentionSettings
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases import log_listing
from tarnlog_server.usecases.anchor import check_anchor
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.state_read import Kind, StateRef


class Soundness:
    """What one cleanup found out. Whatever it did not look at is unknown."""

    def __init__(self, live: LiveTable, world: World, settings: RetentionSettings, progress: Progress) -> None:
        self.states: dict[int, bool] = {}
        self._checkpoints: dict[tuple[int, str], bool] = {}
        self._live = live
        self._world = world
        self._settings = settings
        self._progress = progress

    def marked(self, facts: LogFacts) -> LogFacts:
        """The facts of a log with what was found out."""
        return log_listing.marked(facts, self.states, self._checkpoints)

    async def fault_of(self, version: int) -> str | None:
        """What is wrong with a state of ours; None when it is sound. Costs all its objects. Raises StoreError."""
        fault: str | None = None
        try:
            await check_anchor(self._live, self._world, version, self._progress)
        except CorruptObject as error:
            fault = str(error)
        except ObjectMissing as error:
            fault = f"{error.key} is missing"
        self.states[version] = fault is None
        return fault

    async def find_newest(self, facts: LogFacts) -> None:
        """Old checkpoints go once something newer is known to be sound: find the newest that is."""
        if not any(one.age_ms > self._settings.checkpoint_ms for one in facts.checkpoints):
            return
        found = [(one.version, "avro") for one in facts.states if one.ours and one.valid is not False]
        found += [(one.version, one.name) for one in facts.checkpoints if one.name != "ids"]
        for version, kind in sorted((one for one in found if one[0] <= facts.head), reverse=True):
            if kind == "avro":
                sound = await self.fault_of(version) is None
            else:
                sound = await self._can_be_read(StateRef(version, Kind.JSON if kind == "json" else Kind.PARQUET))
                self._checkpoints[(version, kind)] = sound
            if sound:
                return

    async def _can_be_read(self, ref: StateRef) -> bool:
        try:
            await self._live.states.read(ref)
        except (CorruptObject, ObjectMissing):
            return False
        return True
