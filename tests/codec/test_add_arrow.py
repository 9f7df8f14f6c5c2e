"""Arrow streams of files: whatever the files are and however they lie in memory, the same actions come out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.arrow_files import adds_of
from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.codec import add_arrow, scan_rows
from tarnlog_server.codec.add_arrow import arrow_batches, arrow_schema
from tarnlog_server.codec.entry_batch import ENTRY_FIELDS, entry_batch
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.replay import Snapshot
from tests.codec.scans import MAPPING, files_of, metadata, snapshot_with
from tests.codec.states import FILES, PARTITION_COLUMNS, SCHEMA_STRING, file_lists

META = metadata(SCHEMA_STRING, PARTITION_COLUMNS)


def streamed(snapshot: Snapshot, rows: Sequence[int]) -> list[Add]:
    """The actions that a client makes of a stream of some rows, by path."""
    schema = arrow_schema(snapshot, rows)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in arrow_batches(snapshot, rows, schema):
            assert 0 < batch.num_rows <= add_arrow.BATCH_ROWS
            stream.write_batch(batch)
    found = [add for batch in pa.ipc.open_stream(sink.getvalue()) for add in adds_of(batch)]
    return sorted(found, key=lambda add: add.path)


def listed(snapshot: Snapshot, rows: Sequence[int]) -> list[Add]:
    return sorted(scan_rows.adds(snapshot, rows), key=lambda add: add.path)


@settings(max_examples=40, deadline=None)
@given(file_lists, st.integers(0, 6), st.integers(1, 4), st.sampled_from([1, 3, 65_536]))
def test_every_field_arrives(files: list[StateFile], packed_rows: int, every: int, batch_rows: int) -> None:
    adds = [one.add for one in (*FILES, *files)]
    adds = list({add.path: add for add in adds}.values())
    snapshot = snapshot_with(adds, min(packed_rows, len(adds)), META)
    rows = scan_rows.prune(snapshot, None).rows[::every]
    with mock.patch.object(add_arrow, "BATCH_ROWS", batch_rows):
        found = streamed(snapshot, rows)
    expected = listed(snapshot, rows)
    assert found == expected
    assert [unknown_fields(add) for add in found] == [unknown_fields(add) for add in expected]


@settings(max_examples=25, deadline=None)
@given(file_lists, st.integers(0, 6), st.sets(st.sampled_from(list(add_arrow.FIELDS))))
def test_a_stream_of_some_fields_has_those_of_all(files: list[StateFile], packed_rows: int, fields: set[str]) -> None:
    """Mappings too, whose refs were not asked for."""
    mapped = msgspec.structs.replace(files_of(1)[0], path="mapped", doc_mapping_ref="ab12cd34ef56gh78")
    adds = list({add.path: add for add in (mapped, *(one.add for one in (*FILES, *files)))}.values())
    snapshot = snapshot_with(adds, min(packed_rows, len(adds)), META)
    rows = scan_rows.prune(snapshot, None).rows
    whole, some = arrow_schema(snapshot, rows), arrow_schema(snapshot, rows, fields)
    assert some.names == [name for name in whole.names if name in {"path", *fields}]
    assert some.metadata == whole.metadata
    every = pa.Table.from_batches(arrow_batches(snapshot, rows, whole)).to_pylist()
    found = pa.Table.from_batches(arrow_batches(snapshot, rows, some)).to_pylist()
    assert found == [{name: record[name] for name in some.names} for record in every]


def test_mappings_are_restored_once_a_batch_and_files_may_bring_their_own() -> None:
    files = [
        msgspec.structs.replace(add, doc_mapping_ref=ref, doc_mapping_json=own)
        for add, (ref, own) in zip(
            files_of(12),
            [("ab12cd34ef56gh78", None), ("unknown", None), (None, "[1]"), ("ab12cd34ef56gh78", "[2]"), (None, None)]
            * 3,
            strict=False,
        )
    ]
    snapshot = snapshot_with(files, 12)
    rows = scan_rows.prune(snapshot, None).rows
    assert [add.doc_mapping_json for add in streamed(snapshot, rows)] == [
        add.doc_mapping_json for add in listed(snapshot, rows)
    ]
    assert {add.doc_mapping_json for add in streamed(snapshot, rows)} == {MAPPING, None, "[1]", "[2]"}


def test_a_stream_of_nothing_still_has_a_schema() -> None:
    snapshot = snapshot_with(files_of(5), 3)
    assert streamed(snapshot, []) == []
    assert arrow_schema(snapshot, []).names == ["path", "partitionValues", "size", "modificationTime", "dataChange"]


@pytest.mark.parametrize("use_up", [True, False])
@settings(max_examples=25, deadline=None)
@given(st.lists(file_lists, max_size=4))
def test_merged_and_packed_again_entries_are_the_same(use_up: bool, manifests: list[list[StateFile]]) -> None:
    batches = [entry_batch(files) for files in (list(FILES), *manifests) if files]
    expected = [record for batch in batches for record in PackedEntries([batch]).records(None)]
    merged = PackedEntries.merged([PackedEntries([batch]) for batch in batches], use_up=use_up)
    assert len(merged) == 1
    assert [present(one) for one in merged[0].records(None)] == [present(one) for one in expected]
    again = PackedEntries([batch_of(merged[0])])
    assert [present(one) for one in again.records(None)] == [present(one) for one in expected]
    assert again.versions.to_pylist() == [v for batch in batches for v in batch.column("addedAtVersion").to_pylist()]


def batch_of(entries: PackedEntries) -> pa.RecordBatch:
    """Packed entries as one batch, which packs into the same entries."""
    columns = {name: entries.column(name, kind) for name, kind in ENTRY_FIELDS.items() if name in entries.names}
    columns |= {"addedAtVersion": entries.versions, "addedAtTimestamp": entries.times}
    return pa.RecordBatch.from_pydict(columns)


def present(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if value is not None}
