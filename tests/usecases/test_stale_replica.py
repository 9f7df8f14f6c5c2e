"""A replica that is behind says nothing final from what it knows: a refused commit may be in the log already."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarnlog.protocol.commits import Committed, Conflicted, Rejected
from tarnlog.protocol.ids import uuid7
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable
from tests.usecases.replicas import (
    ORDERS,
    SCHEMA,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    remove_line,
    send,
)


async def test_a_path_that_was_removed_and_added_again_elsewhere(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    await commit(one, add_line("a"))
    assert await files(behind) == ["a"]
    await commit(one, remove_line("a"), readVersion=1)
    commit_id = str(warehouse.world.uuid7())
    landed = await commit(one, add_line("a"), commitId=commit_id)
    again = await commit(behind, add_line("a"), commitId=commit_id)
    assert (again.version, again.seq, again.replayed) == (landed.version, landed.seq, True)
    outcome = await send(behind, add_line("a"))
    assert isinstance(outcome, Rejected), "a new commit that adds a live file is refused as ever"


async def test_a_file_that_is_newer_than_what_the_replica_knows(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    assert await files(behind) == []
    await commit(one, add_line("a"))
    commit_id = str(warehouse.world.uuid7())
    landed = await commit(one, remove_line("a"), readVersion=0, commitId=commit_id)
    again = await commit(behind, remove_line("a"), readVersion=0, commitId=commit_id)
    assert (again.version, again.replayed) == (landed.version, True)
    assert isinstance(await send(behind, remove_line("a"), readVersion=0), Conflicted)


async def test_a_resend_whose_other_read_version_would_conflict(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    await commit(one, add_line("a"), readVersion=0, reads={"wholeTable": True})
    assert await files(behind) == ["a"]
    fields: dict[str, Any] = {
        "commitId": str(warehouse.world.uuid7()),
        "reads": {"wholeTable": True},
        "isolation": "serializable",
    }
    landed = await commit(one, add_line("b"), readVersion=1, **fields)
    again = await commit(behind, add_line("b"), readVersion=0, **fields)
    assert (again.version, again.replayed) == (landed.version, True)


async def test_a_filter_on_a_column_that_is_new(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    assert await files(behind) == []
    column = {"name": "day", "type": "date", "nullable": True, "metadata": {}}
    await one.tables.alter(ORDERS, AlterTable(schema={**SCHEMA, "fields": [*SCHEMA["fields"], column]}))
    fields: dict[str, Any] = {
        "commitId": str(warehouse.world.uuid7()),
        "readVersion": 1,
        "reads": {"filters": [{"op": "eq", "column": "day", "value": "2024-01-01"}]},
    }
    landed = await commit(one, add_line("a"), **fields)
    again = await commit(behind, add_line("a"), **fields)
    assert (again.version, again.replayed) == (landed.version, True)


@pytest.mark.parametrize("refusal", ["conflict", "invalid"])
async def test_a_refusal_costs_one_look_and_a_success_none(warehouse: Warehouse, refusal: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("a"))
    warehouse.store.lists.clear()
    await commit(replica, add_line("b"))
    assert warehouse.store.lists == []
    action = remove_line("gone") if refusal == "conflict" else add_line("a")
    outcome = await send(replica, action, readVersion=1)
    assert isinstance(outcome, Conflicted | Rejected)
    assert len(warehouse.store.lists) == 1


async def test_a_resend_after_it_was_refused_for_its_id_costs_no_look(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    commit_id = str(uuid7(warehouse.world.now_ms(), warehouse.world.rng))
    await commit(replica, add_line("a"), commitId=commit_id)
    warehouse.store.lists.clear()
    assert isinstance(await send(replica, add_line("a"), commitId=commit_id), Committed)
    outcome = await send(replica, add_line("b"), commitId=commit_id)
    assert isinstance(outcome, Rejected)
    assert outcome.problem["type"].endswith("commit-id-reused")
    assert warehouse.store.lists == []


def with_text(kind: str = "string") -> AlterTable:
    fields = [*SCHEMA["fields"], {"name": "text", "type": kind, "nullable": True, "metadata": {}}]
    return AlterTable(schema={**SCHEMA, "fields": fields})


async def test_bounds_of_a_column_that_is_newer_than_what_the_replica_knows(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    assert await files(behind) == []
    await one.tables.alter(ORDERS, with_text())
    await commit(behind, add_line("a", minValues={"text": "x"}))
    assert await files(one) == ["a"]
    with pytest.raises(ProblemError) as caught:
        await send(behind, add_line("b", minValues={"other": "x"}))
    assert caught.value.fields["errors"][0]["pointer"] == "/actions/0/add/minValues/other"


async def test_a_resend_whose_values_do_not_fit_the_schema_of_today(warehouse: Warehouse) -> None:
    """It is in the log: nothing else may be said of it, whatever became of the schema."""
    replica = warehouse.replica()
    await create(replica)
    await replica.tables.alter(ORDERS, with_text())
    commit_id = str(warehouse.world.uuid7())
    landed = await commit(replica, add_line("a", minValues={"text": "soon"}), commitId=commit_id)
    view = await replica.snapshots.snapshot(ORDERS, None, None, 0)
    assert view.meta_data is not None
    replaced = {**view.meta_data, "schemaString": json.dumps(with_text("date").schema)}
    await commit(replica, remove_line("a"), {"metaData": replaced}, readVersion=landed.version)
    again = await commit(replica, add_line("a", minValues={"text": "soon"}), commitId=commit_id)
    assert (again.version, again.replayed) == (landed.version, True)
    other = await send(replica, add_line("b", minValues={"text": "soon"}), commitId=commit_id)
    assert isinstance(other, Rejected)
    assert other.problem["type"].endswith("commit-id-reused")
