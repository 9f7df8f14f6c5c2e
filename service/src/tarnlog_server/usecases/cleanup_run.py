"""One cleanup of one log: what core.retention_plan allows, carried out in an order that may stop anywhere.

The floor's state is read whole first; if it is damaged, nothing is deleted and it is built again. Then: versions below
the floor, ascending; checkpoints; states; manifests that no state uses; and the next floor last, so that nothing goes
on the word of a floor that was published in the same run. Every deletion alone is harmless. The floors are read again
before states go, and states are listed again before manifests go: another replica may be doing the same.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable

import msgspec

from tarnlog_server.codec.paths import state_dir
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.retention_facts import FLOOR_RIPE_MS, LogFacts, RetentionSettings, StateFact
from tarnlog_server.core.retention_plan import CleanupPlan, plan, plan_manifests
from tarnlog_server.ports.object_store import ObjectMissing, OutcomeUnknown
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.anchor import build_anchor
from tarnlog_server.usecases.catalog import SETTLE_ATTEMPTS
from tarnlog_server.usecases.deleting import AT_ONCE, Deleting, Stopped, StoreGaveUp
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.log_listing import (
    Directories,
    LogListing,
    list_floors,
    list_log,
    list_manifests,
)
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.soundness import Soundness

_log = logging.getLogger(__name__)
PLANS = 6
"""How often a run plans anew: for each state it validates or builds on the way to the next floor."""
STALE_MS = FLOOR_RIPE_MS // 2
"""After so long what was listed is too old to delete states by it: a floor that others published since is soon ripe."""


class Moved(Exception):
    """Another replica moved the floor meanwhile: what was planned for states is void."""


@dataclasses.dataclass(slots=True)
class Cleaned:
    """What a run did, or what it would do."""

    status: str = "success"
    versions: int = 0
    checkpoints: int = 0
    states: int = 0
    manifests: int = 0
    preserved: int = 0
    newest_state: int | None = None
    floor: int | None = None
    failures: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)


class CleanupRun:
    """One run. `settings` are the table's; `dry` changes nothing."""

    def __init__(
        self,
        live: LiveTable,
        world: World,
        directories: Directories,
        settings: RetentionSettings,
        *,
        stop_at_failure: bool,
        dry: bool,
        progress: Progress,
        before_building: Callable[[], Awaitable[None]],
    ) -> None:
        self._live = live
        self._world = world
        self._store = live.log.store
        self._paths = live.log.paths
        self._directories = directories
        self._settings = settings
        self._dry = dry
        self._progress = progress
        self._before_building = before_building
        self._deleting = Deleting(self._store, stop_at_failure=stop_at_failure, progress=progress)
        self._soundness = Soundness(live, world, settings, progress)
        self._now = world.now_ms()
        self.done = Cleaned()

    async def run(self) -> Cleaned:
        """Clean up. Raises StoreError, CorruptObject. Costs a listing of the log, the floor's state, the deletions."""
        self._now = self._world.now_ms()
        listing = await list_log(self._store, self._paths, self._directories, self._now)
        facts = await self._completed(listing.facts)
        listing = dataclasses.replace(listing, facts=facts)
        self.done.floor = facts.floor.version if facts.floor is not None else None
        if not self._settings.enabled:
            self.done.status = "disabled"
            self.done.notes.append("cleanup.enabled is false: everything is kept")
            return self._counted(facts, manifests=0)
        if facts.floor is not None:
            self._live.raise_floor(facts.floor.version)
            if not await self._anchor_stands(facts.floor.version):
                return self._counted(facts, manifests=0)
        await self._soundness.find_newest(facts)
        made, listing = await self._planned(listing)
        try:
            await self._carry_out(made, listing)
        except Moved as moved:
            self.done.notes.append(str(moved))
        except StoreGaveUp as gave_up:
            self.done.notes.append(f"the store does not delete ({gave_up.error}): the rest is left for the next run")
        except Stopped as stopped:
            self.done.failures = self._deleting.failures
            self.done.status = "failed"
            self.done.notes.append(f"{stopped}, and cleanup.failurePolicy is fail: nothing was deleted after that")
            return self.done
        self.done.failures = self._deleting.failures
        if self.done.failures:
            self.done.status = "partial"
            self.done.notes.append(f"{self.done.failures} deletions failed: the next run tries again")
        return self.done

    async def _completed(self, facts: LogFacts) -> LogFacts:
        """With what only reading tells: the hint, and whether a log that does not begin with 0 was adopted there."""
        hint = await self._live.states.hint()
        adopted = None
        if facts.unbroken_from > 0 and (facts.floor is None or facts.floor.version < facts.unbroken_from):
            adopted = (await self._live.log.read(facts.unbroken_from)).adopted_from
        pointed = hint.version if hint is not None else None
        return msgspec.structs.replace(facts, pointed=pointed, adopted_from=adopted)

    def _counted(self, facts: LogFacts, manifests: int) -> Cleaned:
        """What stays: all that was looked at, less what went."""
        done = self.done
        listed = len(facts.versions) + len(facts.checkpoints) + len(facts.states) + manifests
        done.preserved = listed - done.versions - done.checkpoints - done.states - done.manifests
        sound = [one.version for one in facts.states if one.valid is not False and one.version <= facts.head]
        sound += [one.version for one in facts.checkpoints if one.valid is not False and one.version <= facts.head]
        done.newest_state = max(sound, default=None)
        return done

    async def _anchor_stands(self, floor: int) -> bool:
        """Read the floor's state whole. A damaged one is built again for the next run; this one deletes nothing."""
        reason = await self._soundness.fault_of(floor)
        if reason is None:
            return True
        self.done.status = "anchor-damaged"
        note = f"nothing was deleted: the state of the floor {floor} cannot be trusted ({reason})"
        if self._dry:
            self.done.notes.append(f"{note}; a cleanup would build it again first")
            return False
        _log.warning("table %s: %s", self._live.name, note)
        try:
            await build_anchor(self._live, self._world, floor, self._progress)
            self.done.notes.append(f"{note}; it was built again, so the next cleanup goes on")
        except (CorruptObject, ObjectMissing) as error:
            self.done.notes.append(f"{note}, and cannot be built again: {error}; restore that object from a copy")
        return False

    async def _planned(self, listing: LogListing) -> tuple[CleanupPlan, LogListing]:
        """The plan, after what it asks for was validated or built."""
        facts, made = await self._plan(listing.facts)
        for _ in range(PLANS):
            wanted, missing = made.floor.validate, made.floor.build
            if wanted is not None:
                await self._soundness.fault_of(wanted)
            elif missing is not None and not self._dry:
                if not await self._built(missing):
                    break
                fact = await self._fact_of(missing)
                others = tuple(one for one in listing.facts.states if one.version != missing)
                listing = dataclasses.replace(
                    listing, facts=msgspec.structs.replace(listing.facts, states=(*others, fact))
                )
            else:
                break
            facts, made = await self._plan(listing.facts)
        if self._dry and made.floor.build is not None:
            self.done.notes.append(f"a state would be built at version {made.floor.build}, for the next floor")
        elif made.floor.reason and made.floor.publish is None:
            self.done.notes.append(f"the floor stays: {made.floor.reason}")
        return made, dataclasses.replace(listing, facts=facts)

    async def _plan(self, listed: LogFacts) -> tuple[LogFacts, CleanupPlan]:
        """Off the event loop: a log may have a million versions."""

        def work() -> tuple[LogFacts, CleanupPlan]:
            facts = self._soundness.marked(listed)
            return facts, plan(facts, self._settings)

        return await self._world.run_blocking(work)

    async def _built(self, version: int) -> bool:
        await self._before_building()
        try:
            await build_anchor(self._live, self._world, version, self._progress)
        except (CorruptObject, ObjectMissing) as error:
            _log.warning("table %s: no state can be built at version %s: %s", self._live.name, version, error)
            self.done.notes.append(f"no state can be built at version {version}: {error}")
            return False
        self._soundness.states[version] = True
        return True

    async def _fact_of(self, version: int) -> StateFact:
        manifest = await self._live.states.manifest(version)
        keys = (self._paths.resolve_manifest(info.path, version) for info in manifest.manifests)
        names = frozenset(self._paths.relative(key) for key in keys)
        return StateFact(version, 0, True, True, names, state_dir(version))

    async def _carry_out(self, made: CleanupPlan, listing: LogListing) -> None:
        facts, manifests = listing.facts, 0
        try:
            if self._dry:
                self.done.status = "dry-run"
                self.done.versions, self.done.states = len(made.versions), len(made.states)
                self.done.checkpoints = len(made.checkpoints)
            else:
                await self._deleting.each(map(self._paths.version, made.versions), "versions")
                await self._delete_checkpoints(made, listing)
                await self._delete_states(made, listing)
            manifests = await self._manifests({one.version for one in made.states} if self._dry else set())
            await self._move_floor(made, facts)
        finally:
            if not self._dry:
                for kind in ("versions", "checkpoints", "states", "manifests"):
                    setattr(self.done, kind, self._deleting.gone[kind])
            self._counted(facts, manifests)

    async def _delete_checkpoints(self, made: CleanupPlan, listing: LogListing) -> None:
        going = {(one.version, one.name) for one in made.checkpoints}
        staying = {key for names, keys in listing.checkpoints.items() if names not in going for key in keys}
        groups = [
            # Two checkpoints of one version share the file of commit ids.
            [key for key in listing.checkpoints[names] if key not in staying]
            for names in sorted(going)
        ]
        await self._deleting.groups(groups, "checkpoints")

    async def _delete_states(self, made: CleanupPlan, listing: LogListing) -> None:
        floor = listing.facts.floor.version if listing.facts.floor is not None else None
        for start in range(0, len(made.states), AT_ONCE):
            await self._still_stands(floor)
            some = made.states[start : start + AT_ONCE]
            groups = [listing.states[one.version].keys for one in some]
            await self._deleting.groups(groups, "states")

    async def _still_stands(self, floor: int | None) -> None:
        now = self._world.now_ms()
        floors = await list_floors(self._store, self._paths, now)
        if max((one.version for one in floors), default=None) != floor:
            raise Moved("another replica moved the floor: states are left for the next run")
        if now - self._now > STALE_MS:
            raise Moved("the run took too long: states are left for the next run")

    async def _manifests(self, going: set[int]) -> int:
        """Delete manifests that no state uses; how many there were. Listed before the states that may use them."""
        now = self._world.now_ms()
        found = await list_manifests(self._store, self._paths, now)
        states = await self._directories.all(now)
        facts = [one.fact for one in states.values() if one.fact.version not in going]
        planned = await self._world.run_blocking(lambda: plan_manifests(found, facts, self._settings))
        unused = planned.delete
        if self._dry:
            self.done.manifests = len(unused)
            return len(found)
        newest = max(states, default=-1)
        for start in range(0, len(unused), AT_ONCE):
            # A state that came since may share some: whoever wrote it looks again, too.
            fresh = [one.fact for one in (await self._directories.all(now, after=newest)).values()]
            used = {name for one in fresh for name in one.manifests or ()}
            if any(one.manifests is None for one in fresh):
                break
            keys = [f"{self._paths.root}{name}" for name in unused[start : start + AT_ONCE] if name not in used]
            await self._deleting.each(keys, "manifests")
        return len(found)

    async def _move_floor(self, made: CleanupPlan, facts: LogFacts) -> None:
        """Publish the next floor, and let go of those that nobody needs to see any more."""
        wanted = made.floor.publish
        if wanted is not None and self._dry:
            self.done.notes.append(f"the floor would move to version {wanted}")
        elif wanted is not None:
            await self._live.states.manifest(wanted)
            await self._publish(wanted)
            self._live.raise_floor(wanted)
            try:
                await self._live.states.manifest(wanted)
            except ObjectMissing:
                # Another replica, which could not know of this floor yet, let its state go.
                await build_anchor(self._live, self._world, wanted, self._progress)
            self.done.floor = max(wanted, self.done.floor or 0)
            self.done.notes.append(f"the floor moved to version {wanted}: versions below it are deleted after 24 hours")
        if not self._dry:
            old = [one.version for one in facts.floors if one.version not in facts.pinned]
            await self._deleting.each(map(self._paths.floor, old), "floors")

    async def _publish(self, floor: int) -> None:
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                await self._store.put_if_absent(self._paths.floor(floor), b"")
                return
            except OutcomeUnknown:
                if attempt == SETTLE_ATTEMPTS - 1:
                    raise
                await self._world.sleep(0.1 * 2**attempt)
