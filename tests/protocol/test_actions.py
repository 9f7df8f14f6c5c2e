"""Every action of the log: its fields, its round trip, and what a lenient reader makes of other writers' lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.action_json import (
    MalformedLine,
    decode_lines,
    encode_action,
    from_object,
    unknown_fields,
    with_unknown_fields,
)
from tarnlog.protocol.actions import (
    TYPES_BY_WIRE_NAME,
    ActionLine,
    Add,
    CommitInfo,
    Format,
    MetaData,
    Protocol,
    Remove,
    Skip,
    SubCommit,
    Txn,
    only_action,
    to_wire,
)
from tarnlog.protocol.tables import AlterTable, PropertyChanges
from tarnlog_server.core.alter import patched

# The format, field by field: a value for each, and which of them every writer must give.
FORMAT: dict[str, tuple[type[msgspec.Struct], set[str], dict[str, Any]]] = {
    "protocol": (
        Protocol,
        {"minReaderVersion", "minWriterVersion"},
        {
            "minReaderVersion": 4,
            "minWriterVersion": 4,
            "readerFeatures": ["avroState"],
            "writerFeatures": ["checkpoint"],
        },
    ),
    "metaData": (
        MetaData,
        {"id", "format", "schemaString", "partitionColumns", "configuration"},
        {
            "id": "t-1",
            "name": "sales.orders",
            "description": "orders",
            "format": {"provider": "parquet", "options": {"a": "b"}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": ["day"],
            "configuration": {"checkpoint.interval": "20"},
            "createdTime": 1704067200000,
        },
    ),
    "add": (
        Add,
        {"path", "partitionValues", "size", "modificationTime", "dataChange"},
        {
            "path": "day=2024-01-01/part-1.parquet",
            "partitionValues": {"day": "2024-01-01", "hour": None},
            "size": 1024,
            "modificationTime": 1704067200000,
            "dataChange": True,
            "stats": '{"numRecords":3}',
            "tags": {"k": "v", "n": None},
            "minValues": {"id": "1"},
            "maxValues": {"id": "3"},
            "numRecords": 3,
            "footerStartOffset": 10,
            "footerEndOffset": 20,
            "hotcacheStartOffset": 30,
            "hotcacheLength": 40,
            "hasFooterOffsets": True,
            "timeRangeStart": "2024-01-01T00:00:00Z",
            "timeRangeEnd": "2024-01-02T00:00:00Z",
            "splitTags": ["a", "b"],
            "deleteOpstamp": 7,
            "numMergeOps": 2,
            "docMappingJson": "[]",
            "docMappingRef": "T1PNoYwrqgwDVLtf",
            "uncompressedSizeBytes": 4096,
            "companionSourceFiles": ["s3://b/x.parquet"],
            "companionDeltaVersion": 12,
            "companionFastFieldMode": "HYBRID",
        },
    ),
    "remove": (
        Remove,
        {"path", "dataChange"},
        {
            "path": "part-1.parquet",
            "dataChange": False,
            "deletionTimestamp": 1704067200000,
            "extendedFileMetadata": True,
            "partitionValues": {"day": None},
            "size": 1024,
            "tags": {"k": "v"},
        },
    ),
    "mergeskip": (
        Skip,
        {"path", "skipTimestamp", "reason", "operation"},
        {
            "path": "part-1.parquet",
            "skipTimestamp": 1704067200000,
            "reason": "out of memory",
            "operation": "merge",
            "partitionValues": {"day": "x"},
            "size": 5,
            "retryAfter": 1704153600000,
            "skipCount": 4,
        },
    ),
    "txn": (Txn, {"appId", "version"}, {"appId": "stream-1", "version": 9, "lastUpdated": 1704067200000}),
    "commitInfo": (
        CommitInfo,
        set(),
        {
            "crc32": "0badcafe",
            "timestamp": 1704067200000,
            "version": 5,
            "putId": "f" * 32,
            "previousPutId": "e" * 32,
            "engineInfo": "tarnlog/0.1",
            "subCommits": [
                {
                    "commitId": "018cc251-f400-7000-8000-000000000000",
                    "seq": 3,
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Append"},
                    "operationMetrics": {"numFiles": 1},
                    "isBlindAppend": True,
                    "readVersion": 2,
                    "isolation": "serializable",
                    "requestHash": "ab",
                    "actionCount": 1,
                    "committedBy": "etl",
                }
            ],
            "adoptedFrom": 4,
        },
    ),
}
SUB_COMMIT_FIELDS = set(FORMAT["commitInfo"][2]["subCommits"][0])
DATA_ACTIONS = [name for name in FORMAT if name != "commitInfo"]


@pytest.mark.parametrize("name", FORMAT)
def test_the_struct_has_exactly_the_fields_of_the_format(name: str) -> None:
    kind, required, body = FORMAT[name]
    fields = msgspec.structs.fields(kind)
    assert {field.encode_name for field in fields} == set(body)
    assert {field.encode_name for field in fields if field.required} == required


def test_a_sub_commit_has_exactly_the_fields_of_the_format() -> None:
    assert {field.encode_name for field in msgspec.structs.fields(SubCommit)} == SUB_COMMIT_FIELDS


@pytest.mark.parametrize("name", FORMAT)
def test_every_field_survives_a_round_trip(name: str) -> None:
    kind, _, body = FORMAT[name]
    line = msgspec.json.encode({name: body})
    (action,) = decode_lines(line)
    assert type(action) is kind
    assert msgspec.json.decode(encode_action(action)) == {name: body}
    assert decode_lines(encode_action(action)) == [action]


@pytest.mark.parametrize("name", DATA_ACTIONS)
def test_only_required_fields_are_enough(name: str) -> None:
    kind, required, body = FORMAT[name]
    least = {key: value for key, value in body.items() if key in required}
    (action,) = decode_lines(msgspec.json.encode({name: least}))
    assert type(action) is kind
    assert msgspec.json.decode(encode_action(action)) == {name: least}, "defaults are not written, required fields are"


@pytest.mark.parametrize("name", DATA_ACTIONS)
def test_null_is_absent(name: str) -> None:
    _, required, body = FORMAT[name]
    least = {key: value for key, value in body.items() if key in required}
    nulls = {key: None for key in body if key not in required}
    assert decode_lines(msgspec.json.encode({name: {**nulls, **least}})) == decode_lines(
        msgspec.json.encode({name: least})
    )


def test_null_inside_a_map_or_format_is_absent() -> None:
    add = {**_least("add"), "minValues": {"id": None, "x": "1"}, "maxValues": {"id": None}}
    (read,) = decode_lines(msgspec.json.encode({"add": add}))
    assert isinstance(read, Add)
    assert read.min_values == {"x": "1"}
    meta = {**_least("metaData"), "format": {"provider": "parquet", "options": None}, "configuration": {"k": None}}
    (read,) = decode_lines(msgspec.json.encode({"metaData": meta}))
    assert isinstance(read, MetaData)
    assert read.format == Format()
    assert read.configuration == {}


def test_a_null_partition_value_is_a_value() -> None:
    add = {**_least("add"), "partitionValues": {"day": None}, "hasFooterOffsets": None}
    (read,) = decode_lines(msgspec.json.encode({"add": add}))
    assert isinstance(read, Add)
    assert read.partition_values == {"day": None}


@pytest.mark.parametrize("name", DATA_ACTIONS)
def test_unknown_fields_survive_decode_and_encode(name: str) -> None:
    kind, _, body = FORMAT[name]
    strange = {**body, "fromTheFuture": {"deep": [1, None, "x"]}, "another": 1.5}
    (action,) = decode_lines(msgspec.json.encode({name: strange}))
    assert isinstance(action, kind)
    assert unknown_fields(action) == {"fromTheFuture": {"deep": [1, None, "x"]}, "another": 1.5}
    assert msgspec.json.decode(encode_action(action)) == {name: strange}
    assert to_wire(action) == {name: strange}
    assert decode_lines(encode_action(action)) == [action]


def test_unknown_fields_survive_a_patch_of_the_table() -> None:
    (before,) = decode_lines(msgspec.json.encode({"metaData": {**FORMAT["metaData"][2], "owner": "ops"}}))
    assert isinstance(before, MetaData)
    after = patched(before, AlterTable(properties=PropertyChanges(set={"commit.coalesce": "false"}), description=None))
    written = msgspec.json.decode(encode_action(after))["metaData"]
    assert written["owner"] == "ops"
    assert written["configuration"] == {"checkpoint.interval": "20", "commit.coalesce": "false"}
    assert "description" not in written
    again = patched(after, AlterTable(description="new"))
    assert msgspec.json.decode(encode_action(again))["metaData"]["owner"] == "ops"


def test_unknown_fields_can_be_handed_to_a_new_action() -> None:
    (before,) = decode_lines(msgspec.json.encode({"txn": {"appId": "a", "version": 1, "x": 1}}))
    after = with_unknown_fields(Txn(app_id="a", version=2), before)
    assert to_wire(after) == {"txn": {"appId": "a", "version": 2, "x": 1}}
    plain = Txn(app_id="a", version=3)
    assert with_unknown_fields(plain, plain) is plain


def test_a_known_field_wins_over_an_unknown_one_of_that_name() -> None:
    (action,) = decode_lines(b'{"txn":{"appId":"a","version":1,"unknown_fields":{"appId":"b"}}}')
    assert to_wire(action) == {"txn": {"appId": "a", "version": 1, "unknown_fields": {"appId": "b"}}}


@pytest.mark.parametrize(
    "line", [b'{"cdc":{"path":"x"}}', b'{"domainMetadata":{}}', b"{}", b'{"add":null}', b'{"x":1,"y":[]}']
)
def test_unknown_action_types_are_skipped(line: bytes) -> None:
    txn = b'{"txn":{"appId":"a","version":1}}'
    assert decode_lines(b"\n".join([line, txn, line])) == [Txn(app_id="a", version=1)]


def test_skip_is_read_as_mergeskip_and_written_as_it() -> None:
    body = FORMAT["mergeskip"][2]
    (action,) = decode_lines(msgspec.json.encode({"skip": body}))
    assert isinstance(action, Skip)
    assert to_wire(action) == {"mergeskip": body}
    assert TYPES_BY_WIRE_NAME["skip"] is TYPES_BY_WIRE_NAME["mergeskip"]


def test_blank_lines_and_windows_line_ends_are_fine() -> None:
    txn = b'{"txn":{"appId":"a","version":1}}'
    expected = [Txn(app_id="a", version=1)] * 2
    assert decode_lines(txn + b"\n\n" + txn + b"\n") == expected
    assert decode_lines(txn + b"\r\n" + txn + b"\r\n\n") == expected


GOOD = b'{"txn":{"appId":"a","version":1}}'


@pytest.mark.parametrize(
    "bad, says",
    [
        (b"{", "not JSON"),
        (b'{"txn":', "not JSON"),
        (b"nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b'{"txn":{"appId":"a"}}', "txn: .*version"),
        (b'{"txn":[]}', "txn: expected an object"),
        (b'{"txn":{"appId":"a","version":"1"}}', "txn: .*version"),
        (b'{"txn":{"appId":"a","version":18446744073709551616}}', "txn: .*version"),
        (b'{"add":{"path":"x"}}', "add: "),
        (b'{"add":{"path":7,"size":1,"modificationTime":1}}', "add: .*path"),
        (b'{"add":{"path":"x","size":-1,"modificationTime":1}}', "add: .*size"),
        (b'{"add":{"path":"x","size":NaN,"modificationTime":1}}', "not JSON"),
        (b'{"metaData":{"id":"x"}}', "metaData: "),
        (b'{"protocol":{"minReaderVersion":-1,"minWriterVersion":1}}', "protocol: "),
        (b'{"txn":{"appId":"\xff","version":1}}', "not JSON"),
        (b'{"txn":{"appId":"\\ud800","version":1}}', "not JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_malformed_line_is_named_by_number(bad: bytes, says: str, before: int) -> None:
    with pytest.raises(MalformedLine, match=f"^line {before + 1}: {says}") as caught:
        decode_lines(b"\n".join([GOOD] * before + [bad, GOOD]))
    assert caught.value.line == before + 1


@pytest.mark.parametrize(
    "body, timestamp",
    [
        ({"timestamp": 5, "operation": "WRITE", "operationParameters": {"mode": "Append"}}, 5),
        ({"timestamp": 5, "subCommits": "seven"}, 5),
        ({"timestamp": "yesterday"}, None),
        ({"timestamp": True}, None),
        ({"timestamp": 2**64}, None),
        ({"timestamp": None, "putId": None}, None),
        ({}, None),
    ],
)
def test_a_foreign_commit_info_only_gives_its_time(body: dict[str, Any], timestamp: int | None) -> None:
    (info,) = decode_lines(GOOD[:0] + msgspec.json.encode({"commitInfo": body}))
    assert isinstance(info, CommitInfo)
    assert (info.timestamp, info.sub_commits) == (timestamp, ())


def test_sub_commits_that_cannot_be_ours_are_not_believed() -> None:
    for wrong in ({"actionCount": -1}, {"seq": -1}, {"seq": 2**64}):
        body = {"timestamp": 5, "subCommits": [{"commitId": "x", "seq": 0, "actionCount": 1, **wrong}]}
        (info,) = decode_lines(msgspec.json.encode({"commitInfo": body}))
        assert info == CommitInfo(timestamp=5)


def test_writers_that_leave_out_data_change_mean_true() -> None:
    add, remove = decode_lines(b'{"add":{"path":"x","size":1,"modificationTime":1}}\n{"remove":{"path":"x"}}')
    assert isinstance(add, Add)
    assert isinstance(remove, Remove)
    assert add.data_change is True
    assert remove.data_change is True
    assert to_wire(remove) == {"remove": {"path": "x", "dataChange": True}}


def test_an_action_object_holds_exactly_one_action() -> None:
    txn = Txn(app_id="a", version=1)
    assert only_action(ActionLine(txn=txn)) is txn
    with pytest.raises(ValueError, match="empty"):
        only_action(ActionLine())
    with pytest.raises(ValueError, match="exactly one"):
        only_action(ActionLine(txn=txn, protocol=Protocol(min_reader_version=1, min_writer_version=1)))


def test_two_actions_on_one_line_of_a_foreign_log_are_both_read() -> None:
    line = b'{"txn":{"appId":"a","version":1},"remove":{"path":"x","dataChange":true}}'
    assert decode_lines(line) == [Txn(app_id="a", version=1), Remove(path="x", data_change=True)]


texts = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, lambda inner: st.lists(inner, max_size=3)
)


@given(
    st.sampled_from(DATA_ACTIONS).flatmap(
        lambda name: st.tuples(st.just(name), st.sets(st.sampled_from(sorted(FORMAT[name][2]))))
    ),
    st.dictionaries(texts, json_values, max_size=3),
)
def test_any_subset_of_fields_with_any_unknown_ones_round_trips(
    chosen: tuple[str, set[str]], extra: dict[str, Any]
) -> None:
    name, keep = chosen
    kind, required, body = FORMAT[name]
    present = {key: value for key, value in body.items() if key in keep | required}
    strange = {key: value for key, value in extra.items() if key not in body and value is not None}
    action = from_object(kind, {**extra, **present})
    assert to_wire(action) == {name: {**strange, **present}}
    assert decode_lines(encode_action(action)) == [action]


def _least(name: str) -> dict[str, Any]:
    _, required, body = FORMAT[name]
    return {key: value for key, value in body.items() if key in required}
