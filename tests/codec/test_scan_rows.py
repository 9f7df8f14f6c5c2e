"""Pruning of whole snapshots: the rows that the test of one file admits, the reasons, and the files themselves."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from tarnlog.arrow_files import adds_of
from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.predicates import PredicateError, parse_predicate
from tarnlog_server.codec import scan_rows
from tarnlog_server.codec.add_arrow import arrow_batches, arrow_schema
from tests.codec.scans import files_of, snapshot_with

FILES = files_of(40)


@pytest.mark.parametrize("packed_rows", [0, 17, 40])
def test_a_filter_leaves_what_its_test_admits(packed_rows: int) -> None:
    snapshot = snapshot_with(FILES, packed_rows)
    tree = {
        "op": "and",
        "args": [{"op": "eq", "column": "DAY", "value": "2024-01-03"}, {"op": "ge", "column": "id", "value": 120}],
    }
    found = scan_rows.prune(snapshot, parse_predicate(tree))
    assert [add.path for add in scan_rows.adds(snapshot, found.rows)] == [
        add.path
        for add in FILES
        if add.partition_values["day"] == "2024-01-03" and int((add.max_values or {})["id"]) >= 120
    ]
    assert found.files_total == 40
    assert found.after_partitions == sum(add.partition_values["day"] == "2024-01-03" for add in FILES)
    assert found.after_skipping == len(found.rows) < found.after_partitions


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(PredicateError, match="no column 'nope'"):
        scan_rows.prune(snapshot_with(FILES, 10), parse_predicate({"op": "eq", "column": "nope", "value": 1}))


def test_reasons_name_the_comparison_and_what_it_saw() -> None:
    snapshot = snapshot_with(FILES, 20)
    tree = {
        "op": "and",
        "args": [{"op": "eq", "column": "day", "value": "2024-01-03"}, {"op": "lt", "column": "id", "value": 100}],
    }
    found = {one.row: one for one in scan_rows.explain(snapshot, parse_predicate(tree), 0, 30)}
    assert sorted(found) == list(range(30))
    by_partition, by_bounds, kept = found[0], found[22], found[2]
    assert [one.kept for one in (by_partition, by_bounds, kept)] == [False, False, True]
    assert by_partition.because[0].pointer == "/args/0"
    assert (by_partition.because[0].by, by_partition.because[0].value) == ("partition", "2024-01-01")
    assert [(one.pointer, one.by, one.least, one.greatest) for one in by_bounds.because] == [
        ("/args/1", "bounds", "220", "229")
    ]
    assert [one.by for one in kept.because] == ["partition", "bounds"]


@pytest.mark.parametrize("packed_rows", [0, 17, 40])
def test_an_arrow_stream_holds_every_field_of_every_file(packed_rows: int) -> None:
    snapshot = snapshot_with(FILES, packed_rows)
    rows = scan_rows.prune(snapshot, None).rows
    schema = arrow_schema(snapshot, rows)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in arrow_batches(snapshot, rows, schema):
            stream.write_batch(batch)
    found = [add for batch in pa.ipc.open_stream(sink.getvalue()) for add in adds_of(batch)]
    expected = list(scan_rows.adds(snapshot, rows))
    found.sort(key=lambda add: add.modification_time)
    assert found == expected
    assert [unknown_fields(add) for add in found] == [unknown_fields(add) for add in expected]


def test_rows_of_paths() -> None:
    snapshot = snapshot_with(FILES, 20)
    assert scan_rows.rows_at(snapshot, [FILES[3].path, FILES[25].path, "none"]) == {3, 25}
