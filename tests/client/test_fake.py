"""What only the fake does: scripted outcomes, a feed that ends, and saying what it has not got."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarnlog import (
    Add,
    CommitConflict,
    Committed,
    CommitUnknown,
    Conflicted,
    InvalidRequest,
    NotFound,
    NotNow,
    Rejected,
    Unknown,
    new_commit_id,
)
from tarnlog._fake_script import CONFLICT_RULES
from tarnlog.testing import FakeTarnlog
from tarnlog_server.core.conflict import RULES
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


@pytest.mark.parametrize("rule", CONFLICT_RULES)
def test_a_conflict_is_scripted_by_its_rule(fake: FakeTarnlog, rule: str) -> None:
    fake.next_commit(Conflicted, rule=rule, paths=("a",))
    with pytest.raises(CommitConflict, match=f"rule {rule}") as caught, fake.transaction("s.t") as tx:
        tx.add("b", size=1)
    assert (caught.value.rule, caught.value.paths) == (rule, ("a",))
    assert caught.value.winners
    assert caught.value.outcome.retry == ("never" if rule == "txn" else "rebase")


def test_the_rules_are_those_of_the_service(fake: FakeTarnlog) -> None:
    assert set(CONFLICT_RULES) == {"expired", *(name for name, _ in RULES)}
    with pytest.raises(ValueError, match="is no conflict rule"):
        fake.next_commit(Conflicted, rule="apend")
    with pytest.raises(TypeError, match="rule"):
        fake.next_commit(Unknown, rule="append")


def test_rows_of_real_files(fake: FakeTarnlog, tmp_path: Path) -> None:
    for location in (str(tmp_path), tmp_path.as_uri()):
        name = f"s.rows{len(location)}"
        fake.create_table(name, SCHEMA, location=location)
        pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "part.parquet")
        with fake.transaction(name) as tx:
            tx.add("part.parquet", size=(tmp_path / "part.parquet").stat().st_size)
        tree = {"op": "gt", "column": "id", "value": 1}
        assert fake.table(name).to_arrow(tree).to_pylist() == [{"id": 2}, {"id": 3}]
        assert fake.table(name).to_pandas(version=0).empty
        with pytest.raises(InvalidRequest, match="as a tree"):
            fake.table(name).to_polars("id > 1")


def test_rows_without_files_say_what_to_do(fake: FakeTarnlog) -> None:
    with pytest.raises(InvalidRequest, match="location="):
        fake.table("s.t").to_arrow()
    with pytest.raises(NotFound, match=r"create_table\("):
        fake.table("s.none").to_arrow()
