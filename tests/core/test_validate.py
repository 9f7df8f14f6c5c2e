"""Commits that are refused for what they say, each fault with its pointer; and what tells two requests apart."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import ActionLine, Remove
from tarnlog.protocol.commits import CommitRequest
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.validate import MAX_ERRORS, prepare, request_hash
from tests.core.making import NOW, SCHEMA, commit_id

Body = dict[str, Any]


def add(path: str, **fields: Any) -> Body:
    least = {"path": path, "partitionValues": {"day": "mon"}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {**least, **fields}}


def remove(path: str) -> Body:
    return {"remove": {"path": path, "dataChange": True}}


def skip(path: str) -> Body:
    return {"mergeskip": {"path": path, "skipTimestamp": 1, "reason": "r", "operation": "o"}}


META: Body = {
    "metaData": {"id": "t", "format": {}, "schemaString": SCHEMA, "partitionColumns": ["day"], "configuration": {}}
}
PROTOCOL: Body = {"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}}
TXN: Body = {"txn": {"appId": "a", "version": 1}}


def parse(actions: list[Body], **fields: Any) -> CommitRequest:
    return msgspec.json.decode(msgspec.json.encode({"actions": actions, **fields}), type=CommitRequest)


def prepared(actions: list[Body], *, columns: tuple[str, ...] = ("day",), **fields: Any) -> Intent:
    return prepare(
        parse(actions, **fields),
        str(commit_id(1)),
        partition_columns=columns,
        schema=schema_of(SCHEMA),
        now_ms=NOW,
    )


def pointers(actions: list[Body], **fields: Any) -> list[str]:
    """Where the commit is wrong."""
    with pytest.raises(ProblemError) as caught:
        prepared(actions, **fields)
    problem = caught.value
    assert problem.slug == "commit-invalid"
    assert problem.detail.endswith("nothing was written")
    assert all(error["message"] for error in problem.fields["errors"])
    return [error["pointer"] for error in problem.fields["errors"]]


BAD_PATHS = [
    *("", ".", "/", "..", "../x", "a/../../x", "a/..", "a/%2e%2e/x", "%2e%2e/x", "a/../x", "x/"),
    *("/abs/x", "%2Fabs/x", "s3://bucket/x", "file:///x", "C:/x", "http:x", "\\x", "a\\x"),
    *("_transaction_log/00000000000000000001.json", "_transaction_log/x", "_Transaction_Log/x", "%5Ftransaction_log/x"),
    *("./_transaction_log/x", "//_transaction_log/x", "_catalog/x", "_catalog", "a//..//x"),
    *("a\x00b", "a%00b", "a\nb", "a\x7f", "100%", "%zz", "%ff", "x" * 1025, "ü" * 513),
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_no_commit_may_add(path: str) -> None:
    assert pointers([add("good"), add(path)])[0] == "/actions/1/add/path"
    assert "/actions/1/add/path" in pointers([TXN, add(path)], readVersion=0), "also beside other actions"


@pytest.mark.parametrize(
    "path", ["x.parquet", "day=mon/x.parquet", "a%20b", "ünï", "a..b/c", "a/_transaction_log/x", "x" * 1024]
)
def test_paths_that_are_fine(path: str) -> None:
    assert prepared([add(path)]).blind


@pytest.mark.parametrize(
    "values", [{}, {"day": "x", "hour": "y"}, {"Day": "x"}, {"hour": "y"}], ids=["none", "more", "case", "other"]
)
def test_partition_values_name_exactly_the_partition_columns(values: dict[str, str]) -> None:
    assert pointers([add("x", partitionValues=values)]) == ["/actions/0/add/partitionValues"]


def test_partition_values_of_an_unpartitioned_table() -> None:
    assert prepared([add("x", partitionValues={})], columns=()).blind
    assert pointers([add("x")], columns=()) == ["/actions/0/add/partitionValues"]
    assert prepared([add("x", partitionValues={"day": None})]).blind, "null is a partition value"


@pytest.mark.parametrize(
    "actions, where",
    [
        ([add("x"), add("x")], ["/actions/1"]),
        ([add("a b"), add("a%20b")], ["/actions/1"]),
        ([add("a/b"), add("a//b")], ["/actions/1"]),
        ([add("x"), remove("x")], ["/actions/1"]),
        ([remove("x"), add("./x")], ["/actions/1"]),
        ([remove("x"), remove("x")], ["/actions/1"]),
        ([skip("x"), skip("x")], ["/actions/1"]),
        ([skip("x"), remove("x")], ["/actions/1"]),
        ([add("x"), add("x"), add("x")], ["/actions/1", "/actions/2"]),
        ([TXN, TXN], ["/actions/1"]),
        ([TXN, {"txn": {"appId": "a", "version": 2}}], ["/actions/1"]),
        ([META, META], ["/actions/1"]),
        ([PROTOCOL, PROTOCOL], ["/actions/1"]),
        ([META, PROTOCOL, META], ["/actions/2"]),
        ([{}], ["/actions/0"]),
        ([{**add("x"), **TXN}], ["/actions/0"]),
        ([{"add": None}], ["/actions/0"]),
        ([{"commitInfo": {"timestamp": 1}}], ["/actions/0"]),
        ([remove("")], ["/actions/0"]),
        ([remove("a\x00b")], ["/actions/0"]),
        ([skip("a\x00b")], ["/actions/0"]),
    ],
)
def test_actions_that_do_not_go_together(actions: list[Body], where: list[str]) -> None:
    assert pointers(actions, readVersion=0) == where


def test_pointers_count_the_actions_as_they_were_sent() -> None:
    actions = [{"commitInfo": {}}, add("/abs"), {}, add("ok"), add("ok"), TXN, TXN]
    assert pointers(actions, readVersion=0) == [
        "/actions/0",
        "/actions/2",
        "/actions/1/add/path",
        "/actions/4",
        "/actions/6",
    ]
    assert pointers([{"commitInfo": {}}, add("/abs")]) == ["/actions/0", "/actions/1/add/path"]


def test_every_fault_is_listed_but_not_without_end() -> None:
    assert pointers([add("/a"), add("/b", partitionValues={})]) == [
        "/actions/0/add/path",
        "/actions/1/add/path",
        "/actions/1/add/partitionValues",
    ]
    with pytest.raises(ProblemError, match=r"and 99 more") as caught:
        prepared([add(f"/{n}") for n in range(100)])
    assert len(caught.value.fields["errors"]) == MAX_ERRORS


@pytest.mark.parametrize(
    "actions, reads",
    [
        ([remove("x")], {}),
        ([TXN, add("x")], {}),
        ([skip("x")], {}),
        ([META], {}),
        ([PROTOCOL], {}),
        ([add("x")], {"wholeTable": True}),
        ([add("x")], {"filters": [{"op": "eq", "column": "day", "value": "mon"}]}),
        ([add("x")], {"paths": ["y"]}),
        ([add("x")], {"appIds": ["a"]}),
    ],
)
def test_only_a_blind_append_may_leave_read_version_out(actions: list[Body], reads: Body) -> None:
    assert pointers(actions, reads=reads) == ["/readVersion"]
    intent = prepared(actions, reads=reads, readVersion=3)
    assert not intent.blind
    assert intent.read_version == 3


def test_a_blind_append_is_adds_alone_and_nothing_read() -> None:
    assert prepared([add("x"), add("y")]).blind
    assert prepared([add("x")], readVersion=7).blind
    assert prepared([add("x", dataChange=False)]).blind


@pytest.mark.parametrize(
    "tree, pointer",
    [
        ({"op": "eq", "column": "nope", "value": 1}, "/reads/filters/1"),
        ({"op": "eq", "column": "id", "value": "seven"}, "/reads/filters/1"),
        ({"op": "bogus"}, "/reads/filters/1"),
        ("day = 'mon'", "/reads/filters/1"),
        ({"op": "and", "args": [{"op": "eq", "column": "id"}]}, "/reads/filters/1/args/0"),
    ],
)
def test_filters_are_checked_against_the_schema(tree: object, pointer: str) -> None:
    good = {"op": "eq", "column": "day", "value": "mon"}
    found = pointers([add("x")], readVersion=0, reads={"filters": [good, tree]})
    assert len(found) == 1
    assert found[0].startswith(pointer)


@pytest.mark.parametrize(
    "body",
    [
        {"actions": []},
        {},
        {"actions": [add("x")], "readVersion": -1},
        {"actions": [add("x")], "readVersion": "3"},
        {"actions": [add("x")], "readVersion": 2**64},
        {"actions": [add("x")], "readVersion": 1.5},
        {"actions": [add("x")], "isolation": "read-committed"},
        {"actions": [add("x")], "surprise": 1},
        {"actions": [add("x")], "operation": ""},
        {"actions": [add("x", size=-1)]},
        {"actions": [add("x", size=2**64)]},
        {"actions": [add("x", numRecords=2**63)]},
        {"actions": [add("x", modificationTime=-(2**63) - 1)]},
        {"actions": [add("x", size="1")]},
        {"actions": [add("x", future=1)]},
        {"actions": [{"add": {"path": "x"}}]},
        {"actions": [{"cdc": {"path": "x"}}]},
        {"actions": [{"txn": {"appId": "", "version": 1}}]},
        {"actions": [{"txn": {"appId": "a", "version": 2**63}}]},
        {"actions": [{"txn": {"appId": "x" * 1025, "version": 1}}]},
        {"actions": {"add": {}}},
    ],
)
def test_requests_that_the_decoder_refuses(body: Body) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=CommitRequest)


def test_numbers_at_the_edge_are_kept_exactly() -> None:
    intent = prepared([add("x", size=2**63 - 1, numRecords=2**63 - 1, modificationTime=-(2**63))])
    written = msgspec.json.decode(intent.lines)["add"]
    assert (written["size"], written["numRecords"], written["modificationTime"]) == (2**63 - 1, 2**63 - 1, -(2**63))


def test_text_that_is_no_unicode_is_refused_not_written() -> None:
    line = msgspec.convert(add("x", stats="s"), ActionLine)
    assert line.add is not None
    broken = msgspec.structs.replace(line, add=msgspec.structs.replace(line.add, stats="\ud800"))
    with pytest.raises(ProblemError) as caught:
        prepare(
            CommitRequest(actions=(broken,)),
            str(commit_id(1)),
            partition_columns=("day",),
            schema=schema_of(SCHEMA),
            now_ms=NOW,
        )
    assert caught.value.slug == "commit-invalid"


def test_a_remove_always_gets_a_deletion_timestamp_and_keeps_its_own() -> None:
    (mine,) = prepared([{"remove": {"path": "x", "dataChange": True, "deletionTimestamp": 5}}], readVersion=0).actions
    (given_one,) = prepared([remove("x")], readVersion=0).actions
    assert isinstance(mine, Remove)
    assert isinstance(given_one, Remove)
    assert (mine.deletion_timestamp, given_one.deletion_timestamp) == (5, NOW)


def test_compaction_is_checked_at_snapshot_isolation() -> None:
    quiet_remove = {"remove": {"path": "y", "dataChange": False}}
    compaction = [add("x", dataChange=False), quiet_remove]
    assert prepared(compaction, readVersion=0, isolation="serializable").isolation == "snapshot"
    for more in (add("z"), remove("z"), TXN, META, PROTOCOL, skip("z")):
        assert prepared([*compaction, more], readVersion=0, isolation="serializable").isolation == "serializable"
    assert prepared([add("x")]).isolation == "write-serializable", "the default"


def test_what_goes_alone() -> None:
    assert not prepared([add("x")]).alone
    assert not prepared([add("x")], coalesce=True).alone
    assert prepared([add("x")], coalesce=False).alone
    assert prepared([META], readVersion=0).alone
    assert prepared([PROTOCOL], readVersion=0).alone
    assert not prepared([TXN, remove("x"), skip("y")], readVersion=0).alone


def test_the_lines_are_the_actions_as_they_will_be_written() -> None:
    intent = prepared([add("x"), remove("y")], readVersion=0)
    lines = [msgspec.json.decode(line) for line in intent.lines.split(b"\n")]
    assert lines == [add("x"), {"remove": {"path": "y", "dataChange": True, "deletionTimestamp": NOW}}]
    assert intent.size == len(intent.lines)


FULL: Body = {
    "actions": [
        add("x", partitionValues={"day": "mon"}, stats="s", tags={"a": "1", "b": None}, minValues={"id": "1"}),
        remove("y"),
        TXN,
    ],
    "reads": {"wholeTable": False, "filters": [{"op": "eq", "column": "id", "value": 1}], "paths": ["p"], "appIds": []},
    "isolation": "serializable",
    "operation": "MERGE",
    "operationParameters": {"b": [1, {"d": 1, "c": 2}], "a": "x"},
    "operationMetrics": {"rows": 1},
    "readVersion": 4,
    "commitId": str(commit_id(5)),
}


def hash_of(body: Body) -> str:
    return request_hash(msgspec.json.decode(msgspec.json.encode(body), type=CommitRequest))


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "change",
    [
        {"readVersion": 9},
        {"readVersion": None},
        {"commitId": str(commit_id(6))},
        {"commitId": None},
        {"coalesce": False},
        {"operationMetrics": {"rows": 2}},
    ],
)
def test_a_resend_has_the_same_hash(change: Body) -> None:
    assert hash_of({**FULL, **change}) == hash_of(FULL)


def test_neither_key_order_nor_null_for_absent_nor_a_written_default_changes_the_hash() -> None:
    assert hash_of(reversed_keys(FULL)) == hash_of(FULL)
    nulls = {"numRecords": None, "splitTags": None, "hasFooterOffsets": False}
    spelled = [{"add": {**nulls, **FULL["actions"][0]["add"]}}, *FULL["actions"][1:]]
    assert hash_of({**FULL, "actions": spelled}) == hash_of(FULL)
    assert hash_of({"actions": [add("x")]}) == hash_of(
        {"actions": [add("x")], "reads": {}, "isolation": "write-serializable", "operation": "WRITE"}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"actions": FULL["actions"][:2]},
        {"actions": FULL["actions"][::-1]},
        {"actions": [*FULL["actions"], add("z")]},
        {"actions": [add("x2"), *FULL["actions"][1:]]},
        {"reads": {}},
        {"reads": {**FULL["reads"], "wholeTable": True}},
        {"reads": {**FULL["reads"], "paths": []}},
        {"isolation": "snapshot"},
        {"operation": "UPDATE"},
        {"operationParameters": {"a": "x"}},
        {"operationParameters": {}},
    ],
)
def test_another_meaning_has_another_hash(change: Body) -> None:
    assert hash_of({**FULL, **change}) != hash_of(FULL)


fields = st.sampled_from(["path", "stats", "size", "numRecords", "tags", "minValues", "dataChange", "partitionValues"])
values: dict[str, st.SearchStrategy[Any]] = {
    "path": st.text(min_size=1, max_size=4),
    "stats": st.text(max_size=4),
    "size": st.integers(0, 5),
    "numRecords": st.integers(0, 5),
    "tags": st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=2),
    "minValues": st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    "dataChange": st.booleans(),
    "partitionValues": st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=2),
}


@given(fields.flatmap(lambda name: st.tuples(st.just(name), values[name], values[name])))
def test_any_change_of_an_action_changes_the_hash(change: tuple[str, Any, Any]) -> None:
    name, one, other = change
    same = one == other and type(one) is type(other)
    body = add("x")["add"]
    hashes = {hash_of({"actions": [{"add": {**body, name: value}}]}) for value in (one, other)}
    assert len(hashes) == (1 if same else 2)


def test_the_golden_hash() -> None:
    # In every log there is: a resend after an upgrade must still be recognised. Computed here by other means as well.
    text = json.dumps([[add("x")], {}, "write-serializable", "WRITE", {}], sort_keys=True, separators=(",", ":"))
    assert hash_of({"actions": [add("x")]}) == hashlib.sha256(text.encode()).hexdigest()
    assert hash_of({"actions": [add("x")]}) == "7d45dcd409bbb897421149d8789c6780bdc34680c77f8249bed257d9fbde0162"
