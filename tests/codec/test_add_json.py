"""Listings made of columns are the bytes that the actions give, whatever the files are, however they lie in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Add
from tarnlog_server.api.answers import flat
from tarnlog_server.codec import add_json, scan_rows
from tarnlog_server.codec.add_arrow import FIELDS
from tarnlog_server.codec.add_json import files_json
from tarnlog_server.codec.entry_batch import entry_batch
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.replay import Snapshot
from tests.codec.scans import files_of, metadata, snapshot_with
from tests.codec.states import FILES, PARTITION_COLUMNS, SCHEMA_STRING, file_lists

META = metadata(SCHEMA_STRING, PARTITION_COLUMNS)
TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\", "\x00", "\x1f", "\x7f", "\u2028", "😀", "a/b", ""])
NAMES = ("id", 'odd "name"', "ü\\")


def slowly(snapshot: Snapshot, rows: Sequence[int]) -> bytes:
    return msgspec.json.encode([flat(add) for add in scan_rows.adds(snapshot, rows)])


def no_actions() -> mock._patch[mock.Mock]:
    return mock.patch.object(add_json, "adds", side_effect=AssertionError("an action was made"))


def test_the_fields_are_those_of_an_action_in_its_order() -> None:
    wire = [field.encode_name for field in msgspec.structs.fields(Add)]
    assert [*wire, "extra"] == list(FIELDS)
    assert {field.encode_name for field in msgspec.structs.fields(Add) if field.required} == add_json._ALWAYS


@settings(max_examples=60, deadline=None)
@given(file_lists, st.integers(0, 6), st.integers(1, 4), st.sampled_from([1, 3, 8192]))
def test_every_field_is_the_same(files: list[StateFile], packed_rows: int, every: int, block: int) -> None:
    adds = list({add.path: add for add in [one.add for one in (*FILES, *files)]}.values())
    snapshot = snapshot_with(adds, min(packed_rows, len(adds)), META)
    rows = scan_rows.prune(snapshot, None).rows[::every]
    with mock.patch.object(add_json, "BLOCK", block):
        assert bytes(files_json(snapshot, rows)) == slowly(snapshot, rows)


def regular(draw: st.DrawFn) -> list[Add]:
    """Files that all have the same fields, as one writer leaves them; their texts are anything."""
    count = draw(st.integers(1, 12))
    keys = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    optional = draw(st.sets(st.sampled_from(["stats", "records", "mapping", "inline", "footer", "tags", "lists"])))
    few = draw(st.lists(TEXTS, min_size=1, max_size=2))
    found = []
    for number in range(count):
        some = draw(st.booleans())
        values = {key: draw(TEXTS) for key in keys}
        found.append(
            Add(
                path=f"{draw(TEXTS)}-{number}",
                partition_values={"day": draw(st.sampled_from(few)), "n": draw(TEXTS)},
                size=draw(st.integers(0, 2**63 - 1)),
                modification_time=draw(st.integers(-(2**63), 2**63 - 1)),
                data_change=draw(st.booleans()),
                min_values=values if keys else None,
                max_values=values if keys and some else None,
                stats=draw(TEXTS) if "stats" in optional else None,
                num_records=number if "records" in optional and some else None,
                has_footer_offsets="footer" in optional and some,
                doc_mapping_ref="ab12cd34ef56gh78" if "mapping" in optional else None,
                doc_mapping_json=draw(TEXTS) if "inline" in optional and some else None,
                tags={"t": draw(TEXTS), "none": None} if "tags" in optional else None,
                split_tags=tuple(draw(st.lists(TEXTS, max_size=2))) if "lists" in optional else None,
            )
        )
    return found


@settings(max_examples=150, deadline=None)
@given(st.composite(regular)(), st.data())
def test_no_action_is_made_of_regular_files(files: list[Add], data: st.DataObject) -> None:
    snapshot = snapshot_with(files, len(files), META)
    rows = sorted(data.draw(st.sets(st.integers(0, len(files) - 1), min_size=1)))
    expected = slowly(snapshot, rows)
    with no_actions():
        assert bytes(files_json(snapshot, rows)) == expected


def _in_parts(files: Sequence[Add], parts: int) -> Snapshot:
    """Files whose rows lie in several chunks, by turns."""
    entries = [StateFile(add, version, 7) for version, add in enumerate(files)]
    segment = FileColumns([PackedEntries([entry_batch(entries[at::parts])]) for at in range(parts)], ("day",))
    assert len(segment.chunks) == parts
    log = FileLog(segment)
    return dataclasses.replace(
        snapshot_with(files[:1], 0), files=log, length=len(log), num_files=len(log), version=len(files)
    )


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_rows_of_several_chunks_come_in_their_order(parts: int) -> None:
    files = files_of(40)
    snapshot = _in_parts(files, parts)
    for rows in (range(40), range(3, 30, 4), [5], []):
        expected = slowly(snapshot, rows)
        with no_actions():
            assert bytes(files_json(snapshot, rows)) == expected
        assert [one["path"] for one in msgspec.json.decode(expected)] == [files[row].path for row in rows]


def test_packed_and_recent_files_follow_each_other() -> None:
    snapshot = snapshot_with(files_of(20), 12)
    for rows in (range(20), range(12), range(12, 20), [11, 12], []):
        assert bytes(files_json(snapshot, rows)) == slowly(snapshot, rows)


def test_what_columns_cannot_tell_is_left_to_the_actions() -> None:
    snapshot = _in_parts(files_of(6), 1)
    expected = slowly(snapshot, range(6))
    with mock.patch.object(add_json, "mappings", side_effect=pa.ArrowInvalid("a type that nobody expected")):
        assert bytes(files_json(snapshot, range(6))) == expected


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.integers(0, 31), st.integers(0, 32))
@example(count=3, dead={0, 1, 2}, start=0, limit=1)
def test_live_rows_are_those_of_the_snapshot(count: int, dead: set[int], start: int, limit: int) -> None:
    files = files_of(count)
    snapshot = snapshot_with(files, count // 2)
    for number in sorted(dead):
        if number < count:
            snapshot.files.remove(files[number].path, snapshot.version)
    expected = [row for row, _ in snapshot.rows(start)][:limit]
    assert list(scan_rows.live_rows(snapshot, start, limit)) == expected
