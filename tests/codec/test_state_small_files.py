"""The small objects beside a state: `_last_checkpoint` and `ids.bin`."""

from __future__ import annotations

import struct
from array import array
from heapq import merge

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.codec.ids_file import CommitIdRun, decode_ids, encode_ids, make_run
from tarnlog_server.codec.last_checkpoint import LastCheckpoint, decode_last_checkpoint, encode_last_checkpoint
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import assert_noticed_or_harmless

KEY = "t/_transaction_log/_last_checkpoint"
LAST = LastCheckpoint(
    version=42,
    size=15000,
    size_in_bytes=104857600,
    num_files=15000,
    created_time=1704067200000,
    format="avro-state",
    state_dir="state-v00000000000000000042",
)
# Fixed bytes: never edit.
GOLDEN_LAST = (
    b'{"version":42,"size":15000,"sizeInBytes":104857600,"numFiles":15000,"createdTime":1704067200000,'
    b'"format":"avro-state","stateDir":"state-v00000000000000000042"}'
)


def test_the_golden_hint() -> None:
    assert encode_last_checkpoint(LAST) == GOLDEN_LAST
    assert decode_last_checkpoint(KEY, GOLDEN_LAST) == LAST
    parts = msgspec.structs.replace(
        LAST, parts=3, checkpoint_id="0123456789ab", format="json-multipart", state_dir=None
    )
    assert decode_last_checkpoint(KEY, encode_last_checkpoint(parts)) == parts


def test_the_hint_has_no_member_that_others_do_not_know() -> None:
    known = {"version", "size", "sizeInBytes", "numFiles", "createdTime", "parts", "checkpointId", "format", "stateDir"}
    assert {field.encode_name for field in msgspec.structs.fields(LastCheckpoint)} == known


@pytest.mark.parametrize(
    "data, expected",
    [
        (b'{"version":7}', (7, 0, 0, None, None)),
        (b'{"version":7,"parts":null,"format":null,"stateDir":null,"numFiles":null}', (7, 0, 0, None, None)),
        (b'{"version":7,"size":3,"parts":2,"format":"json","novel":{}}', (7, 3, 0, 2, "json")),
        (b'\n{"version":7,"size":"3","parts":-1,"format":5}\n', (7, 0, 0, None, None)),
    ],
)
def test_a_hint_is_read_leniently(data: bytes, expected: tuple[object, ...]) -> None:
    last = decode_last_checkpoint(KEY, data)
    assert (last.version, last.size, last.num_files, last.parts, last.format) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{}", b'{"version":"7"}', b'{"version":-1}', b'{"version":true}', b"\xff", b"[" * 99999],
)
def test_a_hint_without_a_version_is_none(data: bytes) -> None:
    with pytest.raises(CorruptObject) as caught:
        decode_last_checkpoint(KEY, data)
    assert caught.value.key == KEY


IDS_KEY = "t/_transaction_log/state-v00000000000000000042/ids.bin"
RUN = make_run(42, 1704067200000, 1704067209999, [(2**64 - 1, 42, 2**31 - 1), (5, 7, 0), (5, 6, 1)])
# Fixed bytes: never edit.
GOLDEN_IDS = bytes.fromhex(
    "5441524e4944530a01000000000000002a00000000000000030000000000000000f451c28c0100000f1b52c28c010000"
    "e7711c91f17a23826fb3f9bb214703e7d169e8dd9165f060b1008452d5f1ac4e05000000000000000500000000000000"
    "ffffffffffffffff060000000000000007000000000000002a000000000000000100000000000000ffffff7f"
)


def test_the_golden_ids() -> None:
    assert list(RUN.hashes) == [5, 5, 2**64 - 1]
    assert list(RUN.versions) == [6, 7, 42]
    assert list(RUN.seqs) == [1, 0, 2**31 - 1]
    assert encode_ids(RUN) == GOLDEN_IDS
    assert decode_ids(IDS_KEY, GOLDEN_IDS) == RUN
    assert len(GOLDEN_IDS) == 80 + 20 * 3


def test_the_arrays_are_those_of_a_sealed_run() -> None:
    run = decode_ids(IDS_KEY, GOLDEN_IDS)
    assert [column.typecode for column in (run.hashes, run.versions, run.seqs)] == ["Q", "q", "i"]
    assert (run.state_version, run.oldest_ms, run.newest_ms) == (42, 1704067200000, 1704067209999)


_entries = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)))


@given(_entries)
def test_any_ids_are_sorted_and_read_back(entries: list[tuple[int, int, int]]) -> None:
    run = make_run(1, 2, 3, iter(entries))
    assert list(zip(run.hashes, run.versions, run.seqs, strict=True)) == sorted(entries)
    assert decode_ids(IDS_KEY, encode_ids(run)) == run


@given(_entries, _entries)
def test_runs_are_merged_as_they_come(one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]) -> None:
    merged = make_run(1, 2, 3, merge(sorted(one), sorted(other)))
    assert merged == make_run(1, 2, 3, one + other)


def test_no_ids() -> None:
    empty = CommitIdRun(9, 0, 0, array("Q"), array("q"), array("i"))
    assert decode_ids(IDS_KEY, encode_ids(empty)) == empty == make_run(9, 0, 0, [])


def test_every_flip_and_cut_is_noticed() -> None:
    assert_noticed_or_harmless(GOLDEN_IDS, lambda data: decode_ids(IDS_KEY, data), IDS_KEY)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "cut off"),
        (b"x" * 80, "not a file of commit ids"),
        (struct.pack("<8sI", b"TARNIDS\n", 2) + bytes(68), "format 2 is not known"),
        (struct.pack("<8sIIqq", b"TARNIDS\n", 1, 0, 0, -1) + bytes(48), "do not hold the -1 ids"),
        (GOLDEN_IDS + b"\0", "do not hold the 3 ids"),
    ],
)
def test_what_is_no_file_of_ids_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says):
        decode_ids(IDS_KEY, data)
