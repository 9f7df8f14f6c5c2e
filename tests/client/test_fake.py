"""What only the fake does: scripted outcomes, a feed that ends, and saying what it has not got."""

from __future__ import annotations

import threading

import pytest

from tarnlog import (
    Add,
    CommitConflict,
    Committed,
    CommitUnknown,
    Conflicted,
    InvalidRequest,
    NotNow,
    Rejected,
    Unknown,
    new_commit_id,
)
from tarnlog.testing import FakeTarnlog
from tests.client.scripted import SCHEMA


def add(path: str) -> Add:
    return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


@pytest.fixture
def fake() -> FakeTarnlog:
    fake = FakeTarnlog(clock=lambda: 1_700_000_000_000)
    fake.create_table("s.t", SCHEMA)
    return fake


@pytest.mark.parametrize("kind", [Unknown, Conflicted, NotNow, Rejected])
def test_a_scripted_class_happens_once_and_writes_nothing(fake: FakeTarnlog, kind: type) -> None:
    fake.next_commit(kind)
    mine = new_commit_id()
    outcome = fake.commit("s.t", [add("a")], commit_id=mine)
    assert isinstance(outcome, kind)
    assert outcome.commit_id == mine
    assert fake.get_table("s.t").version == 0
    assert isinstance(fake.commit("s.t", [add("a")], commit_id=mine), Committed)


def test_a_scripted_value_keeps_its_fields(fake: FakeTarnlog) -> None:
    fake.next_commit(Conflicted(commit_id="", rule="delete-read", detail="gone", paths=("a",)))
    with pytest.raises(CommitConflict, match="gone") as caught, fake.transaction("s.t") as tx:
        tx.add("b", size=1)
    assert (caught.value.rule, caught.value.paths) == ("delete-read", ("a",))


def test_a_lost_answer_of_a_commit_that_landed(fake: FakeTarnlog) -> None:
    fake.next_commit(Unknown, landed=True)
    with pytest.raises(CommitUnknown) as caught, fake.transaction("s.t") as tx:
        tx.add("a", size=1)
    assert isinstance(fake.commit_status("s.t", caught.value.commit_id), Committed)


def test_scripts_are_used_up_in_order(fake: FakeTarnlog) -> None:
    fake.next_commit(NotNow)
    fake.next_commit(Unknown)
    kinds = [type(fake.commit("s.t", [add(name)])) for name in "abc"]
    assert kinds == [NotNow, Unknown, Committed]


def test_the_feed_shows_what_came_and_ends(fake: FakeTarnlog) -> None:
    feed = fake.events("s.t")
    fake.commit("s.t", [add("a")])
    assert [change.version for change in feed] == [1]


def test_times_grow_on_a_clock_that_stands_still(fake: FakeTarnlog) -> None:
    fake.commit("s.t", [add("a")])
    assert [record.timestamp for record in fake.history("s.t")] == [1_700_000_000_001, 1_700_000_000_000]
    assert fake.snapshot("s.t", timestamp="2023-11-14T22:13:20+00:00").version == 0


def test_threads_may_share_it(fake: FakeTarnlog) -> None:
    threads = [threading.Thread(target=fake.commit, args=("s.t", [add(f"f{number}")])) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake.get_table("s.t").version == 20


def test_it_says_what_it_has_not_got(fake: FakeTarnlog) -> None:
    with pytest.raises(InvalidRequest, match="no storage"):
        fake.register_table("s.u", "/somewhere")
