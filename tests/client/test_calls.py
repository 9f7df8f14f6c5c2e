"""What each method sends, how it reads the answer, and what is tried again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest

from tarnlog import (
    Add,
    Client,
    Committed,
    Conflict,
    Corrupt,
    Denied,
    Expired,
    InvalidRequest,
    NotFound,
    NotInLog,
    Remove,
    ServerFault,
    TarnlogError,
    Unavailable,
    Unknown,
    Unreachable,
)
from tarnlog.protocol.ids import parse_commit_id
from tarnlog.protocol.problems import CODES
from tests.client.scripted import SCHEMA, Scripted, answer, problem

TABLE: dict[str, Any] = {
    "name": "s.t",
    "id": "i",
    "location": "/l",
    "version": 4,
    "schema": SCHEMA,
    "partitionColumns": ["d"],
    "properties": {"k": "v"},
    "description": None,
    "protocol": {"minReaderVersion": 4, "minWriterVersion": 4},
    "createdTime": 5,
    "numFiles": 2,
    "totalBytes": 3,
    "numRecords": None,
    "addedInALaterRelease": [1],
}
ADD = {"path": "p", "partitionValues": {"d": None}, "size": 1, "modificationTime": 2, "dataChange": True}


def sent(script: Scripted, index: int = 0) -> tuple[str, str, dict[str, str]]:
    request = script.requests[index]
    return request.method, request.url.path, dict(request.url.params)


def test_create_table() -> None:
    script = Scripted(answer(201, TABLE))
    table = script.client().create_table("s.t", SCHEMA, partition_by=["d"], properties={"k": "v"})
    assert sent(script) == ("POST", "/v1/tables", {})
    assert script.bodies == [{"name": "s.t", "schema": SCHEMA, "partitionColumns": ["d"], "properties": {"k": "v"}}]
    assert (table.version, table.partition_columns, table.num_records) == (4, ("d",), None)


def test_register_and_drop() -> None:
    script = Scripted(answer(201, TABLE), answer(204))
    client = script.client()
    client.register_table("s.t", "/l", foreign_writers_stopped=True)
    client.drop_table("s.t", purge=True)
    assert sent(script, 0) == ("POST", "/v1/tables/register", {})
    assert script.bodies[0] == {"name": "s.t", "location": "/l", "foreignWritersStopped": True}
    assert sent(script, 1) == ("DELETE", "/v1/tables/s.t", {"purge": "true"})


def test_alter_is_sent_again_with_the_commit_id_it_began_with() -> None:
    script = Scripted(httpx.ReadTimeout("lost"), answer(200, TABLE))
    script.client().alter_table("s.t", set_properties={"a": "b"}, unset_properties=["c"], description="")
    assert sent(script) == ("PATCH", "/v1/tables/s.t", {})
    first, second = script.bodies
    assert first == second
    assert UUID(parse_commit_id(first.pop("commitId"))).version == 7
    assert first == {"properties": {"set": {"a": "b"}, "unset": ["c"]}, "description": ""}


def test_lists_follow_the_cursor() -> None:
    entry = {"name": "s.t", "id": "i", "location": "/l"}
    script = Scripted(
        answer(200, {"tables": [entry], "next": "c1"}),
        answer(200, {"tables": [], "next": "c2"}),
        answer(200, {"tables": [entry | {"name": "s.u"}], "next": None}),
    )
    names = [table.name for table in script.client().list_tables("s", page_size=1)]
    assert names == ["s.t", "s.u"]
    assert [sent(script, index)[2] for index in range(3)] == [
        {"namespace": "s", "limit": "1"},
        {"namespace": "s", "limit": "1", "cursor": "c1"},
        {"namespace": "s", "limit": "1", "cursor": "c2"},
    ]


def test_history_and_version() -> None:
    record = {"version": 3, "seq": 1, "commitId": "c", "timestamp": 9, "operation": "WRITE", "isBlindAppend": True}
    lines = [{"add": ADD}, {"remove": {"path": "q", "dataChange": False}}, {"fromTheFuture": {}}]
    script = Scripted(
        answer(200, {"commits": [record]}),
        answer(200, {"version": 3, "timestamp": 9, "commits": [record], "actions": lines}),
    )
    client = script.client()
    [found] = client.history("s.t", from_=1, to=3, order="asc")
    assert (found.version, found.seq, found.is_blind_append) == (3, 1, True)
    assert sent(script) == ("GET", "/v1/tables/s.t/commits", {"from": "1", "to": "3", "order": "asc"})
    info = client.version("s.t", 3)
    assert sent(script, 1) == ("GET", "/v1/tables/s.t/commits/3", {})
    assert [type(action) for action in info.actions] == [Add, Remove]


@pytest.mark.parametrize(
    "txns", [{"app": 3}, [{"appId": "app", "version": 3, "lastUpdated": 1}], {"app": {"appId": "app", "version": 3}}]
)
def test_snapshot(txns: Any) -> None:
    meta = {
        "id": "i",
        "format": {"provider": "parquet"},
        "schemaString": "{}",
        "partitionColumns": [],
        "futureField": 1,
    }
    document = {
        "version": 3,
        "timestamp": 9,
        "protocol": {"minReaderVersion": 4, "minWriterVersion": 4, "futureField": []},
        "metaData": meta,
        "numFiles": 1,
        "totalBytes": 2,
        "numRecords": 3,
        "txns": txns,
    }
    script = Scripted(answer(200, document))
    found = script.client().snapshot("s.t", version=3, max_staleness_seconds=0)
    assert sent(script) == ("GET", "/v1/tables/s.t/snapshot", {"version": "3", "maxStalenessSeconds": "0"})
    assert (found.meta_data.id, found.meta_data.configuration, found.txns) == ("i", {}, {"app": 3})
    assert found.protocol is not None


@pytest.mark.parametrize(
    "given, expected",
    [
        (1704067200000, "1704067200000"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        (datetime(2024, 1, 1, tzinfo=UTC), "1704067200000"),
    ],
)
def test_files_at_a_time(given: Any, expected: str) -> None:
    script = Scripted(answer(200, {"version": 1, "files": [ADD | {"futureField": 1}]}))
    [file] = script.client().files("s.t", timestamp=given)
    assert sent(script) == ("GET", "/v1/tables/s.t/files", {"timestamp": expected})
    assert file.path == "p"
    assert file.partition_values == {"d": None}


def test_what_is_wrong_with_arguments_shows_before_iterating() -> None:
    client = Scripted(answer(500)).client()
    with pytest.raises(InvalidRequest, match="not for both"):
        client.files("s.t", version=1, timestamp=2)
    with pytest.raises(InvalidRequest, match="time zone"):
        client.snapshot("s.t", timestamp=datetime(2024, 1, 1))  # noqa: DTZ001 (that is the point)
    for name in ("t", "../x", "a.b.c", "a.*", ""):
        with pytest.raises(InvalidRequest, match=r"namespace\.name"):
            client.changes(name, 0)


def test_changes_and_txn_and_skips() -> None:
    skip = {"path": "p", "skipTimestamp": 1, "reason": "r", "operation": "MERGE", "retryAfter": 9, "skipCount": 2}
    script = Scripted(
        answer(200, {"changes": [{"version": 1, "timestamp": 2, "commits": [], "adds": [ADD], "removes": []}]}),
        answer(200, {"appId": "a/b", "version": 7, "lastUpdated": None}),
        problem(404, "txn-not-found"),
        problem(404, "table-not-found"),
        answer(201, skip),
        answer(200, {"skips": [skip]}),
        answer(200, {"cooldowns": {"p": 9}}),
        answer(200, {"files": {"hitRate": 0.5}}),
    )
    client = script.client()
    [change] = client.changes("s.t", 1, 2)
    assert change.adds[0].path == "p"
    assert sent(script) == ("GET", "/v1/tables/s.t/changes", {"from": "1", "to": "2"})
    txn = client.txn("s.t", "a/b")
    assert txn is not None
    assert txn.version == 7
    assert script.requests[1].url.raw_path == b"/v1/tables/s.t/txns/a%2Fb"
    assert client.txn("s.t", "x") is None
    with pytest.raises(NotFound):
        client.txn("s.t", "x")
    recorded = client.record_skip("s.t", "p", reason="r", operation="MERGE", cooldown_hours=2)
    assert recorded.skip_count == 2
    assert script.bodies == [{"path": "p", "reason": "r", "operation": "MERGE", "cooldownHours": 2}]
    assert [each.path for each in client.skips("s.t")] == ["p"]
    assert client.cooldowns("s.t") == {"p": 9}
    assert client.cache_stats() == {"files": {"hitRate": 0.5}}


def test_commit_status() -> None:
    done = {"outcome": "committed", "commitId": "c", "version": 1, "seq": 0, "timestamp": 2, "replayed": True}
    script = Scripted(
        answer(200, done),
        answer(202, {"outcome": "unknown"}, retry_after="4"),
        problem(404, "commit-not-found", fromVersion=1, asOfVersion=9),
        problem(404, "table-not-found"),
        problem(410, "commit-id-out-of-window"),
    )
    client = script.client()
    assert isinstance(client.commit_status("s.t", "c"), Committed)
    assert client.commit_status("s.t", "c") == Unknown(commit_id="c", retry_after=4)
    assert client.commit_status("s.t", "c") == NotInLog(commit_id="c", from_version=1, as_of_version=9)
    with pytest.raises(NotFound, match="table-not-found"):
        client.commit_status("s.t", "c")
    with pytest.raises(Expired):
        client.commit_status("s.t", "c")
    assert sent(script) == ("GET", "/v1/tables/s.t/commits/by-id/c", {})


def test_health_is_an_answer_either_way() -> None:
    script = Scripted(answer(200, {"status": "ready"}), problem(503, "not-ready"))
    client = script.client()
    assert client.health().ready
    assert not client.health().ready
    assert script.slept == []


@pytest.mark.parametrize(
    "reply", [problem(429, "too-many-waiting"), answer(503), answer(504), httpx.ReadError("reset")]
)
def test_reads_are_tried_again(reply: Any) -> None:
    script = Scripted(reply, reply, answer(200, TABLE))
    assert script.client().get_table("s.t").version == 4
    assert len(script.requests) == 3


def test_reads_honour_retry_after_and_the_deadline() -> None:
    script = Scripted(problem(503, "storage-unavailable", retry_after="7"))
    with pytest.raises(Unavailable) as caught:
        script.client(deadline=20).get_table("s.t")
    assert caught.value.retry_after == 7
    assert len(script.slept) == 2
    assert all(seconds >= 7 for seconds in script.slept)


@pytest.mark.parametrize("reply", [httpx.ReadTimeout("lost"), httpx.ConnectError("refused"), answer(503)])
def test_what_is_not_safe_twice_is_sent_once(reply: Any) -> None:
    acts: tuple[Callable[[Client], object], ...] = (
        lambda client: client.create_table("s.t", SCHEMA),
        lambda client: client.register_table("s.t", "/l"),
        lambda client: client.drop_table("s.t"),
        lambda client: client.record_skip("s.t", "p", reason="r", operation="o"),
    )
    for act in acts:
        script = Scripted(reply)
        with pytest.raises(Unavailable):
            act(script.client())
        assert len(script.requests) == 1


def test_a_lost_answer_to_a_create_says_to_look_first() -> None:
    with pytest.raises(Unreachable, match="check before you send it again") as caught:
        Scripted(httpx.ReadTimeout("lost")).client().create_table("s.t", SCHEMA)
    assert caught.value.sent
    with pytest.raises(Unreachable, match="Check that the service runs") as caught:
        Scripted(httpx.ConnectError("refused")).client().create_table("s.t", SCHEMA)
    assert not caught.value.sent


def test_every_problem_code_has_its_exception() -> None:
    expected: dict[str, type[TarnlogError]] = {
        "invalid": InvalidRequest,
        "not-found": NotFound,
        "gone": Expired,
        "denied": Denied,
        "conflict": Conflict,
        "unavailable": Unavailable,
        "corrupt": Corrupt,
        "internal": ServerFault,
    }
    for code in CODES.values():
        script = Scripted(problem(code.status, code.slug, extra=1))
        with pytest.raises(TarnlogError) as caught:
            script.client(deadline=0).get_table("s.t")
        assert type(caught.value) is expected[code.kind.value]
        assert (caught.value.slug, caught.value.status, caught.value.fields) == (code.slug, code.status, {"extra": 1})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"name": 1}', b"\xff", b"[" * 100_000])
def test_an_answer_that_is_none_of_ours_is_a_server_fault(body: bytes) -> None:
    with pytest.raises(ServerFault, match="could not be read"):
        Scripted(httpx.Response(200, content=body)).client().get_table("s.t")


def test_a_refusal_in_foreign_words_is_still_an_error() -> None:
    foreign = answer(403, {"slug": "x", "self": "y", "retry_after": "z", "detail": None, "type": 7})
    with pytest.raises(Denied):
        Scripted(foreign).client().get_table("s.t")


def test_url_and_key_come_from_the_arguments_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TARNLOG_URL", raising=False)
    assert Client().url == "http://127.0.0.1:8420"
    monkeypatch.setenv("TARNLOG_URL", "http://elsewhere:1/base")
    monkeypatch.setenv("TARNLOG_API_KEY", "id.secret")
    script = Scripted(answer(200, TABLE))
    client = Client(transport=httpx.MockTransport(script.handle))
    client.get_table("s.t")
    assert str(script.requests[0].url) == "http://elsewhere:1/base/v1/tables/s.t"
    assert script.requests[0].headers["authorization"] == "Bearer id.secret"
    assert Client("http://here:2", api_key="k").url == "http://here:2"
    for wrong in ("localhost:8420", "ftp://x", "http://"):
        with pytest.raises(InvalidRequest, match="service URL"):
            Client(wrong)


async def test_the_asyncio_client_reads_alike() -> None:
    script = Scripted(
        httpx.ReadError("reset"),
        answer(200, TABLE),
        answer(200, {"version": 1, "files": [ADD], "next": "c"}),
        answer(200, {"version": 1, "files": [ADD | {"path": "q"}]}),
        problem(404, "txn-not-found"),
        problem(404, "table-not-found"),
    )
    async with script.async_client() as client:
        assert (await client.get_table("s.t")).version == 4
        assert [file.path async for file in client.files("s.t")] == ["p", "q"]
        assert await client.txn("s.t", "a") is None
        with pytest.raises(NotFound):
            await client.get_table("s.t")
    assert len(script.slept) == 1


def test_cleanup() -> None:
    done = {"tableName": "s.t", "status": "success", "versionsDeleted": 7, "floor": 9, "message": "m", "later": 1}
    script = Scripted(answer(200, done), answer(200, {**done, "status": "dry-run"}))
    client = script.client()
    found = client.cleanup("s.t")
    assert (found.versions_deleted, found.floor, found.checkpoint_version, found.message) == (7, 9, None, "m")
    assert client.cleanup("s.t", dry_run=True).status == "dry-run"
    assert [sent(script, index)[:2] for index in range(2)] == [("POST", "/v1/tables/s.t/cleanup")] * 2
    assert [request.content for request in script.requests] == [b"{}", b'{"dryRun":true}']


def test_states() -> None:
    written = {"tableName": "s.t", "status": "success", "checkpointVersion": 7, "numActions": 5, "numFiles": 3}
    state = {"tableName": "s.t", "format": "json", "version": 7, "numFiles": 3, "status": "ours", "later": 1}
    script = Scripted(answer(200, written), answer(200, written), answer(200, written), answer(200, state))
    client = script.client()
    assert client.checkpoint("s.t").checkpoint_version == 7
    assert client.checkpoint("s.t", "json").num_files == 3
    assert client.compact("s.t").num_actions == 5
    found = client.state("s.t")
    assert (found.format, found.version, found.status, found.needs_compaction) == ("json", 7, "ours", False)
    assert [sent(script, index)[:2] for index in range(4)] == [
        ("POST", "/v1/tables/s.t/checkpoint"),
        ("POST", "/v1/tables/s.t/checkpoint"),
        ("POST", "/v1/tables/s.t/compact"),
        ("GET", "/v1/tables/s.t/state"),
    ]
    assert [request.content for request in script.requests] == [b"{}", b'{"format":"json"}', b"{}", b""]
