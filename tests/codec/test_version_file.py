"""Version files as bytes: golden ones that must be readable for ever, and damage that must never pass unnoticed."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action, Add, CommitInfo, MetaData, Protocol, Remove, SubCommit, Txn
from tarnlog_server.codec import sealed_lines
from tarnlog_server.codec.version_file import CorruptObject, decode, encode, inflate, put_id_of
from tarnlog_server.core.version_record import VersionRecord

KEY = "t/_transaction_log/00000000000000000004.json"

INFO = CommitInfo(
    timestamp=1704067200123,
    put_id="018cc251f4007000800000000000abcd",
    engine_info="tarnlog/0.1",
    sub_commits=(
        SubCommit(
            commit_id="018cc251-f400-7000-8000-000000000001",
            seq=0,
            operation="WRITE",
            operation_parameters={"mode": "Append"},
            is_blind_append=True,
            isolation="write-serializable",
            request_hash="ab" * 32,
            action_count=1,
        ),
        SubCommit(
            commit_id="018cc251-f400-7000-8000-000000000002",
            seq=1,
            operation="DELETE",
            is_blind_append=False,
            read_version=3,
            isolation="serializable",
            request_hash="cd" * 32,
            action_count=2,
        ),
    ),
)
ACTIONS: tuple[Action, ...] = (
    Add(
        path="day=2024-01-01/gr%C3%BCn.parquet",
        partition_values={"day": "2024-01-01"},
        size=10,
        modification_time=1,
        data_change=True,
        num_records=2,
    ),
    Remove(path="old.parquet", data_change=True, deletion_timestamp=5),
    Txn(app_id="a", version=1),
)
RECORD = VersionRecord(4, 1704067200123, INFO.put_id, INFO.sub_commits, ACTIONS)

# Fixed bytes. A change that breaks one of these breaks logs that exist: add new ones beside them, never edit.
GOLDEN_PLAIN = (
    b'{"commitInfo":{"crc32":"27d73302","timestamp":1704067200123,"putId":"018cc251f4007000800000000000abcd",'
    b'"engineInfo":"tarnlog/0.1","subCommits":[{"commitId":"018cc251-f400-7000-8000-000000000001","seq":0,'
    b'"operation":"WRITE","operationParameters":{"mode":"Append"},"isBlindAppend":true,'
    b'"isolation":"write-serializable","requestHash":"abababababababababababababababababababababababababababababababab",'
    b'"actionCount":1},{"commitId":"018cc251-f400-7000-8000-000000000002","seq":1,"operation":"DELETE",'
    b'"isBlindAppend":false,"readVersion":3,"isolation":"serializable",'
    b'"requestHash":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","actionCount":2}]}}\n'
    b'{"add":{"path":"day=2024-01-01/gr%C3%BCn.parquet","partitionValues":{"day":"2024-01-01"},"size":10,'
    b'"modificationTime":1,"dataChange":true,"numRecords":2}}\n'
    b'{"remove":{"path":"old.parquet","dataChange":true,"deletionTimestamp":5}}\n'
    b'{"txn":{"appId":"a","version":1}}\n'
)
GOLDEN_FRAMED = base64.b64decode(
    "AQEfiwgAAAAAAAQD7dSxDoIwFIXh3ce4MyYFBpOuTDyDccBSEwbaCsWYEN7dgjmJDDyBZ3Lo7cV86D+L8X3fxdo9vOhZzGDKQrTYorXqopRkErvejrHp"
    "g+g8kzDFuk0DIZ2M073abo+ir+nud9N6atZT+xStMmlM7Lyr/OSi6EKp5bYsp1ni260PbELY9qXP8/q0lx3GNJ5uHk3lv1P50dRuV3E0tdtVHk3tdvF7"
    "4Q3RCxL8fUGC/0dIsBOQYCcgwU5Agp2ABDsBCXYCEuwEJNgJSLATkGAnIMFOQIKdgAQ7AQl2AhLsBCTYCUiwE5BgJyDBTkCCnYAEOwEJdgIS7AQk/qUT"
    "H/p10YAoHgAA"
)
NAMED_INFO = CommitInfo(
    timestamp=1704067200123,
    put_id="018cc251f4007000800000000000abcd",
    engine_info="tarnlog/0.1",
    sub_commits=(
        SubCommit(commit_id="018cc251-f400-7000-8000-000000000001", seq=0, action_count=1, committed_by="etl"),
        SubCommit(commit_id="018cc251-f400-7000-8000-000000000002", seq=1, action_count=0),
    ),
)
GOLDEN_NAMED = (
    b'{"commitInfo":{"crc32":"6fbb7cd9","timestamp":1704067200123,"putId":"018cc251f4007000800000000000abcd",'
    b'"engineInfo":"tarnlog/0.1","subCommits":[{"commitId":"018cc251-f400-7000-8000-000000000001","seq":0,'
    b'"actionCount":1,"committedBy":"etl"},{"commitId":"018cc251-f400-7000-8000-000000000002","seq":1,'
    b'"actionCount":0}]}}\n'
    b'{"txn":{"appId":"a","version":1}}\n'
)
CHAINED_INFO = CommitInfo(
    timestamp=1704067200123,
    version=4,
    put_id="018cc251f4007000800000000000abcd",
    previous_put_id="018cc251f0007000800000000000abcc",
    engine_info="tarnlog/0.1",
    sub_commits=(SubCommit(commit_id="018cc251-f400-7000-8000-000000000001", seq=0, action_count=1),),
)
GOLDEN_CHAINED = (
    b'{"commitInfo":{"crc32":"c6b53dca","timestamp":1704067200123,"version":4,"putId":"018cc251f4007000800'
    b'000000000abcd","previousPutId":"018cc251f0007000800000000000abcc","engineInfo":"tarnlog/0.1","subCom'
    b'mits":[{"commitId":"018cc251-f400-7000-8000-000000000001","seq":0,"actionCount":1}]}}\n'
    b'{"txn":{"appId":"a","version":1}}\n'
)
BIG_INFO = CommitInfo(
    timestamp=1, put_id="p", sub_commits=(SubCommit(commit_id="c", seq=0, action_count=200),), engine_info=None
)
BIG_ACTIONS: tuple[Action, ...] = tuple(Txn(app_id=f"app-{i % 2}", version=i % 4) for i in range(200))
BIG_RECORD = VersionRecord(4, 1, "p", BIG_INFO.sub_commits, BIG_ACTIONS)
# What other software wrote: a log of its own making, plain, without commitInfo.
FOREIGN = (
    b'{"protocol":{"minReaderVersion":2,"minWriterVersion":2}}\n'
    b'{"metaData":{"id":"7f0c","format":{"provider":"indextables","options":{}},"schemaString":"{}",'
    b'"partitionColumns":[],"configuration":{},"createdTime":7}}\n'
    b'{"add":{"path":"a.split","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,"hasFooterOffsets":null}}\n'
)


def _lines(actions: tuple[Action, ...]) -> list[bytes]:
    return [b"\n".join(encode_action(action) for action in actions)]


def raw_gzip(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def framed(text: bytes) -> bytes:
    return b"\x01\x01" + gzip.compress(text, mtime=0)


def _read_or_named(data: bytes) -> VersionRecord | None:
    """The record, or None when the damage was noticed and the error names the object."""
    try:
        return decode(KEY, 4, data)
    except CorruptObject as error:
        if error.key != KEY:
            raise
        return None


def plain(text: bytes) -> bytes:
    return text


def test_the_golden_plain_file() -> None:
    assert encode(INFO, _lines(ACTIONS), compress=True) == GOLDEN_PLAIN
    assert encode(INFO, [encode_action(ACTIONS[0]), b"\n".join(map(encode_action, ACTIONS[1:]))], compress=False) == (
        GOLDEN_PLAIN
    )
    assert decode(KEY, 4, GOLDEN_PLAIN) == RECORD
    assert put_id_of(KEY, GOLDEN_PLAIN) == INFO.put_id


def test_the_golden_file_with_a_name() -> None:
    """Who committed stands at the end of a record, and is left out where nobody is known."""
    assert encode(NAMED_INFO, _lines(ACTIONS[2:]), compress=True) == GOLDEN_NAMED
    assert decode(KEY, 4, GOLDEN_NAMED).sub_commits == NAMED_INFO.sub_commits


def test_the_golden_file_with_its_number_and_predecessor() -> None:
    """Files of before do not name them: see the others, which are read as well."""
    assert encode(CHAINED_INFO, _lines(ACTIONS[2:]), compress=True) == GOLDEN_CHAINED
    record = decode(KEY, 4, GOLDEN_CHAINED)
    assert (record.put_id, record.previous_put_id) == (CHAINED_INFO.put_id, CHAINED_INFO.previous_put_id)
    assert decode(KEY, 4, GOLDEN_PLAIN).previous_put_id is msgspec.UNSET
    with pytest.raises(CorruptObject, match="the file of version 4, in the place of version 5"):
        decode(KEY, 5, GOLDEN_CHAINED)


def test_a_first_version_names_no_predecessor() -> None:
    info = msgspec.structs.replace(CHAINED_INFO, version=0, previous_put_id=None)
    data = encode(info, _lines(ACTIONS[2:]), compress=True)
    assert b"previousPutId" not in data
    assert decode(KEY, 0, data).previous_put_id is None


@pytest.mark.parametrize("version", [b"7", b'"7"', b"null", b"-1"])
def test_a_number_in_another_writers_file_means_nothing(version: bytes) -> None:
    text = b'{"commitInfo":{"version":' + version + b',"timestamp":5}}\n{"txn":{"appId":"a","version":1}}\n'
    assert decode(KEY, 4, text).previous_put_id is msgspec.UNSET


def test_the_golden_framed_file() -> None:
    assert decode(KEY, 4, GOLDEN_FRAMED) == BIG_RECORD
    assert put_id_of(KEY, GOLDEN_FRAMED) == "p"
    # Deflate has many spellings of one text, so what is written is compared by what it inflates to.
    written = encode(BIG_INFO, _lines(BIG_ACTIONS), compress=True)
    assert written[:4] == b"\x01\x01\x1f\x8b"
    assert inflate(KEY, written) == inflate(KEY, GOLDEN_FRAMED) == encode(BIG_INFO, _lines(BIG_ACTIONS), compress=False)
    assert gzip.decompress(written[2:]) == inflate(KEY, written)


def test_small_files_stay_plain_and_large_ones_do_only_on_request() -> None:
    assert len(GOLDEN_PLAIN) <= sealed_lines.COMPRESS_ABOVE == 4096
    assert encode(BIG_INFO, _lines(BIG_ACTIONS), compress=False).startswith(b'{"commitInfo"')
    for size, is_plain in ((4096, True), (4097, False)):
        empty = len(encode(CommitInfo(engine_info=""), [], compress=False))
        data = encode(CommitInfo(engine_info="x" * (size - empty)), [], compress=True)
        assert data.startswith(b"{") is is_plain


def test_empty_line_groups_leave_no_blank_line() -> None:
    info = CommitInfo(timestamp=1, sub_commits=(SubCommit(commit_id="c", seq=0, operation="DROP", action_count=0),))
    data = encode(info, [b""], compress=True)
    assert data.count(b"\n") == 1
    assert decode(KEY, 4, data).drops_table


@pytest.mark.parametrize("wrap", [plain, raw_gzip, framed])
@pytest.mark.parametrize("text", [GOLDEN_PLAIN, FOREIGN, FOREIGN.replace(b"\n", b"\r\n"), FOREIGN.rstrip()])
def test_every_wrapping_is_read(wrap: Callable[[bytes], bytes], text: bytes) -> None:
    assert decode(KEY, 4, wrap(text), modified_ms=9) == decode(KEY, 4, text, modified_ms=9)


def test_a_foreign_file() -> None:
    record = decode(KEY, 0, FOREIGN, modified_ms=1234)
    assert record.timestamp == 1234
    assert record.sub_commits == ()
    assert record.put_id is None
    assert [type(action) for action in record.actions] == [Protocol, MetaData, Add]
    assert decode(KEY, 0, FOREIGN).timestamp == -1, "the caller must look at the object's own time"
    assert put_id_of(KEY, FOREIGN) is None
    assert put_id_of(KEY, b"not json at all") is None
    own_time = decode(KEY, 0, b'{"commitInfo":{"timestamp":77,"operation":"WRITE"}}\n' + FOREIGN, modified_ms=1234)
    assert (own_time.timestamp, own_time.sub_commits, own_time.put_id) == (77, (), None)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b" \r\n\t", "it is empty"),
        (b"\x01\x01", "promises gzip"),
        (b"\x01\x01{}", "promises gzip"),
        (b"\x1f\x8b", "cut off"),
        (b"\x01\x01\x1f\x8b", "cut off"),
        (b"\x1f\x8bnonsense", "broken"),
        (raw_gzip(b""), "it is empty"),
        (framed(GOLDEN_PLAIN)[:-1], "cut off"),
        (framed(GOLDEN_PLAIN)[:-8], "cut off"),
        (raw_gzip(GOLDEN_PLAIN)[: len(raw_gzip(GOLDEN_PLAIN)) // 2], "cut off"),
        (b"{}", "no action"),
        (b'{"cdc":{}}\n', "no action"),
        (b"garbage", "line 1: not JSON"),
        (FOREIGN + b'{"add"', "line 4: not JSON"),
        (FOREIGN + b'{"add":{"path":"x"}}', "line 4: add"),
        (b"\x00" * 100, "line 1: not JSON"),
        (b'{"txn":' * 50_000, "line 1: not JSON"),
    ],
)
def test_damage_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says) as caught:
        decode(KEY, 4, data)
    assert caught.value.key == KEY
    assert KEY in str(caught.value)


def test_any_cut_of_our_file_is_noticed() -> None:
    for data in (GOLDEN_PLAIN, GOLDEN_FRAMED):
        for length in range(len(data)):
            with pytest.raises(CorruptObject) as caught:
                decode(KEY, 4, data[:length])
            assert caught.value.key == KEY


@pytest.mark.parametrize("data, record", [(GOLDEN_PLAIN, RECORD), (GOLDEN_FRAMED, BIG_RECORD)])
def test_every_single_bit_flip_is_noticed_or_harmless(data: bytes, record: VersionRecord) -> None:
    unnoticed = 0
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        read = _read_or_named(bytes(damaged))
        assert read in (None, record), f"bit {at} changed what the file says"
        unnoticed += read is not None
    # Only gzip has bits that nobody reads: its time, its flags and the padding after the last block.
    assert unnoticed == 0 if data is GOLDEN_PLAIN else unnoticed < 100


@given(
    st.integers(0, len(GOLDEN_PLAIN) - 1),
    st.integers(0, 255),
    st.integers(0, len(GOLDEN_PLAIN) - 1),
    st.integers(0, 255),
)
def test_two_damaged_bytes_are_noticed(first: int, one: int, second: int, other: int) -> None:
    damaged = bytearray(GOLDEN_PLAIN)
    damaged[first], damaged[second] = one, other
    if bytes(damaged) == GOLDEN_PLAIN:
        return
    with pytest.raises(CorruptObject):
        decode(KEY, 4, bytes(damaged))


def test_lines_that_moved_or_vanished_are_noticed() -> None:
    info, add, remove, txn = GOLDEN_PLAIN.splitlines(keepends=True)
    for other in (info + add + txn + remove, info + add + remove, info + add + remove + txn + txn, add + info):
        with pytest.raises(CorruptObject, match=r"checksum|announces"):
            decode(KEY, 4, other)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_action_count_is_corruption(count: int) -> None:
    sub = SubCommit(commit_id="c", seq=0, action_count=count)
    data = encode(CommitInfo(timestamp=1, sub_commits=(sub,)), _lines(ACTIONS), compress=True)
    with pytest.raises(CorruptObject, match=f"announces {count} actions, but 3 are there"):
        decode(KEY, 4, data)


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_lines, "MAX_INFLATED", 1 << 20)
    bomb = gzip.compress(b"\n" * (64 << 20))
    assert len(bomb) < 1 << 17
    with pytest.raises(CorruptObject, match="inflates to more than 1048576 bytes"):
        decode(KEY, 4, bomb)
    exact = FOREIGN + b"\n" * ((1 << 20) - len(FOREIGN))
    assert len(decode(KEY, 4, framed(exact)).actions) == 3
    with pytest.raises(CorruptObject, match="inflates to more"):
        decode(KEY, 4, framed(exact + b"\n" * 1000))


def test_the_real_cap() -> None:
    assert sealed_lines.MAX_INFLATED == 512 << 20


def test_unknown_fields_are_still_there_after_a_decode_and_encode() -> None:
    line = (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true,"future":{"x":[1]}}}'
    )
    record = decode(KEY, 0, line, modified_ms=1)
    again = decode(KEY, 0, encode(CommitInfo(timestamp=1), [encode_action(record.actions[0])], compress=True))
    assert again.actions == record.actions
    assert msgspec.json.decode(encode_action(again.actions[0]))["add"]["future"] == {"x": [1]}


@given(st.binary(max_size=200))
def test_random_bytes_never_do_anything_else(data: bytes) -> None:
    for wrapped in (data, b"\x01\x01" + data, b"\x1f\x8b" + data, framed(data), b'{"commitInfo":{"crc32":"' + data):
        assert isinstance(_read_or_named(wrapped), VersionRecord | None)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=6), st.integers(0, 9)), min_size=1, max_size=40), st.booleans())
def test_what_was_written_is_read(txns: list[tuple[str, int]], compress: bool) -> None:
    actions = tuple(Txn(app_id=app, version=version) for app, version in txns)
    info = CommitInfo(
        timestamp=3, put_id="x", sub_commits=(SubCommit(commit_id="c", seq=0, action_count=len(actions)),)
    )
    data = encode(info, _lines(actions), compress=compress)
    assert decode(KEY, 4, data) == VersionRecord(4, 3, "x", info.sub_commits, actions)
