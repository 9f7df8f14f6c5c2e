"""What may be deleted of a log: each gate by a case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarnlog_server.core.retention_facts import (
    CheckpointFact,
    FloorFact,
    LogFacts,
    ManifestFact,
    RetentionSettings,
    StateFact,
    VersionFact,
    retention_settings,
)
from tarnlog_server.core.retention_plan import FloorMove, Kept, plan, plan_manifests
from tarnlog_server.core.setting_values import DAY, HOUR, MINUTE

DEFAULTS = RetentionSettings()
OLD = 40 * DAY


def versions(*ages: int, first: int = 0) -> tuple[VersionFact, ...]:
    return tuple(VersionFact(first + index, age) for index, age in enumerate(ages))


def state(version: int, age_ms: int = HOUR, **fields: Any) -> StateFact:
    values = {"ours": True, "valid": True, "manifests": frozenset({f"manifests/{version}"}), **fields}
    return StateFact(version, age_ms, directory=f"state-v{version:020d}", **values)


def facts(**fields: Any) -> LogFacts:
    """Versions 0..9, all old but the last two; state 5 is valid and carries a floor of two days."""
    values: dict[str, Any] = {
        "versions": versions(*[OLD] * 8, DAY, HOUR),
        "states": (state(5), state(9)),
        "floors": (FloorFact(5, 2 * DAY),),
        **fields,
    }
    return LogFacts(**values)


def reason_of(log: LogFacts, kind: str, version: int, settings: RetentionSettings = DEFAULTS) -> str:
    return next(one.reason for one in plan(log, settings).kept if one.kind == kind and one.first <= version <= one.last)


def test_versions_below_a_ripe_floor_go_in_order() -> None:
    made = plan(facts(), DEFAULTS)
    assert made.versions == (0, 1, 2, 3, 4)
    assert made.kept[:2] == (
        Kept("version", 5, 8, 4, "it is not below the floor 5"),
        Kept("version", 9, 9, 1, "it is the newest version"),
    )


@pytest.mark.parametrize(
    "change,word",
    [
        ({"floors": ()}, "no floor"),
        ({"floors": (FloorFact(5, DAY - 1),)}, "24 hours"),
        ({"floors": (FloorFact(3, 9 * DAY), FloorFact(5, HOUR))}, "24 hours"),
        ({"states": (state(9),)}, "not found valid"),
        ({"states": (state(5, valid=False), state(9))}, "not found valid"),
        ({"states": (state(5, valid=None), state(9))}, "not found valid"),
        ({"states": (state(5, ours=False), state(9))}, "not found valid"),
        ({"states": (state(5, manifests=None), state(9))}, "not found valid"),
        ({"versions": versions(*[30 * DAY] * 10)}, "retention"),
        ({"versions": tuple(one for one in versions(*[OLD] * 10) if one.version != 7)}, "version 7 is missing"),
        ({"versions": tuple(one for one in versions(*[OLD] * 10) if one.version != 5)}, "version 5 is missing"),
    ],
)
def test_one_closed_gate_keeps_every_version(change: dict[str, Any], word: str) -> None:
    made = plan(facts(**change), DEFAULTS)
    assert made.versions == ()
    assert word in reason_of(facts(**change), "version", 2)


def test_each_version_has_its_own_age() -> None:
    log = facts(versions=versions(OLD, DAY, OLD, OLD, OLD, OLD, OLD, OLD))
    assert plan(log, DEFAULTS).versions == (0, 2, 3, 4)


def test_ids_in_the_dedupe_window_stay_however_short_the_log_is_kept() -> None:
    short = RetentionSettings(log_ms=1, dedupe_ms=DAY)
    log = facts(versions=versions(DAY + 16 * MINUTE, DAY + 14 * MINUTE, *[HOUR] * 8))
    assert plan(log, short).versions == (0,)


def test_cleanup_disabled_keeps_everything() -> None:
    log = facts(checkpoints=(CheckpointFact(1, OLD, True),), states=(state(1, OLD), state(5), state(8), state(9)))
    made = plan(log, RetentionSettings(enabled=False))
    assert (made.versions, made.states, made.checkpoints) == ((), (), ())
    assert (made.floor.publish, made.floor.build, made.floor.validate) == (None, None, None)
    assert {one.reason for one in made.kept} == {"cleanup.enabled is false"}
    gone = plan_manifests([ManifestFact("manifests/x", OLD)], (), RetentionSettings(enabled=False))
    assert gone.delete == ()


@pytest.mark.parametrize(
    "change,expected",
    [
        # 8 is the first version that must stay readable, so a floor may be 8 and no higher
        ({"states": (state(5), state(7), state(8), state(9))}, FloorMove(publish=8)),
        ({"states": (state(5), state(7), state(9))}, FloorMove(publish=7)),
        ({"states": (state(5), state(7, valid=None))}, FloorMove(validate=7)),
        ({"states": (state(5), state(6), state(7, valid=False))}, FloorMove(publish=6)),
        ({"states": (state(5), state(7, ours=False), state(9))}, FloorMove(build=8)),
        ({"states": (state(5), state(9))}, FloorMove(build=8)),
        ({"floors": (), "states": (state(3),)}, FloorMove(publish=3)),
        ({"floors": (), "states": ()}, FloorMove(build=8)),
        # never past the head
        ({"versions": versions(*[OLD] * 10), "states": (state(5), state(9))}, FloorMove(publish=9)),
        # a floor that is not ripe is not replaced
        ({"floors": (FloorFact(5, DAY - 1),), "states": (state(5), state(7))}, FloorMove()),
        ({"floors": (FloorFact(8, 2 * DAY),), "states": (state(8), state(9))}, FloorMove()),
        ({"floors": (FloorFact(5, 2 * DAY),), "states": (state(7),)}, FloorMove(build=5)),
        ({"floors": (FloorFact(5, 2 * DAY),), "states": (state(5, valid=False), state(7))}, FloorMove(build=5)),
        ({"versions": versions(OLD, HOUR, OLD, OLD), "floors": (), "states": (state(3),)}, FloorMove(build=1)),
        ({"versions": versions(HOUR, OLD, OLD), "floors": (), "states": (state(2),)}, FloorMove()),
        ({"versions": versions(OLD, OLD, first=3), "floors": (), "states": (state(4),)}, FloorMove()),
        ({"versions": (), "floors": (), "states": ()}, FloorMove()),
        # adopted at 3: the log begins at 4, and no floor lies in what others wrote
        (
            {
                "versions": versions(OLD, OLD, OLD, HOUR, first=4),
                "adopted_from": 3,
                "floors": (),
                "states": (state(4), state(6)),
            },
            FloorMove(publish=6),
        ),
        # a version whose only record is a young state must stay readable
        (
            {
                "versions": (VersionFact(0, OLD), *versions(OLD, OLD, OLD, first=4)),
                "adopted_from": 3,
                "floors": (),
                "states": (state(2, DAY, ours=False), state(6)),
            },
            FloorMove(),
        ),
    ],
)
def test_where_the_floor_goes(change: dict[str, Any], expected: FloorMove) -> None:
    move = plan(facts(**change), DEFAULTS).floor
    assert msgspec.structs.replace(move, reason="") == expected
    assert move.reason or move.publish is not None


def kept_states(log: LogFacts, settings: RetentionSettings = DEFAULTS) -> set[int]:
    made = plan(log, settings)
    return {one.version for one in log.states} - {one.version for one in made.states}


def test_states_the_newest_the_young_and_the_floors_stay() -> None:
    old = 8 * DAY
    states = (state(1, old), state(2, DAY), state(4, old), state(5, old), state(8, old), state(9, old))
    assert kept_states(facts(states=states)) == {2, 5, 8, 9}
    assert [one.version for one in plan(facts(states=states), DEFAULTS).states] == [1, 4]
    lately = facts(states=states, floors=(FloorFact(4, 9 * DAY), FloorFact(5, DAY - 1)))
    assert kept_states(lately) == {2, 4, 5, 8, 9}
    long_ago = facts(states=states, floors=(FloorFact(4, 9 * DAY), FloorFact(5, DAY)))
    assert kept_states(long_ago) == {2, 5, 8, 9}


def test_damaged_states_do_not_count_as_the_newest() -> None:
    old = 8 * DAY
    states = (state(5, old), state(6, old), state(7, old), state(8, old, valid=False), state(9, old, valid=False))
    assert kept_states(facts(states=states)) == {5, 6, 7}


def test_the_state_that_the_next_floor_needs_stays() -> None:
    old = 8 * DAY
    states = (state(5, old), state(6, old), state(7, old, valid=None), state(8, DAY), state(9, DAY))
    log = facts(states=states, versions=versions(*[OLD] * 8, DAY, HOUR))
    only_one = RetentionSettings(state_versions=1)
    before = facts(states=(*states[:3], state(9, old)))
    assert plan(before, only_one).floor.validate == 7
    assert kept_states(before, only_one) == {5, 7, 9}
    assert plan(log, DEFAULTS).floor.publish == 8
    assert kept_states(log) == {5, 8, 9}


@pytest.mark.parametrize(
    "change,kept",
    [
        ({"pointed": 2}, {2, 5, 8, 9}),
        ({"states": (state(2, OLD), state(5, OLD), state(8, OLD), state(9, OLD), state(11, OLD))}, {5, 8, 9, 11}),
        ({"versions": tuple(one for one in versions(*[OLD] * 10) if one.version != 7)}, {2, 5, 8, 9}),
    ],
)
def test_states_that_a_troubled_log_needs_stay(change: dict[str, Any], kept: set[int]) -> None:
    states = (state(2, OLD), state(5, OLD), state(8, OLD), state(9, OLD))
    assert kept_states(facts(**{"states": states, **change})) == kept


def test_an_adopted_log_keeps_what_it_begins_with_until_a_floor_covers_it() -> None:
    theirs = tuple(state(version, OLD, ours=False) for version in (1, 2, 3))
    ours = tuple(state(version, OLD) for version in (4, 6, 8, 9))
    shape = {"versions": (VersionFact(0, OLD), *versions(*[OLD] * 6, first=4)), "adopted_from": 3}
    assert kept_states(facts(states=theirs + ours, floors=(), **shape)) == {1, 2, 3, 4, 8, 9}
    assert kept_states(facts(states=theirs + ours, floors=(FloorFact(6, 2 * DAY),), **shape)) == {6, 8, 9}


def test_a_directory_whose_manifests_others_use_stays() -> None:
    def legacy(version: int, *uses: int) -> StateFact:
        names = frozenset(f"state-v{used:020d}/m.avro" for used in uses)
        return state(version, OLD, ours=False, manifests=names)

    chain = (legacy(1, 1), legacy(2, 1, 2), legacy(3, 3), legacy(8, 2, 8), state(9, OLD))
    assert kept_states(facts(states=chain, floors=())) == {1, 2, 8, 9}
    unreadable = (*chain[:3], state(8, OLD, ours=False, manifests=None), state(9, OLD))
    assert kept_states(facts(states=unreadable, floors=())) == {1, 2, 3, 8, 9}


@pytest.mark.parametrize(
    "checkpoints,states,gone",
    [
        (((3, DAY, True), (6, DAY, True)), (), [3]),
        (((3, DAY, True), (6, DAY, False)), (), []),
        (((3, DAY, True), (6, DAY, None)), (), []),
        (((3, 2 * HOUR, True), (6, DAY, True)), (), []),
        (((3, DAY, False), (6, DAY, True)), (), [3]),
        (((3, DAY, True),), (state(9),), [3]),
        (((3, DAY, True),), (state(9, valid=None),), []),
        (((3, DAY, True), (12, DAY, True)), (), []),
    ],
)
def test_checkpoints(
    checkpoints: tuple[tuple[int, int, bool], ...], states: tuple[StateFact, ...], gone: list[int]
) -> None:
    log = facts(checkpoints=tuple(CheckpointFact(*one) for one in checkpoints), states=states, floors=())
    assert [one.version for one in plan(log, DEFAULTS).checkpoints] == gone


def test_a_truncated_log_of_others_keeps_the_checkpoint_it_begins_with() -> None:
    log = LogFacts(
        versions=versions(*[OLD] * 5, first=20),
        checkpoints=(CheckpointFact(20, OLD, True), CheckpointFact(24, OLD, True)),
        adopted_from=23,
        states=(state(24),),
    )
    assert plan(log, DEFAULTS).checkpoints == ()


def test_manifests_by_reachability_and_age() -> None:
    listed = [
        ManifestFact(f"manifests/{name}", age) for name, age in (("1", OLD), ("2", OLD), ("3", HOUR), ("4", HOUR + 1))
    ]
    made = plan_manifests(listed, [state(1, valid=False), state(9, manifests=frozenset())], DEFAULTS)
    assert made.delete == ("manifests/2", "manifests/4")
    assert {(one.count, one.reason.split()[0]) for one in made.kept} == {(1, "a"), (1, "it")}
    assert plan_manifests(listed, [state(1), state(2, manifests=None)], DEFAULTS).delete == ()


def test_settings() -> None:
    assert retention_settings({}) == RetentionSettings()
    table = {"purge.txLogRetentionHours": "48", "state.retention.hours": "1", "cleanup.enabled": "false"}
    service = {"state.retention.versions": "5", "commit.dedupe.duration": "1h", "state.gc.minManifestAgeHours": "3"}
    expected = RetentionSettings(
        enabled=False, log_ms=2 * DAY, state_ms=HOUR, state_versions=5, dedupe_ms=HOUR, manifest_ms=3 * HOUR
    )
    assert retention_settings(table, service) == expected


def test_a_long_log_is_planned_in_one_pass() -> None:
    log = facts(versions=versions(*[OLD] * 100_000), states=(state(99_000),), floors=(FloorFact(99_000, 2 * DAY),))
    assert len(plan(log, DEFAULTS).versions) == 99_000
