"""The Transaction helper: what it pins, what it sends, and when it sends nothing."""

from __future__ import annotations

import httpx
import pytest

from tarnlog import CommitConflict, Committed, CommitUnknown, Conflicted, Unknown
from tarnlog.protocol.predicates import Compare
from tests.client.scripted import Scripted, answer, committed, problem

META = {"id": "i", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": []}


def at_seven(_: httpx.Request) -> httpx.Response:
    return answer(200, {"version": 7, "timestamp": 1, "metaData": META})


def test_a_blind_append_asks_nothing_first() -> None:
    script = Scripted(committed)
    with script.client().transaction("s.t") as tx:
        tx.add("d=1/p", size=3, partition_values={"d": "1"}, modification_time=5, num_records=2)
    assert isinstance(tx.outcome, Committed)
    [body] = script.bodies
    assert body["commitId"] == tx.commit_id == tx.outcome.commit_id
    assert "readVersion" not in body
    assert "reads" not in body
    add = {"path": "d=1/p", "partitionValues": {"d": "1"}, "size": 3, "modificationTime": 5, "dataChange": True}
    assert body["actions"] == [{"add": add | {"numRecords": 2}}]


def test_the_first_read_pins_the_version() -> None:
    script = Scripted(at_seven, committed)
    with script.client().transaction("s.t", operation="MERGE", isolation="serializable") as tx:
        assert tx.read(filter="id > 5", paths=["a"]) == 7
        assert tx.read(filter=Compare("eq", "id", 5), app_ids=["x"]) == 7
        tx.remove("a", deletion_timestamp=1)
        tx.set_txn("x", 3)
        tx.operation_metrics["rows"] = 1
    [body] = script.bodies
    assert len(script.requests) == 2
    assert body["readVersion"] == 7
    assert body["reads"] == {
        "filters": ["id > 5", {"op": "eq", "column": "id", "value": 5}],
        "paths": ["a"],
        "appIds": ["x"],
    }
    assert (body["operation"], body["isolation"], body["operationMetrics"]) == ("MERGE", "serializable", {"rows": 1})
    assert [next(iter(action)) for action in body["actions"]] == ["remove", "txn"]


def test_what_is_no_blind_append_is_pinned_at_the_end() -> None:
    script = Scripted(at_seven, committed)
    with script.client().transaction("s.t") as tx:
        tx.set_txn("x", 3)
    assert script.bodies[0]["readVersion"] == 7

    script = Scripted(committed)
    with script.client().transaction("s.t", read_version=4) as tx:
        tx.remove("a")
    assert script.bodies[0]["readVersion"] == 4


def test_an_exception_or_an_empty_body_sends_nothing() -> None:
    script = Scripted(committed)
    with pytest.raises(ZeroDivisionError), script.client().transaction("s.t") as tx:
        tx.add("p", size=1)
        raise ZeroDivisionError
    assert tx.outcome is None
    with script.client().transaction("s.t") as tx:
        pass
    assert tx.outcome is None
    assert script.requests == []


def test_leaving_the_block_quietly_means_committed() -> None:
    conflict = problem(409, "commit-conflict", rule="append")
    with pytest.raises(CommitConflict), Scripted(conflict).client().transaction("s.t") as tx:
        tx.add("p", size=1)
    assert isinstance(tx.outcome, Conflicted)
    lost = Scripted(httpx.ReadTimeout("lost")).client(deadline=1)
    with pytest.raises(CommitUnknown) as caught, lost.transaction("s.t") as tx:
        tx.add("p", size=1)
    assert caught.value.commit_id == tx.commit_id


def test_unchecked_it_only_shows_the_outcome() -> None:
    with Scripted(httpx.ReadTimeout("lost")).client(deadline=1).transaction("s.t", check=False) as tx:
        tx.add("p", size=1)
    assert tx.outcome == Unknown(commit_id=tx.commit_id, retry_after=1.0)


async def test_asyncio() -> None:
    script = Scripted(at_seven, committed)
    async with script.async_client() as client, client.transaction("s.t") as tx:
        assert await tx.read(whole_table=True) == 7
        tx.add("p", size=1)
    assert isinstance(tx.outcome, Committed)
    assert script.bodies[0]["reads"] == {"wholeTable": True}
    script = Scripted(committed)
    with pytest.raises(ZeroDivisionError):
        async with script.async_client() as client, client.transaction("s.t") as tx:
            tx.add("p", size=1)
            raise ZeroDivisionError
    assert script.requests == []
