"""A plan on a stored state: exactly the files that a look at every file keeps, and fewer manifests read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bench.pruned_files import matching
from tarnlog.protocol.predicates import parse_predicate
from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.core.match import may_match
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.usecases import state_entries
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, remove_line

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
    ],
}
FILTERS: list[dict[str, Any]] = [
    {"op": "eq", "column": "n", "value": 3},
    {"op": "gt", "column": "n", "value": 9},
    {"op": "is-null", "column": "n"},
    {"op": "is-not-null", "column": "n"},
    {"op": "in", "column": "n", "values": [1, 10]},
    {"op": "not", "arg": {"op": "eq", "column": "n", "value": 3}},
    {"op": "and", "args": [{"op": "le", "column": "n", "value": 5}, {"op": "ge", "column": "id", "value": 50}]},
    {"op": "or", "args": [{"op": "eq", "column": "n", "value": 2}, {"op": "lt", "column": "id", "value": 10}]},
]


@pytest.mark.parametrize("form", ["avro", "json", "parquet"])
@pytest.mark.parametrize("columns_from", [0, 10_000])
async def test_a_plan_keeps_what_a_look_at_every_file_keeps(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, form: str, columns_from: int
) -> None:
    pytest.importorskip("datafusion")
    monkeypatch.setattr(state_entries, "COLUMNS_FROM", columns_from)
    rng = random.Random(5)
    writer = warehouse.replica()
    properties = {"state.entriesPerManifest": "5"}
    await create(writer, schema=SCHEMA, partition_columns=("n",), properties=properties)
    values = [None, *map(str, range(12))]
    for start in range(0, 60, 20):
        lines = []
        for number in range(start, start + 20):
            bounds = {"minValues": {"id": str(number)}, "maxValues": {"id": str(number + 5)}} if number % 3 else {}
            lines.append(add_line(f"f{number}", partitionValues={"n": rng.choice(values)}, **bounds))
        await commit(writer, *lines)
    await commit(writer, *(remove_line(f"f{number}") for number in range(0, 60, 9)), readVersion=3)
    await writer.checkpoints.checkpoint(ORDERS, form)
    replica = warehouse.replica(columns=DataFusionColumns())
    await replica.snapshots.snapshot(ORDERS, None, None, 0)
    live = replica.open_tables.opened()[0].live
    assert live.base is not None
    assert live.head.metadata is not None
    every = [add for _, add in live.head.rows()]
    for tree in FILTERS:
        predicate = parse_predicate(tree)
        found = await matching(live.states, live.base.ref, predicate)
        schema = schema_of(live.head.metadata.schema_string)
        expected = {
            add.path
            for add in every
            if may_match(predicate, schema, ("n",), add.partition_values, add.min_values, add.max_values)
        }
        assert {add.path for add in found.files} == expected, tree
        if tree == FILTERS[0] and form == "avro":
            assert 0 < found.manifests_read < found.manifests
