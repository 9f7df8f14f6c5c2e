"""Bodies that are small as sent and large as they are: bounded in bytes, in ratio, in memory over all requests, and
decoded beside the event loop."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from tarnlog.protocol.commits import CommitRequest
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api import bodies, commit_body, decoding
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.bodies import MAX_RATIO, SMALL_BODY, BodyLimits, inflating
from tarnlog_server.api.body_budget import BodyBudget
from tarnlog_server.api.commit_body import count_values, decode_in_steps
from tests.api.conftest import Api, add, pointers, slug

JSON = {"content-type": "application/json"}
PACKED = {"content-encoding": "gzip", **JSON}
MIB = 1024 * 1024
WIDE = BodyLimits(sent=72 * MIB, inflated=256 * MIB)


def commit_of(count: int, **more: Any) -> bytes:
    """A commit of adds that are as alike as those of a job are."""
    return json.dumps({"actions": [add(f"day=2024-01-01/part-{n:05d}.parquet", **more) for n in range(count)]}).encode()


def inflated(body: bytes, limits: BodyLimits = WIDE) -> bytes:
    return b"".join(inflating(body, limits))


async def test_no_request_but_a_commit_takes_more_than_a_mebibyte(api: Api, table: str) -> None:
    seen = 0
    for operation in api.app.operations:
        if operation.body is None or operation.id == "commit":
            continue
        path = operation.path.replace("{table}", "db.t").replace("{session}", "s")
        for content, headers in (
            (b" " * (SMALL_BODY + 1), JSON),
            (gzip.compress(b" " * (SMALL_BODY + 1)), PACKED),
        ):
            answer = await api.request(operation.method, path, content=content, headers=headers)
            assert (answer.status_code, slug(answer)) == (413, "request-too-large"), operation.id
        seen += 1
    assert seen >= 10


async def test_commits_of_a_job_pass_however_well_they_compress(api: Api, table: str) -> None:
    mapping = json.dumps([{"name": f"field_{n}", "type": "text", "stored": True} for n in range(150)])
    for body in (commit_of(20_000), commit_of(1_000, docMappingJson=mapping)):
        assert inflated(gzip.compress(body)) == body
    body = commit_of(3_000)
    answer = await api.post(f"{table}/commits", content=gzip.compress(body), headers=PACKED)
    assert answer.status_code == 201, answer.text
    assert (await api.get(table)).json()["numFiles"] == 3_000


async def test_what_inflates_beyond_all_measure_is_refused(api: Api, table: str) -> None:
    bomb = gzip.compress(b'{"operationParameters":{"a":[' + b"[]," * 7_000_000 + b"[]]}}", 9)
    assert len(bomb) < 25_000
    answer = await api.post(f"{table}/commits", content=bomb, headers=PACKED)
    assert (answer.status_code, slug(answer)) == (413, "commit-too-large")
    assert f"{MAX_RATIO} times" in answer.json()["detail"]


def test_a_gzip_text_in_any_parts_is_the_same_text() -> None:
    text = commit_of(3_000)[:300_000]
    for cuts in ((), (1,), (65_536,), (65_536, 131_072), (0, 7, 299_999)):
        edges = [0, *cuts, len(text)]
        packed = b"".join(gzip.compress(text[a:b]) for a, b in itertools.pairwise(edges))
        assert inflated(packed) == text
    for broken in (gzip.compress(text)[:-1], gzip.compress(text)[:-9], gzip.compress(text) + b"x"):
        with pytest.raises(ProblemError):
            inflated(broken)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 65_536 + 4 * MIB, 65_536 + 4 * MIB + 1])
def test_a_text_that_ends_where_a_part_does(size: int) -> None:
    text = random.Random(size).randbytes(size)
    assert inflated(gzip.compress(text, 1)) == text


FAULTS: list[dict[str, Any]] = [
    {"actions": []},
    {"actions": [{"add": {"path": 7}}]},
    {"actions": [add("a"), {"add": {**add("b")["add"], "size": -1}}]},
    {"actions": [add("a"), {"added": {}}]},
    {"actions": [add("a")], "reads": {"paths": [7]}},
    {"actions": [add("a")], "isolation": "none"},
    {"actions": [add("a")], "operationMetrics": []},
    {"actions": [add("a")], "unheard": 1},
    {"actions": {}},
    {},
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_large_commit_is_refused_with_the_words_of_a_small_one(fault: dict[str, Any]) -> None:
    body = json.dumps(fault).encode()
    with pytest.raises(ProblemError) as whole:
        decoding.body_as(msgspec.json.Decoder(CommitRequest), body, "commit-invalid")
    with pytest.raises(ProblemError) as stepwise:
        decode_in_steps(body)
    assert stepwise.value.document() == whole.value.document()


def test_a_large_commit_means_what_a_small_one_means() -> None:
    request = {
        "commitId": "0190d3f2-0000-7000-8000-000000000000",
        "actions": [add("ä", tags={"k": None}), {"txn": {"appId": "a", "version": 1}}],
        "readVersion": 3,
        "isolation": "serializable",
        "coalesce": False,
        "reads": {"wholeTable": True, "filters": [{"op": "eq", "column": "a", "value": 1}], "paths": ["x"]},
        "operation": "MERGE",
        "operationParameters": {"predicate": "a = 1", "n": [1, {"x": None}]},
        "operationMetrics": {"rows": 10**17},
    }
    body = json.dumps(request).encode()
    assert decode_in_steps(body) == msgspec.json.decode(body, type=CommitRequest)
    minimal = json.dumps({"actions": [add("a")]}).encode()
    assert decode_in_steps(minimal) == msgspec.json.decode(minimal, type=CommitRequest)


def test_every_value_is_counted() -> None:
    def values(item: object) -> int:
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return 1 + sum(values(one) for one in inner)

    items: list[object] = [[], {}, [[]], {"a": {}}, [1, 2, [3, {"x": []}]], {"a": 1, "b": [{}]}, [{}] * 50]
    for item in items:
        assert count_values(json.dumps(item).encode()) + 1 >= values(item)


async def test_large_bodies_are_decoded_beside_the_event_loop(
    api: Api, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_thread = threading.current_thread()
    on_loop: list[int] = []
    decode = decoding.body_as

    def watched(decoder: Any, body: Any, *more: Any, **named: Any) -> Any:
        if threading.current_thread() is loop_thread:
            on_loop.append(len(memoryview(body)))
        return decode(decoder, body, *more, **named)

    monkeypatch.setattr(bodies, "body_as", watched)
    monkeypatch.setattr(commit_body, "body_as", watched)
    assert (await api.post(f"{table}/commits", content=commit_of(1), headers=JSON)).status_code == 201
    assert len(on_loop) == 1, "a small one needs no thread"
    on_loop.clear()
    large = commit_of(1_000).replace(b"part-", b"more-")
    assert (await api.post(f"{table}/commits", content=large, headers=JSON)).status_code == 201
    schema = {"name": "db.big", "schema": {"type": "struct", "fields": [], "x": [[]] * 30_000}}
    assert (await api.post("/v1/tables", json=schema)).status_code == 422
    assert on_loop == []


BIG = {"key": "x" * 300_000}
DEEP: dict[str, Any] = json.loads('{"a":' * 40 + "{}" + "}" * 40)
MANY = {f"k{n}": n for n in range(10_001)}


@pytest.mark.parametrize("value", [BIG, DEEP, MANY, {"a": [[]] * 10_001}], ids=["big", "deep", "many", "many-inside"])
async def test_free_form_fields_are_bounded(api: Api, table: str, value: dict[str, Any]) -> None:
    for name in ("operationParameters", "operationMetrics"):
        for count in (1, 1_000):  # decoded at once, and in steps
            body = {"actions": [add(f"{name}-{n}") for n in range(count)], name: value}
            answer = await api.post(f"{table}/commits", json=body)
            assert (answer.status_code, slug(answer)) == (422, "commit-invalid"), answer.text
            assert pointers(answer) == [f"/{name}"]
    column = {"name": "c", "type": "string", "nullable": True, "metadata": value}
    wanted = {"name": "db.other", "schema": {"type": "struct", "fields": [column]}}
    answer = await api.post("/v1/tables", json=wanted)
    assert (answer.status_code, slug(answer)) == (422, "schema-invalid"), answer.text
    assert "/fields/0/metadata" in answer.json()["detail"]
    fields = (await api.get(table)).json()["schema"]["fields"]
    changed = await api.patch(table, json={"schema": {"type": "struct", "fields": [*fields, column]}})
    assert (changed.status_code, slug(changed)) == (422, "schema-invalid"), changed.text
    assert (await api.get(table)).json()["version"] == 0


async def test_tags_and_descriptions_are_bounded(api: Api, table: str) -> None:
    answer = await api.post(f"{table}/commits", json={"actions": [add("a", tags={"t": "x" * 70_000})]})
    assert (answer.status_code, pointers(answer)) == (422, ["/actions/0/add/tags"])
    version = (await api.get(f"{table}/commits/0")).json()
    metadata = next(action["metaData"] for action in version["actions"] if "metaData" in action)
    action = {"metaData": {**metadata, "description": "x" * 20_000}}
    answer = await api.post(f"{table}/commits", json={"actions": [action], "readVersion": 0})
    assert (answer.status_code, pointers(answer)) == (422, ["/actions/0/metaData/description"])


async def test_a_problem_does_not_repeat_megabytes(api: Api, table: str) -> None:
    path = "x" * 500_000
    removes = [{"remove": {"path": path, "dataChange": True}} for _ in range(20)]
    answer = await api.post(f"{table}/commits", json={"actions": removes, "readVersion": 0})
    assert answer.status_code == 422
    assert len(answer.content) < 200_000
    assert len((await api.get(f"{table}?{'x' * 60_000}=1")).content) < 20_000


async def test_a_page_of_the_history_ends_where_its_parameters_are_many(
    api: Api, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarnlog_server.usecases.history.MAX_PAGE_BYTES", 300_000)
    for number in range(6):
        await api.append(f"f{number}", operationParameters={"text": "x" * 100_000})
    for what in ("commits", "changes"):
        found, cursor, pages = 0, None, 0
        while pages == 0 or cursor is not None:
            page = (await api.get(f"{table}/{what}", params={"cursor": cursor} if cursor else None)).json()
            found, cursor, pages = found + len(page[what]), page["next"], pages + 1
            assert len(page[what]) <= 5
        assert found == 7
        assert pages > 1


@pytest.fixture
async def tight() -> AsyncIterator[Api]:
    """An application whose bodies may take 2 MiB together."""
    limits = BodyLimits(sent=8 * MIB, inflated=8 * MIB, budget=BodyBudget(2 * MIB))
    async with Api(ApiSettings(limits=limits)) as api:
        await api.create()
        yield api


async def slowly(body: bytes, gate: Any = None) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 50_000):
        yield body[start : start + 50_000]
    if gate is not None:
        await gate.wait()


async def test_bodies_share_one_budget_of_memory(tight: Api) -> None:
    gate = asyncio.Event()
    url, padded = "/v1/tables/db.t/commits", commit_of(1) + b" " * 1_200_000
    first = asyncio.ensure_future(tight.post(url, content=slowly(padded, gate), headers=JSON))
    for _ in range(100):
        await asyncio.sleep(0)
    second = await tight.post(url, content=slowly(padded.replace(b"part-", b"more-")), headers=JSON)
    assert (second.status_code, slug(second)) == (429, "too-many-waiting")
    assert second.headers["retry-after"] == "1"
    small = await tight.post(url, content=commit_of(1).replace(b"part-", b"tiny-"), headers=JSON)
    assert small.status_code == 201, "a small one is served while others wait"
    gate.set()
    assert (await first).status_code == 201
    third = await tight.post(url, content=slowly(padded.replace(b"part-", b"more-")), headers=JSON)
    assert third.status_code == 201, "what the first took was given back"


async def test_a_body_that_never_fits_is_told_so_and_gives_back(tight: Api) -> None:
    url = "/v1/tables/db.t/commits"
    blanks = commit_of(1) + b" " * 3_000_000
    many = b'{"actions":[' + b"{}," * 100_000 + b"{}]}"
    packed = gzip.compress(random.Random(1).randbytes(10_000) + b" " * 2_500_000)
    for content, headers in ((slowly(blanks), JSON), (slowly(many), JSON), (packed, PACKED)):
        answer: httpx.Response = await tight.post(url, content=content, headers=headers)
        assert (answer.status_code, slug(answer)) == (413, "commit-too-large"), answer.text
        assert "TARNLOG_MAX_BODY_MEMORY_BYTES" in answer.json()["detail"]
    budget = BodyBudget(10)
    scope: dict[str, Any] = {}
    share = budget.share(scope, "request-too-large")
    share.take(7)
    share.take(-2)
    with pytest.raises(ProblemError):
        share.take(6)
    assert budget.held == 5
    share.give_back()
    assert budget.held == 0
