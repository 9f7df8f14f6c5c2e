"""The conflict rules as tables of cases, taken from the protocol's own words: which winner stops which commit.

Every case runs through FORMING, as a commit does: version 0 creates the table, version 1 adds files, version 2 is the
winner, and the loser was planned on version 1.
"""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog.protocol.actions import Action, Add, MetaData
from tarnlog.protocol.commits import Conflicted
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.conflict import MAX_PATHS, MAX_WINNERS, RULES
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.version_record import VersionRecord
from tests.core.making import (
    DAY_IS_MON,
    DAY_IS_TUE,
    FIRST,
    LONGER_SCHEMA,
    SCHEMA,
    WIDER_SCHEMA,
    add,
    commit_id,
    foreign,
    formed,
    intent,
    metadata,
    protocol,
    record,
    remove,
    skip,
    sub_id,
    tracker,
    txn,
)

FILES = (add("mon.1", low=1, high=9), add("mon.2", low=10, high=19), add("tue.1", "tue", low=1, high=9))
APPEND_MON, APPEND_TUE = add("mon.new", low=50, high=59), add("tue.new", "tue", low=50, high=59)
SER, WSER, SNAP = "serializable", "write-serializable", "snapshot"


def table(*winners: VersionRecord) -> SnapshotTracker:
    return tracker(record(0, FIRST), record(1, FILES), *winners)


def verdict(loser: Intent, state: SnapshotTracker, **fields: Any) -> Conflicted | None:
    """The conflict a commit is told, or None when it is taken."""
    batch = formed([loser], state, **fields)
    if batch.members:
        assert batch.members == [loser]
        return None
    ((answered, answer),) = batch.answers
    assert answered is loser
    assert isinstance(answer, Conflicted), answer
    return answer


def rule_of(loser: Intent, *winners: VersionRecord, **fields: Any) -> str | None:
    found = verdict(loser, table(*winners), **fields)
    return found.rule if found else None


def planned(*actions: Action, **reads: Any) -> Intent:
    """A commit planned on version 1."""
    return intent(999, *actions, **{"read_version": 1, **reads})


# append -----------------------------------------------------------------------------------------------------------
WHOLE: dict[str, Any] = {"whole_table": True}
MON: dict[str, Any] = {"filters": (DAY_IS_MON,)}
TUE: dict[str, Any] = {"filters": (DAY_IS_TUE,)}
SMALL: dict[str, Any] = {"filters": ({"op": "lt", "column": "id", "value": 50},)}
LARGE: dict[str, Any] = {"filters": ({"op": "ge", "column": "id", "value": 50},)}
PATHS: dict[str, Any] = {"paths": ("mon.1",)}
APPS: dict[str, Any] = {"app_ids": ("app",)}


@pytest.mark.parametrize(
    "reads, winner_blind, conflicts_at",
    [
        # A winner that is not a blind append counts for both; a blind one only at serializable.
        (WHOLE, False, {SER, WSER}),
        (WHOLE, True, {SER}),
        (MON, False, {SER, WSER}),
        (MON, True, {SER}),
        (LARGE, False, {SER, WSER}),
        (LARGE, True, {SER}),
        # What the winner added is not what the loser read.
        (TUE, False, set()),
        (TUE, True, set()),
        (SMALL, False, set()),
        (PATHS, False, set()),
        (APPS, False, set()),
        # Of several filters one is enough.
        ({"filters": (DAY_IS_TUE, DAY_IS_MON)}, False, {SER, WSER}),
    ],
)
@pytest.mark.parametrize("isolation", [SER, WSER, SNAP])
def test_append(reads: dict[str, Any], winner_blind: bool, conflicts_at: set[str], isolation: str) -> None:
    loser = planned(add("mine"), isolation=isolation, **reads)
    found = verdict(loser, table(record(2, (APPEND_MON,), blind=winner_blind)))
    assert (found is not None) == (isolation in conflicts_at)
    if found is not None:
        assert (found.rule, found.paths, found.retry) == ("append", ("mon.new",), "rebase")


@pytest.mark.parametrize("isolation", [SER, WSER, SNAP])
def test_a_blind_append_never_conflicts(isolation: str) -> None:
    winners = (record(2, (APPEND_MON, remove("mon.1"), txn("app", 1))), record(3, (metadata(LONGER_SCHEMA),)))
    assert rule_of(intent(999, add("mine"), isolation=isolation), *winners) is None
    assert rule_of(intent(999, add("mine"), isolation=isolation, read_version=0), *winners) is None


def test_a_commit_that_read_nothing_is_not_stopped_by_an_append() -> None:
    for actions in ((add("mine"), txn("app", 1)), (remove("mon.1"),), (skip("mon.1"),)):
        assert rule_of(planned(*actions, isolation=SER), record(2, (APPEND_MON,), blind=False)) is None


def test_a_version_of_other_software_is_not_blind() -> None:
    assert rule_of(planned(add("mine"), isolation=WSER, **WHOLE), foreign(2, APPEND_MON)) == "append"


def test_a_file_without_bounds_may_hold_what_was_read() -> None:
    assert rule_of(planned(add("mine"), isolation=SER, **SMALL), record(2, (add("unknown"),))) == "append"


# delete-read --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "reads, removed, conflict",
    [
        (PATHS, "mon.1", True),
        (PATHS, "mon.2", False),
        ({"paths": ("./mon.1",)}, "mon.1", True),
        (WHOLE, "tue.1", True),
        (MON, "mon.1", True),
        (MON, "tue.1", False),
        (TUE, "tue.1", True),
        ({"filters": ({"op": "gt", "column": "id", "value": 9},)}, "mon.1", False),
        ({"filters": ({"op": "gt", "column": "id", "value": 9},)}, "mon.2", True),
        (APPS, "mon.1", False),
        ({}, "mon.1", False),
    ],
)
@pytest.mark.parametrize("isolation", [SER, WSER, SNAP])
def test_delete_read(reads: dict[str, Any], removed: str, conflict: bool, isolation: str) -> None:
    """At every isolation: what was read is gone. A filter is held against the removed file's own values."""
    loser = planned(add("mine"), txn("x", 1), isolation=isolation, **reads)
    found = verdict(loser, table(record(2, (remove(removed),))))
    assert (found is not None) == conflict
    if found is not None:
        assert (found.rule, found.paths) == ("delete-read", (removed,))


def test_a_removed_file_whose_values_nobody_knows_counts_as_read() -> None:
    """An old winner is read back from the log without the files it removed."""
    state = tracker(
        record(0, FIRST), record(1, FILES), record(2, (remove("tue.1"),)), record(3, ()), window=Window(versions=1)
    )
    assert state.steps_after(1) is None
    full = table(record(2, (remove("tue.1"),)), record(3, ()))
    known = full.steps_after(1)
    assert known is not None
    forgotten = [type(step)(step.record, {}, step.metadata_before) for step in known]
    loser = planned(add("mine"), **MON)
    assert verdict(loser, state, older=lambda version: known) is None
    found = verdict(planned(add("mine"), **MON), state, older=lambda version: forgotten)
    assert found is not None
    assert found.rule == "delete-read"
    waiting = formed([planned(add("mine"), **MON)], state, older=lambda version: None)
    assert (len(waiting.needs_history), waiting.members, waiting.answers) == (1, [], [])


# delete-delete ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("isolation", [SER, WSER, SNAP])
def test_delete_delete(isolation: str) -> None:
    winner = record(2, (remove("mon.1"),))
    found = verdict(planned(remove("mon.1"), remove("mon.2"), isolation=isolation), table(winner))
    assert found is not None
    assert (found.rule, found.paths) == ("delete-delete", ("mon.1",))
    assert [one.version for one in found.winners] == [2]
    assert rule_of(planned(remove("mon.2"), isolation=isolation), winner) is None
    assert rule_of(planned(remove("./mon.1"), isolation=isolation), winner) == "delete-delete", "the same file"


def test_removing_what_was_removed_before_names_the_version_that_removed_it() -> None:
    """Also where the commit says that it was planned on that version or a later one."""
    state = table(record(2, (txn("a", 1),), (remove("mon.1"),)), record(3, (add("x"),)))
    found = verdict(planned(remove("mon.1"), remove("never.there"), read_version=3), state)
    assert found is not None
    assert (found.rule, found.paths) == ("delete-delete", ("mon.1",))
    assert [(one.version, one.seq, one.commit_id) for one in found.winners] == [(2, 1, str(sub_id(2, 1)))]


def test_removing_what_never_was_a_file_is_invalid() -> None:
    ((_, answer),) = formed([planned(remove("mon.1"), remove("never.there"))], table()).answers
    assert isinstance(answer, ProblemError)
    assert answer.slug == "commit-invalid"
    assert [one["pointer"] for one in answer.fields["errors"]] == ["/actions/1/remove/path"]


def test_a_path_removed_and_added_again_by_winners_still_conflicts() -> None:
    """The file that the loser wants to remove is not the file it saw."""
    assert rule_of(planned(remove("mon.1")), record(2, (remove("mon.1"),)), record(3, (add("mon.1"),))) == (
        "delete-delete"
    )


# txn ----------------------------------------------------------------------------------------------------------------
def test_the_winner_wrote_an_application_the_loser_read() -> None:
    winner = record(2, (txn("app", 5),))
    found = verdict(planned(add("mine"), **APPS), table(winner))
    assert found is not None
    assert (found.rule, found.retry, found.last_txn_version) == ("txn", "rebase", None)
    assert rule_of(planned(add("mine"), app_ids=("other",)), winner) is None


@pytest.mark.parametrize("version, conflict", [(4, True), (5, True), (6, False), (100, False)])
@pytest.mark.parametrize("planned_on", [1, 2])
def test_progress_that_is_recorded_is_never_recorded_again(version: int, conflict: bool, planned_on: int) -> None:
    """Gaps are allowed; an equal or lower version is done, and a retry can never help."""
    found = verdict(
        planned(add("mine"), txn("app", version), read_version=planned_on), table(record(2, (txn("app", 5),)))
    )
    assert (found is not None) == conflict
    if found is not None:
        assert (found.rule, found.retry, found.last_txn_version) == ("txn", "never", 5)


def test_done_is_told_as_done_whatever_else_clashes_below_it() -> None:
    """A sink that sends its batch again under a new id: the files it removes are gone by its own first commit."""
    first = record(2, (txn("app", 5), remove("mon.1"), add("mon.1b")))
    again = planned(txn("app", 5), remove("mon.1"), add("mon.1c"), paths=("mon.1",), app_ids=("app",))
    found = verdict(again, table(first))
    assert found is not None
    assert (found.rule, found.retry, found.last_txn_version) == ("txn", "never", 5)
    for reads in (WHOLE, MON, APPS):
        found = verdict(planned(txn("app", 4), add("mon.1c"), isolation=SER, **reads), table(first))
        assert found is not None
        assert (found.rule, found.retry, found.last_txn_version) == ("txn", "never", 5)


# metadata -----------------------------------------------------------------------------------------------------------
DESCRIBED = metadata(description="theirs")


@pytest.mark.parametrize(
    "winner, loser, conflict",
    [
        # Both change it.
        (DESCRIBED, (metadata(description="ours"),), True),
        (metadata(a="1"), (metadata(b="2"),), True),
        (metadata(LONGER_SCHEMA), (metadata(description="ours"),), True),
        # The loser does not, and its files are not touched by the change.
        (DESCRIBED, (add("mine"),), False),
        (metadata(a="1"), (remove("mon.1"),), False),
        (metadata(LONGER_SCHEMA), (add("mine", low=1, high=2),), False),
        # The type of a column that the loser's files have.
        (metadata(WIDER_SCHEMA), (add("mine", low=1),), True),
        (metadata(WIDER_SCHEMA), (add("mine", high=1),), True),
        (metadata(WIDER_SCHEMA), (remove("mon.1"),), False),
        (metadata(WIDER_SCHEMA), (txn("app", 1),), False),
        # The presence of one.
        (
            metadata('{"type":"struct","fields":[{"name":"day","type":"string","nullable":true,"metadata":{}}]}'),
            (add("mine", low=1),),
            True,
        ),
        # The partitioning, whatever the loser does.
        (metadata(partitions=()), (add("mine"),), True),
        (metadata(partitions=()), (remove("mon.1"),), True),
        # The same again is no change.
        (metadata(), (metadata(description="ours"),), False),
    ],
)
@pytest.mark.parametrize("isolation", [SER, WSER, SNAP])
def test_metadata(winner: MetaData, loser: tuple[Action, ...], conflict: bool, isolation: str) -> None:
    found = rule_of(planned(*loser, isolation=isolation, paths=("tue.1",)), record(2, (winner,)))
    assert found == ("metadata" if conflict else None)


REGISTRY: dict[str, Any] = {"docMappingSchema__theirs": "[1]"}
OURS: dict[str, Any] = {"docMappingSchema__ours": "[2]"}


def _written(loser: Intent, state: SnapshotTracker) -> MetaData:
    assert verdict(loser, state) is None
    (written,) = loser.actions
    assert isinstance(written, MetaData)
    assert loser.footprint.metadata == written
    return written


def test_registering_mappings_never_conflicts_and_both_are_kept() -> None:
    both = {"docMappingSchema.theirs": "[1]", "docMappingSchema.ours": "[2]"}
    state = table(record(2, (metadata(**REGISTRY),)))
    assert _written(planned(metadata(**OURS)), state).configuration == both


def test_registering_a_mapping_keeps_what_others_changed_meanwhile() -> None:
    changed = metadata(LONGER_SCHEMA, description="theirs", a="1", **REGISTRY)
    written = _written(planned(metadata(**OURS)), table(record(2, (changed,))))
    assert (written.description, written.schema_string) == ("theirs", LONGER_SCHEMA)
    assert written.configuration == {"a": "1", "docMappingSchema.theirs": "[1]", "docMappingSchema.ours": "[2]"}


def test_registering_a_mapping_survives_a_lost_slot() -> None:
    """FORMING may see one commit several times, each time on a newer head."""
    loser = planned(metadata(**OURS))
    state = table(record(2, (metadata(description="one"),)))
    assert _written(loser, state).description == "one"
    state.advance(record(3, (metadata(description="two", **REGISTRY),)))
    written = _written(loser, state)
    assert written.description == "two"
    assert written.configuration == {"docMappingSchema.theirs": "[1]", "docMappingSchema.ours": "[2]"}


def test_a_change_is_not_stopped_by_a_registered_mapping_and_keeps_it() -> None:
    written = _written(planned(metadata(description="ours")), table(record(2, (metadata(**REGISTRY),))))
    assert (written.description, written.configuration) == ("ours", {"docMappingSchema.theirs": "[1]"})


# protocol -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "winner, loser, conflict",
    [
        (protocol(), (protocol(),), True),
        (protocol(), (add("mine"), txn("a", 1)), False),
        (protocol(5, 4), (add("mine"), txn("a", 1)), True),
        (protocol(4, 5), (remove("mon.1"),), True),
        (protocol(writer_features=("teleport",)), (remove("mon.1"),), True),
        (protocol(reader_features=("teleport",)), (remove("mon.1"),), True),
        (protocol(writer_features=("checkpoint", "optimizeWrite")), (remove("mon.1"),), False),
    ],
)
def test_protocol(winner: Action, loser: tuple[Action, ...], conflict: bool) -> None:
    assert rule_of(planned(*loser), record(2, (winner,))) == ("protocol" if conflict else None)


# expired ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("floor, rule", [(0, None), (1, None), (2, "expired"), (3, "expired")])
def test_expired(floor: int, rule: str | None) -> None:
    state = table(record(2, (APPEND_TUE,)), record(3, ()))
    found = verdict(planned(remove("mon.1")), state, floor=floor)
    assert (found.rule if found else None) == rule
    if found:
        assert [one.version for one in found.winners] == [floor]
        assert str(floor) in found.detail
    assert verdict(intent(999, add("mine")), state, floor=floor) is None, "a blind append read nothing"


def test_expired_comes_before_everything_else() -> None:
    state = table(record(2, (protocol(), remove("mon.1"))))
    assert getattr(verdict(planned(protocol(), remove("mon.1")), state, floor=2), "rule", None) == "expired"


def test_a_read_version_above_the_head_is_refused() -> None:
    for loser in (planned(remove("mon.1"), read_version=2), intent(999, add("mine"), read_version=2)):
        ((_, answer),) = formed([loser], table()).answers
        assert isinstance(answer, ProblemError)
        assert answer.slug == "commit-invalid"
        assert answer.fields["errors"][0]["pointer"] == "/readVersion"


# no conflict without a winner ---------------------------------------------------------------------------------------
NAMED: list[tuple[str, tuple[Action, ...], tuple[Action, ...], dict[str, Any]]] = [
    ("expired", (APPEND_TUE,), (remove("mon.1"),), {"floor": 2}),
    ("protocol", (protocol(),), (protocol(),), {}),
    ("metadata", (metadata(description="theirs"),), (metadata(description="ours"),), {}),
    ("txn", (txn("app", 5),), (txn("app", 5),), {}),
    ("txn", (txn("app", 5),), (add("mine"),), {"app_ids": ("app",)}),
    ("append", (add("mon.new"), txn("z", 1)), (add("mine"),), {"whole_table": True, "isolation": SER}),
    ("delete-read", (remove("mon.1"),), (add("mine"),), {"paths": ("mon.1",)}),
    ("delete-delete", (remove("mon.1"),), (remove("mon.1"),), {}),
    ("delete-delete", (remove("mon.1"),), (remove("mon.1"),), {"read_version": 2}),
]


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("rule, winner, loser, how", NAMED)
def test_every_conflict_names_its_winner(
    rule: str, winner: tuple[Action, ...], loser: tuple[Action, ...], how: dict[str, Any], forgotten: bool
) -> None:
    """With all of the winner while it is in memory, with its version alone after that."""
    fields = dict(how)
    floor = fields.pop("floor", 0)
    state = table(record(2, winner))
    if forgotten:
        small = tracker(record(0, FIRST), record(1, FILES), record(2, winner), window=Window(versions=1))
        for version in (3, 4, 5):
            small.advance(record(version, ()))
        state, floor = small, floor and 2
        if rule in ("txn", "delete-delete") and not fields.get("app_ids"):
            fields["read_version"] = 5  # else the older versions are read first
    answers = formed([planned(*loser, **fields)], state, floor=floor).answers
    if forgotten and not answers:
        return  # it waits for its winners
    ((_, found),) = answers
    assert isinstance(found, Conflicted)
    assert found.rule == rule
    assert [one.version for one in found.winners] == [2]
    wanted = (None, "UNKNOWN") if forgotten else (str(sub_id(2, 0)), "OP-2-0")
    assert (found.winners[0].commit_id, found.winners[0].operation) == wanted


# the order of the rules, and who is named -----------------------------------------------------------------------------
def test_the_rules_are_asked_in_the_protocols_order() -> None:
    assert [name for name, _ in RULES] == ["protocol", "metadata", "txn", "append", "delete-read", "delete-delete"]


ORDER: list[tuple[str, Action, Action]] = [
    ("protocol", protocol(), protocol()),
    ("metadata", DESCRIBED, metadata(description="ours")),
    ("txn", txn("app", 5), txn("app", 9)),
    ("append", APPEND_MON, add("mine", data_change=True)),
    ("delete-read", remove("mon.2"), add("mine.2", data_change=True)),
    ("delete-delete", remove("mon.1"), remove("mon.1")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_broken_rules_the_first_is_told(first: int) -> None:
    """Winner and loser that break rule `first` and every later one."""
    reads: dict[str, Any] = {"app_ids": ("app",)}
    reads["filters"] = (DAY_IS_MON,) if first <= 3 else ({"op": "eq", "column": "id", "value": 12},)
    if first == 5:
        reads = {}
    winner = tuple(theirs for _, theirs, _ in ORDER[first:])
    loser = tuple(ours for _, _, ours in ORDER[first:])
    assert rule_of(planned(*loser, isolation=SER, **reads), record(2, winner, blind=False)) == ORDER[first][0]


def test_rules_are_asked_per_winner_and_the_first_broken_one_is_told_with_all_who_break_it() -> None:
    state = table(
        record(2, (APPEND_TUE,), (remove("mon.1"),)),
        record(3, (add("mon.late"),), (txn("app", 1),), (remove("mon.2"),), blind=False),
    )
    found = verdict(planned(add("mine"), isolation=SER, **MON, **APPS), state)
    assert found is not None
    assert found.rule == "delete-read", "the oldest winner decides which rule is told"
    assert [(one.version, one.seq) for one in found.winners] == [(2, 1), (3, 2)]
    assert found.paths == ("mon.1", "mon.2")


def test_winners_are_named_by_sub_commit() -> None:
    state = table(record(2, (APPEND_TUE,), (APPEND_MON,), (add("mon.more"),), blind=False))
    found = verdict(planned(add("mine"), **MON), state)
    assert found is not None
    assert [(one.version, one.seq, one.operation) for one in found.winners] == [(2, 1, "OP-2-1"), (2, 2, "OP-2-2")]
    assert [one.commit_id for one in found.winners] == [str(sub_id(2, 1)), str(sub_id(2, 2))]
    assert found.commit_id == str(commit_id(999))


def test_a_winner_of_other_software_has_no_id() -> None:
    found = verdict(planned(remove("mon.1")), table(foreign(2, remove("mon.1"))))
    assert found is not None
    (winner,) = found.winners
    assert (winner.version, winner.seq, winner.commit_id, winner.operation) == (2, 0, None, "UNKNOWN")


def test_what_came_before_the_read_version_does_not_count() -> None:
    state = table(record(2, (remove("mon.2"), txn("app", 1))), record(3, (APPEND_MON,), blind=False))
    assert verdict(planned(add("mine"), read_version=3, **WHOLE), state) is None
    found = verdict(planned(add("mine"), read_version=2, **WHOLE, **APPS), state)
    assert found is not None
    assert [one.version for one in found.winners] == [3]


def test_long_lists_are_cut() -> None:
    state = table(*(record(n, tuple(add(f"m{n}.{i}") for i in range(20)), blind=False) for n in range(2, 40)))
    found = verdict(planned(add("mine"), **MON), state)
    assert found is not None
    assert len(found.winners) == MAX_WINNERS
    assert len(found.paths) == MAX_PATHS


# compaction -----------------------------------------------------------------------------------------------------------
QUIET: dict[str, Any] = {"data_change": False}


def test_compaction_does_not_fight_appends_but_does_fight_deletes() -> None:
    """A commit of only dataChange=false file actions is checked at snapshot isolation, whatever it asks for."""
    compaction = (remove("mon.1", **QUIET), remove("mon.2", **QUIET), add("mon.big", **QUIET))
    for isolation in (SER, WSER, SNAP):
        for reads in ({}, WHOLE, MON, {"paths": ("mon.1", "mon.2")}):
            loser = planned(*compaction, isolation=isolation, **reads)
            assert rule_of(loser, record(2, (APPEND_MON,), blind=False)) is None
    assert rule_of(planned(*compaction), record(2, (remove("mon.2"),))) == "delete-delete"
    assert rule_of(planned(*compaction, **WHOLE), record(2, (remove("tue.1"),))) == "delete-read"
    mixed = planned(*compaction, add("mon.data"), isolation=SER, **WHOLE)
    assert rule_of(mixed, record(2, (APPEND_MON,), blind=False)) == "append"


def test_schemas_of_the_cases_are_real() -> None:
    for text in (SCHEMA, WIDER_SCHEMA, LONGER_SCHEMA):
        assert schema_of(text).fields
    assert all(isinstance(file, Add) for file in FILES)
