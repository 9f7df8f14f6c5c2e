"""Refusals that stay true on every later head, and those that carry the head they were judged on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import Action, Add
from tarnlog.protocol.commits import Conflicted
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.coalesce import Answer
from tarnlog_server.core.finality import judged_on_head, refused_before_queueing
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tarnlog_server.core.validate import invalid
from tarnlog_server.core.version_record import VersionRecord
from tests.core.making import DAY_IS_MON, FIRST, add, formed, intent, record, remove, tracker, txn

FILES = (add("a"), add("b"), add("c", "tue"))


def table(*more: VersionRecord) -> SnapshotTracker:
    return tracker(record(0, FIRST), record(1, FILES), *more)


def answer_to(one: Intent, state: SnapshotTracker, **fields: Any) -> Answer | None:
    answers = formed([one], state, **fields).answers
    return answers[0][1] if answers else None


def as_of(answer: Answer | None) -> int | None:
    assert isinstance(answer, Conflicted | ProblemError)
    return answer.as_of_version if isinstance(answer, Conflicted) else answer.fields.get("asOfVersion")


REMOVED = record(2, (remove("a"),), blind=False)


@pytest.mark.parametrize(
    "one, expected",
    [
        (intent(1, remove("a"), read_version=1), None),  # a winner since readVersion removed it
        (intent(1, add("x"), read_version=1, paths=("a",)), None),
        (intent(1, add("x"), read_version=1, whole_table=True), None),
        (intent(1, add("x"), read_version=1, filters=(DAY_IS_MON,)), 2),  # its values may be known elsewhere
        (intent(1, remove("a"), read_version=2), 2),  # it may be added again
        (intent(1, add("b")), 2),  # the live file may be removed
        (intent(1, add("x"), read_version=7), 2),  # the head grows
    ],
)
def test_which_refusals_depend_on_the_head(one: Intent, expected: int | None) -> None:
    assert as_of(answer_to(one, table(REMOVED))) == expected


def test_progress_that_is_recorded_stays_recorded() -> None:
    state = table(record(2, (txn("app", 5),), blind=False))
    assert as_of(answer_to(intent(1, txn("app", 5), add("x"), read_version=2), state)) is None


def test_what_cannot_be_checked_here_may_be_checked_elsewhere() -> None:
    late = answer_to(intent(1, remove("b"), read_version=0), table(REMOVED), floor=1)
    assert isinstance(late, Conflicted)
    assert (late.rule, late.as_of_version) == ("expired", 2)


@pytest.mark.parametrize(
    "pointers, on_head",
    [
        (["/reads/filters/0"], True),
        (["/actions/3/add/partitionValues"], True),
        (["/actions/3/add/minValues/id"], True),
        (["/actions/3/add/path"], False),
        (["/actions/3"], False),
        (["/readVersion"], False),
        (["/operationMetrics"], False),
        (["/operation"], False),  # a name of the service's own
        ([""], False),
        (["/reads/filters/0", "/readVersion"], False),  # one fault of the request alone is enough
    ],
)
def test_faults_of_the_request_alone_are_final(pointers: list[str], on_head: bool) -> None:
    problem = refused_before_queueing(invalid([{"pointer": one, "message": "wrong"} for one in pointers]), 7)
    assert judged_on_head(problem.fields) is on_head


def _actions(rng: random.Random, live: set[str], spare: set[str], version: int) -> tuple[Action, ...]:
    """A version that the table allows: it adds, removes, or records progress, which only grows."""
    kind = rng.choice(("add", "add", "remove", "txn"))
    if kind == "remove" and live:
        return (remove(rng.choice(sorted(live))),)
    if kind == "add" and spare:
        return (add(rng.choice(sorted(spare)), rng.choice(("mon", "tue"))),)
    return (txn("app", version),)


@given(st.integers(0, 10**6))
def test_a_refusal_without_a_head_holds_on_every_later_head(seed: int) -> None:
    rng = random.Random(seed)
    names = {"a", "b", "c", "d", "e"}
    live = {"a", "b", "c"}
    version, records = 1, [record(0, FIRST), record(1, FILES)]
    reads = rng.choice(({}, {"whole_table": True}, {"paths": ("a", "b")}, {"filters": (DAY_IS_MON,)}))
    wanted: list[Action] = [rng.choice((remove(rng.choice("abcde")), add(rng.choice("abcdex")), txn("app", 3)))]
    fields: dict[str, Any] = {"read_version": rng.randrange(4), "isolation": rng.choice(("serializable", "snapshot"))}
    refused_at: int | None = None
    for _ in range(8):
        answer = answer_to(intent(1, *wanted, **fields, **reads), tracker(*records))
        if refused_at is not None:
            assert answer is not None, f"refused for good at {refused_at}, admitted at {version}"
        elif answer is not None and as_of(answer) is None:
            refused_at = version
        version += 1
        actions = _actions(rng, live, names - live, version)
        for action in actions:
            path = getattr(action, "path", None)
            if path is not None:
                live ^= {path}
        records.append(record(version, actions, blind=isinstance(actions[0], Add) and rng.random() < 0.5))
