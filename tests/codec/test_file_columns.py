"""Files as columns: the same files as decoding one by one, and a log of files that cannot be told from a plain one."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key
from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.codec.file_columns import FileColumns, UnexpectedColumns
from tarnlog_server.codec.state_avro import decode_manifest, encode_manifest
from tarnlog_server.codec.state_manifest import Tombstone, live_files
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.file_log import FileLog
from tests.codec.states import FILES, PARTITION_COLUMNS, file_lists, plain_add

pytest.importorskip("datafusion")
READER = DataFusionColumns()
PATHS = ("a", "b", "c/d", "d%20e", "d e", "x//y", "x/y", "p/./q", "zz")
KEYS = sorted({path_key(path) for path in PATHS})


def batches(*manifests: list[StateFile]) -> list[pa.RecordBatch]:
    return [batch for files in manifests for batch in READER.read_avro(encode_manifest(files).data)]


def columns(*manifests: list[StateFile], hidden: Mapping[str, int | None] | None = None) -> FileColumns:
    return FileColumns.live(batches(*manifests), hidden or {}, PARTITION_COLUMNS)


def one_by_one(*manifests: list[StateFile]) -> list[StateFile]:
    found = []
    for files in manifests:
        found += decode_manifest("k", encode_manifest(files).data, partition_columns=PARTITION_COLUMNS)
    return sorted(found, key=lambda file: (file.added_at_version, file.add.path))


def file(path: str, version: int, size: int = 10) -> StateFile:
    add = plain_add(path)
    return StateFile(Add(**{**{name: getattr(add, name) for name in add.__struct_fields__}, "size": size}), version, 7)


def test_every_field_of_every_file_is_as_decoding_one_by_one_gives_it() -> None:
    found = columns(list(FILES))
    expected = one_by_one(list(FILES))
    assert list(found) == expected
    assert [unknown_fields(one.add) for one in found] == [unknown_fields(one.add) for one in expected]
    assert [found.row(index) for index in range(len(found))] == [one.add for one in expected]


@given(file_lists, file_lists)
@settings(max_examples=60, deadline=None)
def test_any_files_of_any_manifests(first: list[StateFile], second: list[StateFile]) -> None:
    taken = {path_key(one.add.path) for one in first}
    second = [one for one in second if path_key(one.add.path) not in taken]
    expected = one_by_one(first, second)
    if len({path_key(one.add.path) for one in expected}) < len(expected):
        return  # two spellings of one path: the newest counts, below
    found = columns(first, second)
    assert list(found) == expected
    assert [unknown_fields(one.add) for one in found] == [unknown_fields(one.add) for one in expected]
    sizes = sum(one.add.size for one in expected)
    counts = [one.add.num_records for one in expected]
    assert found.totals() == (sizes, sum(count or 0 for count in counts), counts.count(None))
    for index, one in enumerate(expected):
        assert found.find(path_key(one.add.path)) == index
        assert (found.added_at(index), found.added_time(index)) == (one.added_at_version, one.added_at_timestamp)


entries = st.lists(st.tuples(st.sampled_from(PATHS), st.integers(1, 9), st.integers(0, 5)), max_size=8)
stones = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 10), max_size=4)


@given(entries, entries, stones)
@settings(max_examples=80, deadline=None)
def test_tombstones_hide_and_the_newest_entry_of_a_path_counts(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], hidden: dict[str, int | None]
) -> None:
    manifests = [[file(*entry) for entry in part] for part in (first, second)]
    visible = live_files(
        [Tombstone(key.replace("%", "%25"), below) for key, below in hidden.items()], [*manifests[0], *manifests[1]]
    )
    newest: dict[str, StateFile] = {}
    for one in sorted(visible, key=lambda one: (one.added_at_version, one.add.path)):
        newest[path_key(one.add.path)] = one
    found = columns(*manifests, hidden=hidden)
    assert len(found) == len(newest)
    for one in found:
        same = newest[path_key(one.add.path)]
        # Where one version added a path twice in the same spelling, either entry stands for it.
        assert (one.add.path, one.added_at_version) == (same.add.path, same.added_at_version)


operations = st.lists(st.tuples(st.sampled_from(["add", "remove", "compact"]), st.sampled_from(KEYS)), max_size=20)


@given(st.lists(st.sampled_from(KEYS), unique=True), operations)
@settings(max_examples=80, deadline=None)
def test_a_log_that_starts_with_columns_cannot_be_told_from_a_plain_one(
    initial: list[str], changes: list[tuple[str, str]]
) -> None:
    start = [file(key.replace("%", "%25"), 1 + number % 3) for number, key in enumerate(initial)]
    packed, plain = FileLog(columns(start)), FileLog()
    for one in one_by_one(start):
        plain.add(path_key(one.add.path), one.add, one.added_at_version, one.added_at_timestamp)
    views: list[tuple[int, FileLog, int, FileLog, int]] = []
    for version, (what, key) in enumerate(changes, 10):
        if what == "compact":
            packed, plain = packed.compacted(), plain.compacted()
            assert packed.dead_rows == 0
        elif what == "add":
            new = file(key.replace("%", "%25"), version, size=version).add
            assert packed.add(key, new, version, 5) == plain.add(key, new, version, 5)
        else:
            assert packed.remove(key, version) == plain.remove(key, version)
        views.append((version, packed, len(packed), plain, len(plain)))
    assert packed.live_count == plain.live_count
    for key in KEYS:
        assert packed.live(key) == plain.live(key)
        assert packed.has(key) == (plain.live(key) is not None)
        assert packed.live_since(key) == plain.live_since(key)
    for version, one_log, one_length, other, length in views:
        assert [add for _, add in one_log.rows(version, one_length)] == [add for _, add in other.rows(version, length)]
        for row, add in one_log.rows(version, one_length):
            after = one_log.row_after(one_log.added_at(row), path_key(add.path))
            assert [index for index, _ in one_log.rows(version, one_length, after)] == [
                index for index, _ in one_log.rows(version, one_length) if index > row
            ]


def test_a_long_listing_is_made_in_blocks_and_may_end_early() -> None:
    files = [file(f"p/{number:05d}", number // 7) for number in range(3000)]
    found = columns(files[::2], files[1::2])
    assert [add.path for add in found.rows(0)] == [f"p/{number:05d}" for number in range(3000)]
    assert next(found.rows(2999)).path == "p/02999"
    assert [one.add.path for one in found.chosen([5, 2, 2900])] == ["p/00005", "p/00002", "p/02900"]
    assert (found.first_of(0), found.first_of(3), found.first_of(10_000)) == (0, 21, 3000)


def test_no_files_are_columns_too() -> None:
    found = columns([])
    assert (len(found), list(found), found.find("a"), found.totals()) == (0, [], None, (0, 0, 0))


def test_columns_of_another_kind_are_refused() -> None:
    with pytest.raises(UnexpectedColumns, match="addedAtVersion"):
        FileColumns([pa.RecordBatch.from_pydict({"path": ["a"], "size": [1]})])


def test_what_is_no_container_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="cannot read"):
        READER.read_avro(b"Obj\x01 and then nothing that makes sense")
