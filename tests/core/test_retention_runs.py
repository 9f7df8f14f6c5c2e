"""Cleanups that stop anywhere, between commits, states, damage and the passing of time: what must hold all the while.

The log here is a toy in memory, and the checks know nothing of the plan. Every deletion and every floor is one step
after which a run may stop; the checks hold after each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.core.retention_facts import (
    FLOOR_RIPE_MS,
    CheckpointFact,
    FloorFact,
    LogFacts,
    ManifestFact,
    RetentionSettings,
    StateFact,
    VersionFact,
)
from tarnlog_server.core.retention_plan import plan, plan_manifests
from tarnlog_server.core.setting_values import DAY, HOUR


@dataclasses.dataclass
class State:
    made: int
    manifests: frozenset[str]
    ours: bool = True
    sound: bool = True


class Log:
    """Objects by name, each with the time it was stored."""

    def __init__(self, settings: RetentionSettings, adopted_from: int | None) -> None:
        self.settings = settings
        self.now = 1000 * DAY
        self.adopted_from = adopted_from
        self.versions: dict[int, int] = {0: self.now}
        self.states: dict[int, State] = {}
        self.checkpoints: dict[int, int] = {}
        self.floors: dict[int, int] = {}
        self.manifests: dict[str, int] = {}
        self.head = 0
        self.damaged = False
        if adopted_from is not None:  # only states tell of what others wrote; our first version and state follow
            for version in range(1, adopted_from + 1):
                self.head = version
                self._write_state(version, ours=False)
            self.commit()
            self.write_state()

    @property
    def floor(self) -> int | None:
        return max(self.floors, default=None)

    def commit(self) -> None:
        self.head += 1
        self.versions[self.head] = self.now

    def write_state(self) -> None:
        if self.head not in self.states:
            self._write_state(self.head, ours=True)

    def _write_state(self, version: int, *, ours: bool) -> None:
        base = max((at for at, one in self.states.items() if one.sound and at < version), default=None)
        shared = self.states[base].manifests if base is not None and version % 4 else frozenset()
        own = f"manifests/{version}-{len(self.manifests)}-{self.now}"
        self.manifests[own] = self.now
        self.states[version] = State(self.now, shared | {own}, ours)

    def damage(self, nth: int) -> None:
        """Spoil the n-th state from the newest on."""
        if len(self.states) >= nth:
            self.states[sorted(self.states)[-nth]].sound = False
            self.damaged = True

    def facts(self, validated: set[int]) -> LogFacts:
        """What a listing shows; a state's soundness only where somebody looked."""
        return LogFacts(
            versions=tuple(VersionFact(v, self.now - at) for v, at in self.versions.items()),
            states=tuple(
                StateFact(
                    v, self.now - one.made, one.ours, one.sound if v in validated else None, one.manifests, f"s{v}"
                )
                for v, one in self.states.items()
            ),
            checkpoints=tuple(CheckpointFact(v, self.now - at, True) for v, at in self.checkpoints.items()),
            floors=tuple(FloorFact(v, self.now - at) for v, at in self.floors.items()),
            adopted_from=self.adopted_from,
        )

    def cleanup(self) -> Iterator[None]:
        """One run; yields after every change to the store."""
        validated = {self.floor} if self.floor is not None else set()
        for _ in range(3):
            made = plan(self.facts(validated), self.settings)
            if made.floor.validate is not None:
                validated.add(made.floor.validate)
            elif made.floor.build is not None and self.can_rebuild(made.floor.build):
                self.states.pop(made.floor.build, None)
                self._write_state(made.floor.build, ours=True)
                validated.add(made.floor.build)
                yield
        for version in made.versions:
            self.check_gates(version)
            del self.versions[version]
            yield
        for checkpoint in made.checkpoints:
            del self.checkpoints[checkpoint.version]
            yield
        for state in made.states:
            del self.states[state.version]
            yield
        listed = [ManifestFact(name, self.now - at) for name, at in self.manifests.items()]
        for name in plan_manifests(listed, self.facts(set()).states, self.settings).delete:
            del self.manifests[name]
            yield
        if made.floor.publish is not None:
            self.floors.setdefault(made.floor.publish, self.now)
            yield

    def can_rebuild(self, version: int) -> bool:
        """Replay up to a version, from 0 or from a sound state."""
        bases = [-1, *(v for v, one in self.states.items() if one.sound and v <= version)]
        return any(all(v in self.versions for v in range(base + 1, version + 1)) for base in bases)

    def check_gates(self, version: int) -> None:
        """All the gates of a version file, said once more."""
        assert self.settings.enabled
        assert self.now - self.versions[version] > self.settings.log_ms
        assert self.now - self.versions[version] > self.settings.dedupe_ms
        assert self.floor is not None
        assert version < self.floor <= self.head
        assert self.now - self.floors[self.floor] >= FLOOR_RIPE_MS
        assert self.states[self.floor].ours
        assert self.states[self.floor].sound

    def check(self) -> None:
        first = 0 if self.adopted_from is None else self.adopted_from + 1
        for version in range(max(self.floor or 0, first), self.head + 1):
            assert version in self.versions, "contiguous from the floor to the head"
        for version, one in self.states.items():
            assert one.manifests <= self.manifests.keys(), f"the manifests of state {version}"
        for floor in self.floors:
            replaced = [at for other, at in self.floors.items() if other > floor]
            if not replaced or self.now - min(replaced) < FLOOR_RIPE_MS:
                assert floor in self.versions, "the version file of a floor"
                assert floor in self.states, "the state of a floor"
                assert all(v in self.versions for v in range(floor, self.head + 1)), "versions from a recent floor on"
        for version, at in self.versions.items():
            if self.now - at <= max(self.settings.log_ms, self.settings.dedupe_ms):
                assert version >= (self.floor or 0), "retention's promise: young versions exist for readers"
        if not self.damaged:
            for version in range(self.floor or 0, self.head + 1):
                assert version in self.states or self.can_rebuild(version), (
                    "time travel to every version from the floor"
                )


Move = tuple[str, int]
MOVES = st.one_of(
    st.tuples(st.just("commit"), st.integers(1, 4)),
    st.tuples(st.just("state"), st.just(1)),
    st.tuples(st.just("wait"), st.sampled_from([HOUR, 2 * HOUR, DAY, 2 * DAY, 8 * DAY, 31 * DAY])),
    st.tuples(st.just("cleanup"), st.integers(0, 12)),
    st.tuples(st.just("cleanup"), st.just(1000)),
    st.tuples(st.just("checkpoint"), st.just(1)),
    st.tuples(st.just("damage"), st.integers(1, 4)),
)
SETTINGS = st.builds(
    RetentionSettings,
    enabled=st.sampled_from([True, True, True, False]),
    log_ms=st.sampled_from([HOUR, 2 * DAY, 30 * DAY]),
    dedupe_ms=st.sampled_from([HOUR, DAY]),
    state_versions=st.integers(1, 3),
    state_ms=st.sampled_from([0, HOUR, 7 * DAY]),
)


@given(SETTINGS, st.none() | st.integers(1, 3), st.lists(MOVES, max_size=40))
def test_cleanups_that_stop_anywhere_break_nothing(
    settings: RetentionSettings, adopted_from: int | None, moves: list[Move]
) -> None:
    log = Log(settings, adopted_from)
    for kind, amount in moves:
        before = (len(log.versions), len(log.states), len(log.manifests), len(log.floors))
        match kind:
            case "commit":
                for _ in range(amount):
                    log.commit()
            case "state":
                log.write_state()
            case "wait":
                log.now += amount
            case "damage":
                log.damage(amount)
            case "checkpoint":
                log.checkpoints[log.head] = log.now
            case _:
                for steps, _ in enumerate(log.cleanup(), start=1):
                    log.check()
                    if steps >= amount:
                        break
                if not settings.enabled:
                    assert before == (len(log.versions), len(log.states), len(log.manifests), len(log.floors))
        log.check()


def run(log: Log) -> None:
    for _ in log.cleanup():
        log.check()


def aged(adopted_from: int | None = None) -> Log:
    """Sixty days of a commit a day, a state every fifth."""
    log = Log(RetentionSettings(), adopted_from)
    for day in range(60):
        log.now += DAY
        log.commit()
        if day % 5 == 0:
            log.write_state()
    return log


def test_daily_cleanups_keep_a_log_as_long_as_its_retention() -> None:
    for adopted_from in (None, 3):
        log = aged(adopted_from)
        for _ in range(5):
            run(log)
            log.now += DAY
            log.commit()
            log.write_state()
        run(log)
        ages = [log.now - at for at in log.versions.values()]
        assert 30 * DAY < max(ages) <= 33 * DAY
        assert len(log.states) <= 10
        reachable = set().union(*(one.manifests for one in log.states.values()))
        assert log.manifests.keys() - reachable <= {name for name, at in log.manifests.items() if log.now - at <= HOUR}


def test_a_damaged_anchor_stops_deletion_until_it_is_rebuilt() -> None:
    log = aged()
    run(log)
    floor = log.floor
    assert floor is not None
    log.now += DAY
    log.states[floor].sound = False
    made = plan(log.facts({floor}), log.settings)
    assert made.versions == ()
    assert made.floor.build == floor
    assert 0 in log.versions
    run(log)
    assert log.states[floor].sound
    assert min(log.versions) == floor


def test_the_checks_would_notice() -> None:
    """Each broken promise, made by hand, is seen: the checks above are not empty."""

    def broken(harm: Callable[[Log], object]) -> bool:
        log = aged()
        run(log)
        log.check()
        harm(log)
        try:
            log.check()
        except AssertionError:
            return True
        return False

    assert broken(lambda log: log.versions.pop(log.head))
    assert broken(lambda log: log.states.pop(log.floor or 0))
    assert broken(lambda log: log.versions.pop(log.floor or 0))
    assert broken(lambda log: log.manifests.pop(next(iter(log.states[log.floor or 0].manifests))))
    assert broken(lambda log: log.floors.update({log.head: log.now}))
    assert not broken(lambda log: None)
