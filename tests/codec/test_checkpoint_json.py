"""JSON checkpoints: golden bytes, parts, what others wrote, and that no damage passes unnoticed."""

from __future__ import annotations

import gzip
import random
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.action_json import decode_lines
from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Txn
from tarnlog_server.codec import checkpoint_json_read
from tarnlog_server.codec.checkpoint_json import encode_checkpoint, encode_checkpoint_parts, encode_parts_manifest
from tarnlog_server.codec.checkpoint_json_read import decode_checkpoint, decode_part
from tarnlog_server.codec.checkpoint_order import count_actions
from tarnlog_server.codec.checkpoint_parts import CheckpointPart, PartsManifest, join_parts
from tarnlog_server.codec.sealed_lines import seal
from tarnlog_server.codec.table_state import State, StateFacts, StateFile
from tarnlog_server.codec.version_file import CorruptObject, inflate
from tests.codec.states import (
    FACTS,
    FILES,
    VERSION,
    assert_noticed_or_harmless,
    fact_values,
    file_lists,
    unchanged,
    unchanged_files,
)

KEY = "t/_transaction_log/00000000000000000042.checkpoint.json"
ID = "0123456789ab"
STATE = State(unchanged(FACTS), unchanged_files(FILES), ours=True)

# Fixed bytes. Checkpoints written like this exist: add new ones beside them, never edit.
GOLDEN_MIXED = (
    b'{"commitInfo":{"crc32":"cfca6df9","timestamp":1704067200456,"checkpoint":{"version":42,"last":true,"fact'
    b's":{"timestamp":1704067200456,"putId":"018cc251f4007000800000000000abcd","versionSha256":"5e5e5e5e5e5e5e'
    b'5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","truncationLength":32,"txnVersions":[41,2],"skips":['
    b'{"path":"p.parquet","skipTimestamp":1,"reason":"broken","operation":"merge","retryAfter":99,"skipCount":'
    b'3},{"why":"not","path":"q.parquet","skipTimestamp":1,"reason":"r","operation":"o"}],"dropped":true,"adop'
    b'tedFrom":12,"versionTimestamps":[[13,1704067100000],[14,1704067100001]]},"versions":[3,42,41,7,40],"time'
    b's":[1704067200123,1704067209999,99,8,77]}}}\n'
    b'{"protocol":{"minReaderVersion":4,"minWriterVersion":4,"readerFeatures":["avroState"],"writerFeatures":['
    b'"avroState"]}}\n'
    b'{"metaData":{"id":"7f0c","name":"orders","format":{"provider":"parquet","options":{"k":"v"}},"schemaStri'
    b'ng":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":'
    b'{}},{\\"name\\":\\"day\\",\\"type\\":\\"date\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"name\\":\\"n\\",\\"type\\":\\"in'
    b'teger\\",\\"nullable\\":true,\\"metadata\\":{}}]}","partitionColumns":["day","n"],"configuration":{"docMappin'
    b'gSchema.ab12cd34ef56gh78":"[{\\"name\\":\\"title\\"}]","owner":"zo\xc3\xab"},"createdTime":1704067200000}}\n'
    b'{"txn":{"appId":"stream","version":8,"lastUpdated":9}}\n'
    b'{"txn":{"u":1,"appId":"b","version":-1}}\n'
    b'{"add":{"path":"day=2024-01-01/n=9/gr%C3%BCn.parquet","partitionValues":{"day":"2024-01-01","n":"9"},"si'
    b'ze":1048576,"modificationTime":1704067200000,"dataChange":false,"stats":"{\\"numRecords\\":3}","tags":{"a"'
    b':"b","none":null},"minValues":{"id":"1"},"maxValues":{"id":"9"},"numRecords":3,"footerStartOffset":900,"'
    b'footerEndOffset":1000,"hotcacheStartOffset":850,"hotcacheLength":50,"hasFooterOffsets":true,"timeRangeSt'
    b'art":"2024-01-01T00:00:00Z","timeRangeEnd":"2024-01-02T00:00:00Z","splitTags":["x","y"],"deleteOpstamp":'
    b'7,"numMergeOps":2,"docMappingJson":"[]","docMappingRef":"ab12cd34ef56gh78","uncompressedSizeBytes":41943'
    b'04,"companionSourceFiles":["s.parquet"],"companionDeltaVersion":5,"companionFastFieldMode":"HYBRID"}}\n'
    b'{"add":{"path":"day=2024-01-02/n=10/b.parquet","partitionValues":{"day":"2024-01-02","n":"10"},"size":10'
    b',"modificationTime":5,"dataChange":false}}\n'
    b'{"remove":{"path":"day=2024-01-03/a.parquet","dataChange":false}}\n'
    b'{"add":{"future":{"x":[1,null]},"extra":1,"path":"day=x/c.parquet","partitionValues":{"day":null,"n":nul'
    b'l},"size":10,"modificationTime":5,"dataChange":false}}\n'
    b'{"remove":{"version":5,"path":"z.parquet","dataChange":false,"deletionTimestamp":77,"extendedFileMetadat'
    b'a":true,"partitionValues":{"day":null,"n":"1"},"size":4,"tags":{"t":"u"}}}\n'
)
_MIXED = GOLDEN_MIXED.splitlines(keepends=True)
GOLDEN = (
    b'{"commitInfo":{"crc32":"5a628ceb","timestamp":1704067200456,"checkpoint":{"version":42,"last":true,"fact'
    b's":{"timestamp":1704067200456,"putId":"018cc251f4007000800000000000abcd","versionSha256":"5e5e5e5e5e5e5e'
    b'5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","truncationLength":32,"txnVersions":[41,2],"skips":['
    b'{"path":"p.parquet","skipTimestamp":1,"reason":"broken","operation":"merge","retryAfter":99,"skipCount":'
    b'3},{"why":"not","path":"q.parquet","skipTimestamp":1,"reason":"r","operation":"o"}],"dropped":true,"adop'
    b'tedFrom":12,"versionTimestamps":[[13,1704067100000],[14,1704067100001]]},"versions":[3,42,7,41,40],"time'
    b's":[1704067200123,1704067209999,8,99,77]}}}\n'
) + b"".join(_MIXED[at] for at in (1, 2, 3, 4, 5, 6, 8, 7, 9))
"""The same, written since: removes come after all files."""
GOLDEN_MANIFEST = (
    b'{"version":42,"checkpointId":"0123456789ab","parts":["00000000000000000042.checkpoint.0123456789ab.00001.json",'
    b'"00000000000000000042.checkpoint.0123456789ab.00002.json"],"createdTime":1704067200000,"format":"json"}'
)
FOREIGN = (
    b'{"protocol":{"minReaderVersion":2,"minWriterVersion":2}}\n'
    b'{"metaData":{"id":"7f0c","format":{"provider":"indextables","options":{}},"schemaString":"{}",'
    b'"partitionColumns":[],"configuration":{},"createdTime":7}}\n'
    b'{"add":{"path":"a.split","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}\n'
    b'{"add":{"path":"b.split","partitionValues":{},"size":1,"modificationTime":3,"dataChange":true}}\n'
    b'{"remove":{"path":"a.split","deletionTimestamp":5,"dataChange":true}}\n'
    b'{"mergeskip":{"path":"b.split","skipTimestamp":1,"reason":"r","operation":"merge"}}\n'
)
ONE_OBJECT = b"""{
  "protocol": {"minReaderVersion": 2, "minWriterVersion": 2},
  "metaData": {"id": "i", "schemaString": "s", "partitionColumns": ["date", "hour"]},
  "add": [
    {"path": "date=2024-01-01/hour=10/1.split", "partitionValues": {"date": "2024-01-01", "hour": "10"},
     "size": 1, "modificationTime": 2, "dataChange": true},
    {"path": "x.split", "partitionValues": {}, "size": 1, "modificationTime": 3}
  ]
}"""


def state_of(data: bytes) -> State:
    state = decode_checkpoint(KEY, VERSION, data)
    assert isinstance(state, State)
    return state


def parts_of(facts: StateFacts, files: list[StateFile], per_part: int) -> list[bytes]:
    parts = encode_checkpoint_parts(facts, files, checkpoint_id=ID, actions_per_part=per_part, compress=False)
    return [part.data for part in parts]


def manifest_of(count: int) -> PartsManifest:
    return PartsManifest(version=VERSION, checkpoint_id=ID, parts=tuple(f"p{number}" for number in range(count)))


def joined(datas: list[bytes], manifest: PartsManifest | None = None) -> State:
    parts = [decode_part(f"{KEY}.{number}", data) for number, data in enumerate(datas)]
    return join_parts(KEY, VERSION, manifest or manifest_of(len(datas)), parts)


def test_the_golden_checkpoint() -> None:
    encoded = encode_checkpoint(FACTS, FILES, compress=True)
    assert encoded.data == GOLDEN
    assert (encoded.number, encoded.last, encoded.actions) == (1, True, count_actions(FACTS, len(FILES)))
    assert state_of(GOLDEN) == state_of(GOLDEN_MIXED) == STATE


def test_the_order_of_a_checkpoint() -> None:
    actions = [action for action in decode_lines(GOLDEN) if isinstance(action, Action)]
    assert [type(action).__name__.removesuffix("WithUnknown") for action in actions] == [
        *("Protocol", "MetaData", "Txn", "Txn"),
        *("Add", "Add", "Add", "Remove", "Remove"),
    ]
    for kind in (Add, Remove):
        paths = [action.path for action in actions if isinstance(action, kind)]
        assert paths == sorted(paths)
    assert not any(action.data_change for action in actions if isinstance(action, Add | Remove))


def test_other_readers_see_only_what_they_know() -> None:
    first, *rest = GOLDEN.splitlines()
    assert list(msgspec.json.decode(first)) == ["commitInfo"]
    # A reader in the field takes a first line with this word for a manifest.
    assert b'"checkpointId"' not in first
    kinds = {name for line in rest for name in msgspec.json.decode(line)}
    assert kinds == {"protocol", "metaData", "txn", "add", "remove"}
    assert set(msgspec.json.decode(rest[5])["add"]) == {
        *("path", "partitionValues", "size", "modificationTime", "dataChange")
    }


def test_a_large_checkpoint_is_compressed_as_version_files_are() -> None:
    files = [StateFile(FILES[0].add, version, 0) for version in range(50)]
    packed = encode_checkpoint(FACTS, files, compress=True).data
    plain = encode_checkpoint(FACTS, files, compress=False).data
    assert packed[:4] == b"\x01\x01\x1f\x8b"
    assert inflate(KEY, packed) == plain
    assert state_of(packed) == state_of(plain) == state_of(gzip.compress(plain))


@given(fact_values, file_lists, st.integers(1, 6))
def test_what_was_written_is_read(facts: StateFacts, files: list[StateFile], per_part: int) -> None:
    expected = State(unchanged(facts), unchanged_files(files), ours=True)
    assert state_of(encode_checkpoint(facts, files, compress=True).data) == expected
    datas = parts_of(facts, files, per_part)
    assert joined(datas) == expected


def test_parts_hold_as_many_actions_as_they_may() -> None:
    files = [StateFile(msgspec.structs.replace(FILES[1].add, path=f"f{i:02d}"), 1, 1) for i in range(10)]
    facts = msgspec.structs.replace(FACTS, removes=())
    parts = list(encode_checkpoint_parts(facts, files, checkpoint_id=ID, actions_per_part=7, compress=True))
    assert [part.actions for part in parts] == [7, 7]
    assert [(part.number, part.last) for part in parts] == [(1, False), (2, True)]
    (only,) = encode_checkpoint_parts(facts, [], checkpoint_id=ID, actions_per_part=7, compress=True)
    assert only.last


@pytest.mark.parametrize("compress", [False, True])
def test_no_part_is_larger_than_the_limit(compress: bool) -> None:
    """Text that cannot be compressed well, and the lists of versions and times in the leading line, count too."""
    limit, rng = 64 * 1024, random.Random(1)
    files = [
        StateFile(msgspec.structs.replace(FILES[1].add, path=f"f{i:05d}", stats=rng.randbytes(40).hex()), 2**50, 2**60)
        for i in range(2000)
    ]
    parts = list(
        encode_checkpoint_parts(
            FACTS, files, checkpoint_id=ID, actions_per_part=10**6, max_file_size=limit, compress=compress
        )
    )
    assert len(parts) > 5
    assert max(len(part.data) for part in parts) <= limit
    assert min(len(inflate(KEY, part.data)) for part in parts[:-1]) > limit * 0.98, "no more parts than it takes"
    assert joined([part.data for part in parts]) == State(unchanged(FACTS), unchanged_files(files), ours=True)


def test_more_txns_than_a_part_may_hold() -> None:
    txns = tuple((Txn(app_id=f"app{i:04d}", version=i), i) for i in range(500))
    facts = msgspec.structs.replace(FACTS, txns=txns)
    parts = list(
        encode_checkpoint_parts(
            facts, FILES, checkpoint_id=ID, actions_per_part=100, max_file_size=2**20, compress=True
        )
    )
    assert [part.actions for part in parts] == [100, 100, 100, 100, 100, 7]
    assert joined([part.data for part in parts]) == State(unchanged(facts), unchanged_files(FILES), ours=True)


def test_unsorted_files_are_refused() -> None:
    with pytest.raises(ValueError, match="sorted by path"):
        encode_checkpoint(FACTS, FILES[::-1], compress=True)


def test_every_flip_and_cut_is_noticed() -> None:
    facts = msgspec.structs.replace(FACTS, metadata=None, skips=())
    small = encode_checkpoint(facts, FILES[1:2], compress=False).data
    assert_noticed_or_harmless(small, state_of, KEY)
    files = [StateFile(FILES[0].add, 0, 0)] * 8
    packed = encode_checkpoint(facts, files, compress=True).data
    # Gzip has bits that nobody reads: its time, its flags and the padding after the last block.
    assert packed[:2] == b"\x01\x01"
    assert_noticed_or_harmless(packed, state_of, KEY, harmless=100)


def test_every_flip_of_a_manifest_is_noticed_when_its_parts_are_joined() -> None:
    datas = parts_of(FACTS, list(FILES), 3)
    parts = [decode_part(f"{KEY}.{number}", data) for number, data in enumerate(datas)]
    names = tuple(f"{number}" for number in range(len(parts)))
    data = encode_parts_manifest(VERSION, ID, names, 5)

    def read(data: bytes) -> State:
        found = decode_checkpoint(KEY, VERSION, data)
        return found if isinstance(found, State) else join_parts(KEY, VERSION, found, parts)

    # Its creation time is nobody's state, and a changed name leads to no object; both are harmless here.
    assert_noticed_or_harmless(data, read, KEY, harmless=250)


def test_the_golden_manifest() -> None:
    names = [f"00000000000000000042.checkpoint.{ID}.0000{number}.json" for number in (1, 2)]
    assert encode_parts_manifest(VERSION, ID, names, 1704067200000) == GOLDEN_MANIFEST
    assert decode_checkpoint(KEY, VERSION, GOLDEN_MANIFEST) == PartsManifest(
        version=VERSION, checkpoint_id=ID, parts=tuple(names), created_time=1704067200000
    )
    with pytest.raises(CorruptObject, match="version 42 in the place of 43"):
        decode_checkpoint(KEY, 43, GOLDEN_MANIFEST)
    with pytest.raises(CorruptObject, match="format 'avro'"):
        decode_checkpoint(KEY, VERSION, GOLDEN_MANIFEST.replace(b'"json"}', b'"avro"}'))


def test_parts_that_do_not_belong_together() -> None:
    one, two, three, *_ = datas = parts_of(FACTS, list(FILES), 3)
    assert len(datas) >= 3
    alone = encode_checkpoint(FACTS, FILES, compress=False).data
    other = msgspec.structs.replace(FACTS, version=41)
    for wrong, says in (
        (datas[:-1], "a part of it is missing"),
        ([*datas, datas[-1]], "too many parts|not part"),
        ([one, three, two, *datas[3:]], "not part 2"),
        ([two, *datas[1:]], "not part 1"),
        ([alone, *datas[1:]], "not part 1"),
        ([FOREIGN, *datas[1:]], "not part 1"),
        ([parts_of(other, list(FILES), 3)[0], *datas[1:]], "not part 1"),
    ):
        with pytest.raises(CorruptObject, match=says):
            joined(wrong)
    with pytest.raises(CorruptObject, match="names 2 parts"):
        joined(datas, manifest_of(2))
    with pytest.raises(CorruptObject, match="names no part"):
        join_parts(KEY, VERSION, manifest_of(0), [])
    with pytest.raises(CorruptObject, match="not part 1"):
        state_of(one)


@pytest.mark.parametrize("data", [FOREIGN, gzip.compress(FOREIGN), b"\x01\x01" + gzip.compress(FOREIGN)])
def test_a_foreign_checkpoint_is_replayed(data: bytes) -> None:
    state = state_of(data)
    assert not state.ours
    assert [(file.add.path, file.added_at_version, file.added_at_timestamp) for file in state.files] == [
        ("b.split", 0, 3)
    ]
    assert state.facts.protocol == Protocol(min_reader_version=2, min_writer_version=2)
    assert state.facts.metadata is not None
    assert [(item.path, item.version, item.deletion_timestamp) for item in state.facts.removes] == [("a.split", 0, 5)]
    assert [skip.path for skip in state.facts.skips] == ["b.split"]
    assert state.facts.timestamp == -1
    assert state.facts.version_sha256 is None


def test_a_foreign_checkpoint_in_parts() -> None:
    head, tail = FOREIGN.splitlines(keepends=True)[:3], FOREIGN.splitlines(keepends=True)[3:]
    assert joined([b"".join(head), b"".join(tail)]) == state_of(FOREIGN)


def test_the_oldest_form_is_read() -> None:
    state = state_of(ONE_OBJECT)
    assert [file.add.path for file in state.files] == ["date=2024-01-01/hour=10/1.split", "x.split"]
    assert isinstance(state.facts.metadata, MetaData)
    assert state.facts.metadata.partition_columns == ("date", "hour")
    assert state_of(ONE_OBJECT.replace(b"\n", b" ")) == state
    txn = state_of(b'{"txn":[{"appId":"a","version":1},{"appId":"a","version":2}]}')
    assert txn.facts.txns == ((Txn(app_id="a", version=2), 0),)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "no action"),
        (b"{}", "no action"),
        (b"nonsense", "cannot be read"),
        (b'{"add":[{"path":1}]}', "cannot be read"),
        (b'{"add":{"path":"x"}}', "cannot be read"),
        (b'{"checkpointId":"x","parts":3,"version":42}', "list of parts cannot be read"),
        (b"\x1f\x8b", "cut off"),
        (FOREIGN[:-9], "cannot be read"),
    ],
)
def test_what_is_no_checkpoint_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says) as caught:
        state_of(data)
    assert caught.value.key == KEY


def test_removes_wait_in_a_small_checkpoint_and_tell_the_same_in_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = decode_part(KEY, GOLDEN)
    assert small.removes is not None
    monkeypatch.setattr(checkpoint_json_read, "_FEW_BYTES", 0)
    large = decode_part(KEY, GOLDEN)
    assert large.removes is None
    assert join_parts(KEY, VERSION, None, [small]).facts == join_parts(KEY, VERSION, None, [large]).facts


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_MIXED])
@pytest.mark.parametrize("count", [0, 1, 4, 6])
def test_a_sealed_text_tells_as_many_versions_as_files_and_removes(golden: bytes, count: int) -> None:
    text = re.sub(rb'"crc32":"[0-9a-f]{8}"', b'"crc32":"00000000"', golden)
    assert seal(text, compress=False) == golden
    numbers = b":[" + b",".join([b"1"] * count) + b"]"
    text, found = re.subn(rb'("versions"|"times"):\[[0-9,]+\]', rb"\1" + numbers, text)
    assert found == 2
    with pytest.raises(CorruptObject) as caught:
        decode_checkpoint(KEY, VERSION, seal(text, compress=False))
    assert caught.value.key == KEY


def test_a_line_of_a_later_version_among_the_removes_is_passed_over() -> None:
    text = re.sub(rb'"crc32":"[0-9a-f]{8}"', b'"crc32":"00000000"', GOLDEN)
    for at in (text.rindex(b'{"remove":'), len(text)):
        more = text[:at] + b'{"later":{"x":1}}\n' + text[at:]
        assert state_of(seal(more, compress=False)) == STATE


def test_versions_and_files_must_match() -> None:
    part = decode_part(KEY, GOLDEN)
    assert part.info is not None
    for versions in ([1], [*part.info.versions, 1]):
        info = msgspec.structs.replace(part.info, versions=versions, times=versions)
        with pytest.raises(CorruptObject):
            join_parts(KEY, VERSION, None, [CheckpointPart(KEY, info, part.actions)])
