"""The machine of one slot, walked exhaustively: every order of facts to depth 6."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tarnlog_server.core.ratify import Fact, Ratify, Step

DEPTH = 6
PUT_FACTS = {Fact.CREATED, Fact.EXISTS, Fact.UNKNOWN, Fact.REFUSED}
READ_FACTS = {Fact.OURS, Fact.ANOTHERS, Fact.MISSING, Fact.UNREADABLE}
OPEN = {Step.PUT, Step.READ_SLOT}


def _replay(facts: tuple[Fact, ...]) -> Ratify:
    machine = Ratify()
    for fact in facts:
        machine.saw(fact)
    return machine


def _walk(facts: tuple[Fact, ...] = ()) -> Iterator[tuple[tuple[Fact, ...], Ratify]]:
    machine = _replay(facts)
    yield facts, machine
    if machine.step in OPEN and len(facts) < DEPTH:
        for fact in sorted(PUT_FACTS if machine.step is Step.PUT else READ_FACTS, key=lambda fact: fact.value):
            yield from _walk((*facts, fact))


WALKS = list(_walk())


def test_the_walk_is_exhaustive() -> None:
    assert len(WALKS) > 200
    assert {machine.step for _, machine in WALKS} == set(Step)
    assert max(len(facts) for facts, _ in WALKS) == DEPTH


def test_won_only_when_our_object_is_there() -> None:
    for facts, machine in WALKS:
        assert (machine.step is Step.WON) == (bool(facts) and facts[-1] in (Fact.CREATED, Fact.OURS)), facts


def test_lost_only_when_anothers_object_is_there() -> None:
    for facts, machine in WALKS:
        assert (machine.step is Step.LOST) == (bool(facts) and facts[-1] is Fact.ANOTHERS), facts


def test_not_knowing_never_ends_it() -> None:
    for facts, machine in WALKS:
        if facts and facts[-1] in (Fact.UNKNOWN, Fact.UNREADABLE, Fact.EXISTS):
            assert machine.step in OPEN, facts


def test_refused_only_when_nothing_may_have_landed() -> None:
    for facts, machine in WALKS:
        if machine.step is Step.REFUSED:
            assert set(facts) == {Fact.REFUSED}, facts
        if Fact.UNKNOWN in facts:
            assert machine.may_have_landed
            assert machine.step is not Step.REFUSED, facts


def test_a_slot_that_was_taken_and_is_gone_means_reload() -> None:
    for facts, machine in WALKS:
        assert (machine.step is Step.RELOAD) == (bool(facts) and facts[-1] is Fact.MISSING), facts


def test_puts_are_counted() -> None:
    for facts, machine in WALKS:
        assert machine.puts == sum(fact in PUT_FACTS for fact in facts)


def test_a_fact_that_cannot_follow_is_refused_and_changes_nothing() -> None:
    for facts, machine in WALKS:
        allowed = PUT_FACTS if machine.step is Step.PUT else READ_FACTS if machine.step is Step.READ_SLOT else set()
        for fact in set(Fact) - allowed:
            fresh = _replay(facts)
            with pytest.raises(ValueError, match=fact.value):
                fresh.saw(fact)
            assert fresh.step is machine.step
