"""Commits over HTTP: every answer, and every way a request can be wrong."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tarnlog import new_commit_id
from tests.api.conftest import Api, add, pointers, slug

JSON = {"content-type": "application/json"}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


async def post(api: Api, body: Any, **more: Any) -> httpx.Response:
    return await api.post("/v1/tables/db.t/commits", json=body, **more)


async def test_committed_and_replayed(api: Api, table: str) -> None:
    body = {"commitId": new_commit_id(), "actions": [add("a")]}
    first = await post(api, body)
    assert first.status_code == 201
    told = first.json()
    assert told == {
        "outcome": "committed",
        "commitId": body["commitId"],
        "version": 1,
        "seq": 0,
        "timestamp": told["timestamp"],
        "replayed": False,
        "attempts": 1,
        "rebasedOver": [],
    }
    again = await post(api, {**body, "readVersion": 0})
    assert again.status_code == 200
    assert {**again.json(), "replayed": False, "attempts": 1} == told
    assert again.json()["replayed"] is True


async def test_an_id_is_made_when_there_is_none(api: Api, table: str) -> None:
    told = (await post(api, {"actions": [add("a")]})).json()
    found = await api.get(f"{table}/commits/by-id/{told['commitId']}")
    assert found.status_code == 200
    assert found.json()["version"] == told["version"]


async def test_an_id_with_another_body(api: Api, table: str) -> None:
    name = new_commit_id()
    await post(api, {"commitId": name, "actions": [add("a")]})
    other = await post(api, {"commitId": name, "actions": [add("b")]})
    assert (other.status_code, slug(other)) == (422, "commit-id-reused")
    assert (other.json()["version"], other.json()["seq"]) == (1, 0)


async def test_an_id_that_is_too_old(api: Api, table: str) -> None:
    old = "0189c251-f400-7abc-8def-0123456789ab"
    answer = await post(api, {"commitId": old, "actions": [add("a")]})
    assert (answer.status_code, slug(answer)) == (422, "commit-id-expired")
    asked = await api.get(f"{table}/commits/by-id/{old}")
    assert (asked.status_code, slug(asked)) == (410, "commit-id-out-of-window")


async def test_an_id_that_is_nowhere(api: Api, table: str) -> None:
    name = new_commit_id()
    answer = await api.get(f"{table}/commits/by-id/{name}")
    assert (answer.status_code, slug(answer)) == (404, "commit-not-found")
    assert (answer.json()["fromVersion"], answer.json()["asOfVersion"]) == (0, 0)
    assert answer.json()["commitId"] == name


async def test_a_conflict_names_its_winner(api: Api, table: str) -> None:
    await api.append("a")
    winner = (await post(api, {"readVersion": 1, "actions": [remove("a")]})).json()
    loser = await post(api, {"readVersion": 1, "actions": [remove("a")]})
    assert (loser.status_code, slug(loser)) == (409, "commit-conflict")
    told = loser.json()
    assert told["rule"] == "delete-delete"
    assert told["retry"] == "rebase"
    assert [(w["version"], w["seq"], w["commitId"]) for w in told["winners"]] == [(2, 0, winner["commitId"])]
    assert told["paths"] == ["a"]
    assert "lastTxnVersion" not in told


async def test_a_stream_that_repeats_itself(api: Api, table: str) -> None:
    txn = {"txn": {"appId": "stream/1 ü", "version": 7}}
    first = await post(api, {"readVersion": 0, "actions": [txn, add("a")]})
    assert first.status_code == 201, first.text
    again = await post(api, {"readVersion": 1, "actions": [txn, add("b")]})
    assert (again.status_code, slug(again)) == (409, "commit-conflict")
    assert (again.json()["rule"], again.json()["retry"], again.json()["lastTxnVersion"]) == ("txn", "never", 7)
    position = await api.get(f"{table}/txns/stream%2F1%20%C3%BC")
    assert position.json() == {"appId": "stream/1 ü", "version": 7, "lastUpdated": position.json()["lastUpdated"]}
    other = await api.get(f"{table}/txns/other")
    assert (other.status_code, slug(other)) == (404, "txn-not-found")


@pytest.mark.parametrize(
    "change, pointer",
    [
        ({"readVersion": -1}, "/readVersion"),
        ({"readVersion": "1"}, "/readVersion"),
        ({"readVersion": 1.5}, "/readVersion"),
        ({"readVersion": 2**64}, "/readVersion"),
        ({"readVersion": True}, "/readVersion"),
        ({"isolation": "none"}, "/isolation"),
        ({"coalesce": "yes"}, "/coalesce"),
        ({"commitId": "x"}, "/commitId"),
        ({"commitId": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, "/commitId"),
        ({"operation": ""}, "/operation"),
        ({"surprise": 1}, "/surprise"),
        ({"reads": {"surprise": 1}}, "/reads/surprise"),
        ({"reads": {"paths": [1]}}, "/reads/paths/0"),
        ({"actions": []}, "/actions"),
        ({"actions": {}}, "/actions"),
        ({"actions": [{}]}, "/actions/0"),
        ({"actions": [{**add("a"), **remove("b")}]}, "/actions/0"),
        ({"actions": [add("a"), {"subtract": {}}]}, "/actions/1/subtract"),
        ({"actions": [add("a", size=-1)]}, "/actions/0/add/size"),
        ({"actions": [add("a", size=2**64)]}, "/actions/0/add/size"),
        ({"actions": [add("a", size="1")]}, "/actions/0/add/size"),
        ({"actions": [add("a", dataChange=1)]}, "/actions/0/add/dataChange"),
        ({"actions": [add("a", surprise=1)]}, "/actions/0/add/surprise"),
        ({"actions": [add("a", partitionValues={"x": 1})]}, "/actions/0/add/partitionValues"),
        ({"actions": [add("a", partitionValues={"x": "1"})]}, "/actions/0/add/partitionValues"),
        ({"actions": [add("a"), add("b", minValues={"id": "abc"})]}, "/actions/1/add/minValues/id"),
        ({"actions": [add("a", maxValues={"id": "2.5"})]}, "/actions/0/add/maxValues/id"),
        ({"actions": [add("a", minValues={"id": "9"}, maxValues={"id": "8"})]}, "/actions/0/add/maxValues/id"),
        ({"actions": [add("a", minValues={"surprise": "1"})]}, "/actions/0/add/minValues/surprise"),
        ({"actions": [add("a", numRecords=-1)]}, "/actions/0/add/numRecords"),
        ({"actions": [{"commitInfo": {"timestamp": 1}}]}, "/actions/0"),
        ({"actions": [remove("a")]}, "/readVersion"),
    ],
)
async def test_faults_have_a_place(api: Api, table: str, change: dict[str, Any], pointer: str) -> None:
    answer = await post(api, {"actions": [add("a")], **change})
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")
    assert pointers(answer)[0] == pointer
    assert (await api.get(table)).json()["version"] == 0


async def test_a_partition_value_that_no_reader_could_read(api: Api) -> None:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in DAYS.items()]
    await api.create(schema={"type": "struct", "fields": fields}, partitionColumns=["day"])
    answer = await post(api, {"actions": [add("a", partitionValues={"day": "yesterday"})]})
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")
    assert pointers(answer) == ["/actions/0/add/partitionValues/day"]
    assert "write a date such as '2024-01-31'" in answer.json()["detail"]
    for right in ("2024-01-31", "19753", None):
        good = await post(api, {"actions": [add(f"a{right}", partitionValues={"day": right})]})
        assert good.status_code == 201, good.text


@pytest.mark.parametrize(
    "path", ["/abs", "../up", "a/../../b", "%2e%2e/x", "_transaction_log/x", "s3://b/x", "", "a\0b", "x" * 2000, "a\\b"]
)
async def test_paths_that_a_commit_may_not_add(api: Api, table: str, path: str) -> None:
    answer = await post(api, {"actions": [add("fine"), add(path)]})
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")
    assert pointers(answer) == ["/actions/1/add/path"]


async def test_one_path_twice(api: Api, table: str) -> None:
    answer = await post(api, {"actions": [add("a"), add("./a")]})
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")


async def test_a_read_version_above_the_head(api: Api, table: str) -> None:
    answer = await post(api, {"readVersion": 5, "actions": [remove("a")]})
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")


ADD = json.dumps(add("a"))
DAYS = {"id": "long", "day": "date"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"not json",
        b'{"actions": [%s]} trailing' % ADD.encode(),
        b'{"actions": [%s], "operationMetrics": {"x": NaN}}' % ADD.encode(),
        b'{"actions": [%s], "operationMetrics": {"x": Infinity}}' % ADD.encode(),
        b'{"actions": [%s], "operationMetrics": {"x": 1e999}}' % ADD.encode(),
        b'{"actions": [%s], "operation": "\xff"}' % ADD.encode(),
        b'{"actions": [%s], "operation": "\\ud800"}' % ADD.encode(),
        b'{"actions": [%s], "operation": "a\0b"}' % ADD.encode(),
        b'{"actions": [%s], "reads": {"filters": [%s1%s]}}' % (ADD.encode(), b"[" * 100_000, b"]" * 100_000),
        b"[" * 100_000,
        b'{"actions": [%s], "operationParameters": %s1%s}' % (ADD.encode(), b'{"a":' * 100_000, b"}" * 100_000),
        b'{"actions": [%s], "operationMetrics": {"x": %s}}' % (ADD.encode(), b"9" * 5000),
    ],
)
async def test_what_is_not_json_or_not_sane(api: Api, table: str, body: bytes) -> None:
    answer = await api.post(f"{table}/commits", content=body, headers=JSON)
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid"), answer.text
    assert (await api.get(table)).json()["version"] == 0


async def test_numbers_beyond_64_bits_never_break_the_service(api: Api, table: str) -> None:
    for value in (2**63, 2**64, -(2**64), 10**30):
        answer = await post(api, {"actions": [add("a")], "operationMetrics": {"x": value}})
        assert answer.status_code in (201, 422), answer.text
        assert (await api.get(f"{table}/commits")).status_code == 200


async def test_gzip(api: Api, table: str) -> None:
    body = json.dumps({"actions": [add("a")]}).encode()
    packed = {"content-encoding": "gzip", **JSON}
    sent = await api.post(
        f"{table}/commits", content=gzip.compress(body[:10]) + gzip.compress(body[10:]), headers=packed
    )
    assert sent.status_code == 201
    for broken in (gzip.compress(body)[:-9], b"\x1f\x8b" + b"rubbish" * 10, body):
        answer = await api.post(f"{table}/commits", content=broken, headers=packed)
        assert (answer.status_code, slug(answer)) == (400, "bad-request")
    other = await api.post(f"{table}/commits", content=body, headers={"content-encoding": "br", **JSON})
    assert (other.status_code, slug(other)) == (415, "unsupported-encoding")


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json(api: Api, table: str, media: str) -> None:
    """What a form of another site could send is not taken."""
    answer = await api.post(f"{table}/commits", content=b'{"actions": []}', headers={"content-type": media})
    assert (answer.status_code, slug(answer)) == (415, "unsupported-encoding")


async def test_json_with_a_charset(api: Api, table: str) -> None:
    body = json.dumps({"actions": [add("a")]}).encode()
    answer = await api.post(
        f"{table}/commits", content=body, headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert answer.status_code == 201


async def test_a_table_that_is_not_there(api: Api) -> None:
    answer = await post(api, {"actions": [add("a")]})
    assert (answer.status_code, slug(answer)) == (404, "table-not-found")


async def test_history_in_both_directions(api: Api, table: str) -> None:
    for number in range(5):
        await api.append(f"f{number}", operation=f"OP {number}")
    newest = (await api.get(f"{table}/commits")).json()["commits"]
    assert [commit["version"] for commit in newest] == [5, 4, 3, 2, 1, 0]
    assert newest[0]["operation"] == "OP 4"
    assert newest[0]["isBlindAppend"] is True
    oldest = (await api.get(f"{table}/commits", params={"order": "asc", "from": 2, "to": 4})).json()["commits"]
    assert [commit["version"] for commit in oldest] == [2, 3, 4]
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get(f"{table}/commits", params={"limit": 4, **cursor})).json()
        seen += [commit["version"] for commit in page["commits"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == [5, 4, 3, 2, 1, 0]


async def test_one_version(api: Api, table: str) -> None:
    told = await api.append("a", "b")
    version = (await api.get(f"{table}/commits/1")).json()
    assert version["timestamp"] == told["timestamp"]
    assert [line["add"]["path"] for line in version["actions"]] == ["a", "b"]
    assert [commit["commitId"] for commit in version["commits"]] == [told["commitId"]]
    missing = await api.get(f"{table}/commits/9")
    assert (missing.status_code, slug(missing)) == (404, "version-not-found")
    for bad in ("x", "-1", "1.0", "01", "9223372036854775808", "9" * 5000, "%201"):
        answer = await api.get(f"{table}/commits/{bad}")
        assert (answer.status_code, slug(answer)) == (422, "request-invalid"), bad
