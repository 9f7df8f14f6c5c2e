"""What the committer does to new files: document mappings move into the registry and come back, long bounds are cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tarnlog.protocol.actions import Add
from tarnlog.protocol.commits import Rejected
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    remove_line,
    send,
    set_properties,
    version_key,
)

TITLE = '[{"name":"title","type":"text"}]'
SAME = '[ {"type": "text", "name": "title"} ]'
BODY = '[{"name":"body","type":"text"}]'
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "note", "type": "string", "nullable": True, "metadata": {}},
        {"name": "part", "type": "string", "nullable": True, "metadata": {}},
    ],
}


def lines(warehouse: Warehouse, log: str, version: int) -> list[dict[str, Any]]:
    text = warehouse.store.raw(version_key(log, version)).decode()
    return [json.loads(line) for line in text.splitlines()]


def stored_add(warehouse: Warehouse, log: str, version: int) -> dict[str, Any]:
    (found,) = [line["add"] for line in lines(warehouse, log, version) if "add" in line]
    return dict(found)


async def listed(replica: Coordinator, path: str) -> Add:
    page = await replica.snapshots.files(ORDERS, None, None, 0, 1000, None)
    (found,) = [file for file in page.files if file.path == path]
    return found


async def test_a_reference_to_no_mapping_is_refused(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("a", docMappingJson=TITLE))
    known = (await listed(replica, "a")).doc_mapping_ref
    await commit(replica, add_line("b", docMappingRef=known))
    unknown = add_line("c", docMappingRef="0123456789abcdef")
    for sent in ([add_line("d"), unknown], [add_line("e"), unknown, remove_line("a")]):
        outcome = await send(replica, *sent, readVersion=2)
        assert isinstance(outcome, Rejected)
        assert outcome.problem["status"] == 422
        assert outcome.problem["type"].endswith("commit-invalid")
        assert [error["pointer"] for error in outcome.problem["errors"]] == ["/actions/1/add/docMappingRef"]
        assert "send the mapping itself as docMappingJson" in outcome.problem["detail"]
    assert (await replica.tables.describe(ORDERS, 0)).version == 2, "nothing was written"
    # What is inline counts, whatever stands beside it; and a commit may bring the registry itself.
    await commit(replica, add_line("f", docMappingRef="0123456789abcdef", docMappingJson=BODY))
    view = await replica.snapshots.snapshot(ORDERS, None, None, 0)
    assert view.meta_data is not None
    own = dict(view.meta_data) | {
        "configuration": {**view.meta_data["configuration"], "docMappingSchema.0123456789abcdef": "[1]"}
    }
    await commit(replica, {"metaData": own}, unknown, readVersion=3)
    assert (await listed(warehouse.replica(), "c")).doc_mapping_json == "[1]"


async def registry(replica: Coordinator) -> dict[str, str]:
    view = await replica.snapshots.snapshot(ORDERS, None, None, 0)
    assert view.meta_data is not None
    return {key: text for key, text in view.meta_data["configuration"].items() if key.startswith("docMappingSchema.")}


async def test_a_mapping_moves_out_once_and_comes_back_on_read(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, add_line("a", docMappingJson=TITLE))
    await commit(replica, add_line("b", docMappingJson=SAME))
    assert [next(iter(line)) for line in lines(warehouse, log, 1)] == ["commitInfo", "metaData", "add"]
    assert [next(iter(line)) for line in lines(warehouse, log, 2)] == ["commitInfo", "add"]
    refs = {stored_add(warehouse, log, version)["docMappingRef"] for version in (1, 2)}
    assert len(refs) == 1
    assert "docMappingJson" not in stored_add(warehouse, log, 1)
    assert await registry(replica) == {f"docMappingSchema.{refs.pop()}": TITLE}
    for reader in (replica, warehouse.replica()):
        assert (await listed(reader, "a")).doc_mapping_json == TITLE
        assert (await listed(reader, "b")).doc_mapping_json == TITLE
        changes = (await reader.history.changes(ORDERS, 1, 2, 10, None)).changes
        assert [add.doc_mapping_json for change in changes for add in change.adds] == [TITLE, TITLE]


@pytest.mark.parametrize("form", ["avro", "json", "parquet"])
async def test_a_mapping_comes_back_from_every_state(warehouse: Warehouse, form: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("a", docMappingJson=TITLE), add_line("b", docMappingJson=BODY), add_line("c"))
    await replica.checkpoints.checkpoint(ORDERS, form)
    again = warehouse.replica()
    found = [(await listed(again, path)).doc_mapping_json for path in "abc"]
    assert found == [TITLE, BODY, None]
    await commit(again, add_line("d", docMappingJson=SAME))
    assert len(await registry(again)) == 2


async def test_many_writers_with_new_mappings_lose_none(warehouse: Warehouse) -> None:
    replicas = [warehouse.replica() for _ in range(2)]
    await create(replicas[0])
    mappings = {f"f{number}": json.dumps([{"name": f"column{number % 7}"}]) for number in range(24)}
    work = [
        commit(replicas[number % 2], add_line(path, docMappingJson=text))
        for number, (path, text) in enumerate(mappings.items())
    ]
    done = await asyncio.gather(*work, commit(replicas[0], add_line("plain")))
    assert len({(one.version, one.seq) for one in done}) == 25
    for reader in (*replicas, warehouse.replica()):
        for path, text in mappings.items():
            assert json.loads((await listed(reader, path)).doc_mapping_json or "null") == json.loads(text)
        assert len(await registry(reader)) == 7


async def test_other_changes_of_the_table_stay_when_a_mapping_is_registered(warehouse: Warehouse) -> None:
    first, second = warehouse.replica(), warehouse.replica()
    await create(first)
    await second.snapshots.snapshot(ORDERS, None, None, 0)
    await first.tables.alter(ORDERS, set_properties(owner="zoe"))
    await commit(second, add_line("a", docMappingJson=TITLE))
    view = await first.snapshots.snapshot(ORDERS, None, None, 0)
    assert view.meta_data is not None
    assert view.meta_data["configuration"]["owner"] == "zoe"
    assert len(await registry(first)) == 1


async def test_a_commit_that_read_something_may_bring_a_mapping(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    done = await commit(replica, add_line("a"), add_line("b"))
    merged = [remove_line("a"), remove_line("b"), add_line("ab", docMappingJson=TITLE)]
    await commit(replica, *merged, readVersion=done.version)
    assert (await listed(replica, "ab")).doc_mapping_json == TITLE


async def test_long_bounds_are_cut_where_they_are_text_and_no_partition(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica, schema=SCHEMA, partition_columns=("part",)))
    long = "x" * 100
    bounds = {"note": long, "id": "1." + "0" * 40, "part": long}
    await commit(replica, add_line("a", partitionValues={"part": long}, minValues=bounds, maxValues=bounds))
    stored = stored_add(warehouse, log, 1)
    cut = {**bounds, "note": "x" * 32}
    assert (stored["minValues"], stored["maxValues"]) == (cut, cut)
    assert stored["partitionValues"] == {"part": long}
    assert (await listed(warehouse.replica(), "a")).max_values == cut


async def test_the_shortest_cut_is_remembered_by_replay_and_by_states(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA, properties={"stats.truncation.maxLength": "4"})
    await commit(replica, add_line("a", minValues={"note": "abcdef"}, maxValues={"note": "abcdef"}))
    await replica.tables.alter(ORDERS, set_properties(stats__truncation__maxLength="64"))
    long = {"note": "y" * 70}
    await commit(replica, add_line("b", minValues=long, maxValues=long))
    assert (await listed(replica, "b")).max_values == {"note": "y" * 64}
    for form in (None, "avro", "json", "parquet"):
        if form is not None:
            await replica.checkpoints.checkpoint(ORDERS, form)
        reader = warehouse.replica()
        await reader.snapshots.snapshot(ORDERS, None, None, 0)
        assert reader.open_tables.opened()[0].live.head.truncation == 4, form


async def test_a_cut_maximum_still_conflicts_with_a_read_above_it(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA, properties={"stats.truncation.maxLength": "4"})
    read = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version
    note = {"minValues": {"note": "abcdef"}, "maxValues": {"note": "abcdzz"}}
    await commit(replica, add_line("winner", **note))
    reads = {"filters": [{"op": "eq", "column": "note", "value": "abcdyy"}]}
    request: dict[str, Any] = {"readVersion": read, "reads": reads, "isolation": "serializable"}
    assert "append" in str(await send(replica, add_line("loser"), **request))
