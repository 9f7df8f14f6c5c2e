"""FORMING: who goes into the next version together, who waits, who is answered; and that together equals one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Action, MetaData, Skip
from tarnlog.protocol.commits import Committed, Conflicted
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.coalesce import Limits
from tarnlog_server.core.compose import compose
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tarnlog_server.core.version_record import VersionRecord
from tests.core.dumb_commits import Plan, conflicts, first_files, plans, refused_by_head
from tests.core.dumb_table import DumbTable
from tests.core.making import (
    DAY_IS_MON,
    DAY_IS_TUE,
    FIRST,
    NOW,
    add,
    commit_id,
    formed,
    intent,
    metadata,
    protocol,
    record,
    remove,
    skip,
    tracker,
    txn,
)

FILES = (add("mon.1"), add("mon.2"), add("tue.1", "tue"))


def table(*more: VersionRecord) -> SnapshotTracker:
    return tracker(record(0, FIRST), record(1, FILES), *more)


def on_head(number: int, *actions: Action, **fields: Any) -> Intent:
    return intent(number, *actions, **{"read_version": 1, **fields})


def append(number: int, path: str = "", day: str = "mon", **fields: Any) -> Intent:
    return intent(number, add(path or f"new.{number}", day), **fields)


def sorted_out(
    waiting: list[Intent], state: SnapshotTracker | None = None, **fields: Any
) -> tuple[list[int], list[int]]:
    """Positions of the members and of the deferred ones; nobody may be answered."""
    batch = formed(waiting, state or table(), **fields)
    assert batch.answers == []
    assert batch.needs_history == []
    return [waiting.index(one) for one in batch.members], [waiting.index(one) for one in batch.deferred]


def test_independent_commits_go_together_in_order() -> None:
    waiting = [append(n) for n in range(100)]
    assert sorted_out(waiting) == (list(range(100)), [])


@pytest.mark.parametrize(
    "first, second",
    [
        # The same path.
        (append(1, "x"), append(2, "x")),
        (append(1, "x"), append(2, "./x")),
        (append(1, "a b"), append(2, "a%20b")),
        (on_head(1, remove("mon.1")), on_head(2, remove("mon.1"))),
        (on_head(1, remove("mon.1")), on_head(2, skip("mon.1"))),
        (on_head(1, skip("mon.1")), on_head(2, skip("mon.1"))),
        (on_head(1, skip("mon.1")), on_head(2, remove("mon.1"))),
        # The same application.
        (on_head(1, txn("app", 1)), on_head(2, txn("app", 2))),
        (on_head(1, txn("app", 1)), on_head(2, add("y"), app_ids=("app",))),
        # What it read is what a member adds or removes.
        (append(1, "x"), on_head(2, add("y"), whole_table=True)),
        (append(1, "x"), on_head(2, add("y"), filters=(DAY_IS_MON,))),
        (append(1, "x"), on_head(2, add("y"), filters=(DAY_IS_MON,), isolation="serializable")),
        (on_head(1, remove("mon.1")), on_head(2, add("y"), paths=("mon.1",))),
        (on_head(1, remove("mon.1")), on_head(2, add("y"), whole_table=True)),
        (on_head(1, remove("mon.1")), on_head(2, add("y"), filters=(DAY_IS_MON,))),
        # The same commit twice.
        (append(1, "x"), append(1, "x")),
        (append(1, "x"), append(1, "y")),
        # Alone by nature or by wish.
        (append(1), on_head(2, metadata(description="d"))),
        (append(1), on_head(2, protocol())),
        (append(1), append(2, coalesce=False)),
        (append(1, coalesce=False), append(2)),
        (on_head(1, metadata(description="d")), append(2)),
        (on_head(1, metadata(description="d")), on_head(2, metadata(description="e"))),
        (on_head(1, protocol()), on_head(2, metadata(description="e"))),
    ],
)
def test_what_depends_on_a_member_waits_and_later_ones_go_on(first: Intent, second: Intent) -> None:
    members, deferred = sorted_out([first, second])
    assert (members, deferred) == ([0], [1])
    alone = first.alone
    members, deferred = sorted_out([first, second, append(50), append(51)])
    assert (members, deferred) == (([0], [1, 2, 3]) if alone else ([0, 2, 3], [1]))


@pytest.mark.parametrize(
    "first, second",
    [
        (append(1, "x"), append(2, "X")),
        (on_head(1, remove("mon.1")), on_head(2, remove("mon.2"))),
        (on_head(1, txn("app", 1)), on_head(2, txn("other", 1))),
        (on_head(1, txn("app", 1)), append(2)),
        (append(1, "x"), on_head(2, add("y"), filters=(DAY_IS_TUE,))),
        (append(1, "x"), on_head(2, add("y"), paths=("mon.1",))),
        (append(1, "x"), on_head(2, add("y"), app_ids=("app",))),
        (append(1, "x"), on_head(2, remove("mon.1"))),
        # A member that read something does not mind what comes after it.
        (on_head(1, add("y"), whole_table=True), append(2)),
        (on_head(1, add("y"), paths=("mon.1",)), on_head(2, remove("mon.1"))),
        (on_head(1, add("y"), app_ids=("app",)), on_head(2, txn("app", 1))),
    ],
)
def test_what_does_not_depend_goes_along(first: Intent, second: Intent) -> None:
    assert sorted_out([first, second]) == ([0, 1], [])


def test_a_deferred_commit_is_answered_by_what_happened() -> None:
    """Deferral is not refusal: in the next batch the ordinary rules decide."""
    state = table()
    waiting = [on_head(1, remove("mon.1")), on_head(2, remove("mon.1")), on_head(3, remove("mon.2")), append(1, "z")]
    first = formed(waiting, state)
    assert (first.members, first.deferred) == ([waiting[0], waiting[2]], [waiting[1], waiting[3]])
    state.advance(compose(2, NOW + 2, "p", first.members))
    second = formed(first.deferred, state)
    (_, conflict), (_, reused) = second.answers
    assert isinstance(conflict, Conflicted)
    assert conflict.rule == "delete-delete"
    assert [(one.version, one.seq, one.commit_id) for one in conflict.winners] == [(2, 0, str(commit_id(1)))]
    assert isinstance(reused, ProblemError)
    assert (reused.slug, reused.fields["version"], reused.fields["seq"]) == ("commit-id-reused", 2, 0)


def test_coalescing_can_be_switched_off_for_a_table() -> None:
    waiting = [append(n) for n in range(3)]
    assert sorted_out(waiting, coalesce=False) == ([0], [1, 2])


# limits -------------------------------------------------------------------------------------------------------------
def test_the_limits_of_a_version() -> None:
    assert Limits() == Limits(commits=1000, bytes=8 * 1024 * 1024, actions=50_000)
    waiting = [append(n) for n in range(1003)]
    assert sorted_out(waiting) == (list(range(1000)), [1000, 1001, 1002])


def test_no_more_bytes_than_the_limit() -> None:
    waiting = [append(n) for n in range(10)]
    size = waiting[0].size
    assert all(one.size == size for one in waiting)
    assert sorted_out(waiting, limits=Limits(bytes=3 * size)) == ([0, 1, 2], list(range(3, 10)))
    assert sorted_out(waiting, limits=Limits(bytes=3 * size - 1)) == ([0, 1], list(range(2, 10)))


def test_no_more_actions_than_the_limit() -> None:
    waiting = [intent(n, *(add(f"{n}.{i}") for i in range(4))) for n in range(4)]
    assert sorted_out(waiting, limits=Limits(actions=8)) == ([0, 1], [2, 3])
    assert sorted_out(waiting, limits=Limits(actions=7)) == ([0], [1, 2, 3])


def test_one_that_is_larger_than_a_version_goes_alone() -> None:
    large = intent(1, *(add(f"big.{i}") for i in range(20)))
    for limits in (Limits(actions=10), Limits(bytes=large.size - 1)):
        assert sorted_out([large, append(2)], limits=limits) == ([0], [1])
        assert sorted_out([append(2), large, append(3)], limits=limits) == ([0], [1, 2]), "nobody overtakes it for ever"


# answers ------------------------------------------------------------------------------------------------------------
def test_a_known_id_gets_the_answer_it_had() -> None:
    first = append(1, "x")
    state = table(compose(2, NOW + 2, "p", [append(7), first]))
    again = append(1, "x")
    again.read_version = 2
    ((_, answer),) = formed([again], state).answers
    assert answer == Committed(commit_id=first.commit_id, version=2, seq=1, timestamp=NOW + 2, replayed=True)


def test_a_known_id_is_answered_whatever_became_of_its_files() -> None:
    """Dedupe comes first: a resend of a remove is not told that its file is gone."""
    removing = on_head(1, remove("mon.1"), txn("app", 3))
    state = table(compose(2, NOW + 2, "p", [removing]), record(3, (metadata(description="x"),)))
    again = on_head(1, remove("mon.1"), txn("app", 3))
    ((_, answer),) = formed([again], state, floor=3).answers
    assert isinstance(answer, Committed)
    assert answer.replayed


def test_a_reused_id_is_refused_and_told_where_the_first_one_is() -> None:
    state = table(compose(2, NOW + 2, "p", [append(1, "x")]))
    ((_, answer),) = formed([append(1, "y")], state).answers
    assert isinstance(answer, ProblemError)
    assert (answer.slug, answer.fields["version"], answer.fields["seq"]) == ("commit-id-reused", 2, 0)


def test_known_ids_are_answered_even_behind_a_full_batch() -> None:
    state = table(compose(2, NOW + 2, "p", [append(1, "x")]))
    alone, late = append(5, coalesce=False), append(1, "x")
    batch = formed([alone, append(6), late], state)
    assert batch.members == [alone]
    assert [one for one, _ in batch.answers] == [late]


@pytest.mark.parametrize(
    "bad, slug, pointer",
    [
        (append(1, "mon.1"), "commit-invalid", "/actions"),
        (on_head(1, skip("nobody")), "commit-invalid", "/path"),
        (on_head(1, metadata(partitions=())), "schema-change-not-allowed", None),
        (on_head(1, metadata(checkpoint__interval="often")), "property-invalid", None),
        (on_head(1, protocol(9, 9)), "protocol-not-supported", None),
        (on_head(1, protocol(1, 1)), "commit-invalid", "/actions"),
    ],
)
def test_what_the_head_refuses_is_answered_and_others_go_on(bad: Intent, slug: str, pointer: str | None) -> None:
    other = append(2)
    batch = formed([bad, other], table())
    assert batch.members == [other]
    ((_, answer),) = batch.answers
    assert isinstance(answer, ProblemError)
    assert answer.slug == slug
    if pointer is not None:
        assert answer.fields["errors"][0]["pointer"] == pointer


def test_a_dropped_table_takes_nothing_but_a_registration() -> None:
    dropping = on_head(1, add("unused"))
    dropping.operation, dropping.actions, dropping.lines = "DROP", (), b""
    state = table(compose(2, NOW + 2, "p", [dropping]))
    assert state.head.dropped
    register = on_head(3, add("unused.too"))
    register.for_dropped = True
    batch = formed([append(2), register], state)
    ((_, answer),) = batch.answers
    assert isinstance(answer, ProblemError)
    assert answer.slug == "table-not-found"
    assert batch.members == [register]


# what is made on the head -------------------------------------------------------------------------------------------
def test_skips_are_counted_on_the_head_they_follow() -> None:
    state = table()
    for expected in (1, 2, 3):
        one = on_head(expected, skip("mon.1", skip_count=77))
        assert sorted_out([one], state) == ([0], [])
        (written,) = one.actions
        assert isinstance(written, Skip)
        assert written.skip_count == expected
        state.advance(compose(state.head.version + 1, NOW + 1 + expected, "p", [one]))


def test_two_changes_of_different_properties_both_hold() -> None:
    """A PATCH is a function of the metaData it finds."""

    def patch(number: int, key: str) -> Intent:
        one = on_head(number, metadata())
        one.read_version = None

        def evaluate(head: Any) -> tuple[Action, ...]:
            return (metadata(**{**head.metadata.configuration, key: "x"}),)

        one.evaluate = evaluate
        return one

    state = table()
    waiting = [patch(1, "a"), patch(2, "b")]
    while waiting:
        batch = formed(waiting, state)
        assert len(batch.members) == 1, "alone in its version"
        state.advance(compose(state.head.version + 1, state.head.timestamp + 1, "p", batch.members))
        waiting = batch.deferred
    assert isinstance(state.head.metadata, MetaData)
    assert state.head.metadata.configuration == {"a": "x", "b": "x"}


# together equals one by one -----------------------------------------------------------------------------------------
def _advance(state: SnapshotTracker, model: DumbTable, members: list[Intent]) -> None:
    made = compose(state.head.version + 1, state.head.timestamp + 1, "p", members)
    state.advance(made)
    model.apply(made.actions)


def _log(rounds: list[list[Plan]]) -> tuple[SnapshotTracker, DumbTable, list[list[Plan]]]:
    """A table with some random history: each round is formed, and what was taken is written. Versions from 2 on."""
    state, model = table_of_old_files()
    taken: list[list[Plan]] = []
    for group in rounds:
        waiting = {id(one): (one, plan) for plan in group for one in [plan.intent()]}
        batch = formed([one for one, _ in waiting.values()], state)
        if batch.members:
            _advance(state, model, batch.members)
            taken.append([waiting[id(one)][1] for one in batch.members])
    return state, model, taken


def table_of_old_files() -> tuple[SnapshotTracker, DumbTable]:
    model = DumbTable()
    model.apply(FIRST)
    model.apply(first_files())
    return tracker(record(0, FIRST), record(1, first_files())), model


def batches(at: int, size: int) -> st.SearchStrategy[list[Plan]]:
    return st.tuples(*(plans(number=100 * at + n, head=1) for n in range(size))).map(list)


rounds = st.tuples(batches(1, 3), batches(2, 3), batches(3, 2)).map(list)


@given(rounds, st.data())
@settings(max_examples=300)
def test_a_batch_equals_its_members_one_by_one(history: list[list[Plan]], data: st.DataObject) -> None:
    state, model, taken = _log(history)
    serial_state, serial_model, _ = _log(history)
    head = state.head.version
    waiting = [data.draw(plans(number=10_000 + n, head=head), label=f"commit {n}") for n in range(6)]
    intents = {id(one): (one, plan) for plan in waiting for one in [plan.intent()]}
    batch = formed([one for one, _ in intents.values()], state)

    # Everybody is somewhere, once, and in order.
    order = list(intents)
    members, deferred = ([order.index(id(one)) for one in part] for part in (batch.members, batch.deferred))
    answered = [order.index(id(one)) for one, _ in batch.answers]
    assert sorted(members + deferred + answered) == list(range(len(waiting)))
    assert members == sorted(members)
    assert deferred == sorted(deferred)
    assert members or answered or not waiting, "a round always gets somewhere"

    # Answers are what the plain rules say.
    for one, answer in batch.answers:
        plan = intents[id(one)][1]
        broken = _broken(plan, taken, model)
        if isinstance(answer, Conflicted):
            assert answer.rule in broken, (plan, broken)
            assert answer.winners
            seen = [winner for winner in answer.winners if winner.version <= (plan.read_version or 0)]
            # Only what the head shows may have been there when it was planned.
            assert not seen or answer.rule in ("txn", "delete-delete")
        else:
            assert isinstance(answer, ProblemError)
            assert refused_by_head(plan, model), plan
            assert not broken

    # One by one, each still on its own readVersion: nobody conflicts, and the table is the same.
    for position in members:
        plan = waiting[position]
        assert _broken(plan, taken, serial_model) == set(), (plan, "conflicts with an earlier member")
        single = plan.intent()
        alone = formed([single], serial_state)
        assert alone.members == [single], alone.answers
        _advance(serial_state, serial_model, [single])
        taken = [*taken, [plan]]
    if batch.members:
        _advance(state, model, batch.members)
    model.assert_same(state.head)
    serial_model.assert_same(serial_state.head)
    assert list(model.files.items()) == list(serial_model.files.items())
    assert (model.tombstones, model.skips) == (serial_model.tombstones, serial_model.skips)
    assert {app: found[0] for app, found in model.txns.items()} == {
        app: found[0] for app, found in serial_model.txns.items()
    }


def _broken(plan: Plan, taken: list[list[Plan]], head: DumbTable) -> set[str]:
    """The plain rules against everything in the log after the plan's readVersion. Version 2 is the first of `taken`."""
    since = max((plan.read_version or 0) - 1, 0)
    return conflicts(plan, [winner for group in taken[since:] for winner in group], head)


@given(rounds, st.data())
@settings(max_examples=150)
def test_a_commit_is_refused_exactly_when_a_plain_rule_is_broken(
    history: list[list[Plan]], data: st.DataObject
) -> None:
    state, model, taken = _log(history)
    plan = data.draw(plans(number=10_000, head=state.head.version))
    broken = _broken(plan, taken, model)
    batch = formed([plan.intent()], state)
    if broken:
        ((_, answer),) = batch.answers
        assert isinstance(answer, Conflicted)
        assert answer.rule in broken
    elif refused_by_head(plan, model):
        ((_, answer),) = batch.answers
        assert isinstance(answer, ProblemError)
    else:
        assert len(batch.members) == 1


@given(st.data())
def test_every_commit_is_settled_after_finitely_many_rounds(data: st.DataObject) -> None:
    state, model = table_of_old_files()
    waiting = [data.draw(plans(number=n, head=1)).intent() for n in range(12)]
    committed: list[str] = []
    for _ in range(13):
        batch = formed(waiting, state)
        committed += [one.commit_id for one in batch.members]
        if batch.members:
            _advance(state, model, batch.members)
            model.assert_same(state.head)
        assert batch.deferred == [one for one in waiting if one in batch.deferred]
        waiting = batch.deferred
        if not waiting:
            break
    assert waiting == []
    assert len(committed) == len(set(committed))
