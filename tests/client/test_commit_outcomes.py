"""Each answer the service can give to a commit, and what the client makes of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tarnlog import (
    Add,
    CommitConflict,
    Committed,
    CommitUnknown,
    Conflict,
    Conflicted,
    Corrupt,
    Denied,
    InvalidRequest,
    NotFound,
    NotNow,
    Reads,
    Rejected,
    TarnlogError,
    Unavailable,
    Unknown,
    Unreachable,
    new_commit_id,
    raise_for_outcome,
)
from tarnlog.protocol.ids import parse_commit_id
from tests.client.scripted import Reply, Scripted, answer, committed, problem

FILE = Add(path="a.parquet", partition_values={}, size=1, modification_time=0, data_change=True)


def commit(script: Scripted, **arguments: Any) -> Any:
    return script.client().commit("sales.orders", [FILE], **arguments)


def test_the_body_is_what_the_api_documents() -> None:
    script = Scripted(committed)
    script.client().commit(
        "sales.orders",
        [FILE],
        commit_id="01890a5d-ac96-774b-bcce-b302099a8057",
        read_version=12,
        isolation="serializable",
        coalesce=False,
        reads=Reads(whole_table=True, paths=("p",)),
        operation="MERGE",
        operation_parameters={"mode": "Append"},
        operation_metrics={"rows": 3},
    )
    [request] = script.requests
    assert (request.method, request.url.path) == ("POST", "/v1/tables/sales.orders/commits")
    assert request.headers["content-type"] == "application/json"
    assert script.bodies == [
        {
            "commitId": "01890a5d-ac96-774b-bcce-b302099a8057",
            "readVersion": 12,
            "isolation": "serializable",
            "coalesce": False,
            "reads": {"wholeTable": True, "paths": ["p"]},
            "operation": "MERGE",
            "operationParameters": {"mode": "Append"},
            "operationMetrics": {"rows": 3},
            "actions": [
                {
                    "add": {
                        "path": "a.parquet",
                        "partitionValues": {},
                        "size": 1,
                        "modificationTime": 0,
                        "dataChange": True,
                    }
                }
            ],
        }
    ]


@pytest.mark.parametrize("status, replayed", [(201, False), (200, True)])
def test_committed(status: int, replayed: bool) -> None:
    outcome = commit(Scripted(lambda request: committed(request, status, replayed=replayed, rebasedOver=[11, 12])))
    assert isinstance(outcome, Committed)
    assert (outcome.version, outcome.seq, outcome.timestamp) == (13, 0, 1704067200000)
    assert outcome.replayed is replayed
    assert outcome.rebased_over == (11, 12)
    assert raise_for_outcome(outcome) is outcome


def test_conflict_names_rule_winners_and_paths() -> None:
    winner = {"version": 12, "seq": 1, "commitId": None, "operation": "DELETE", "later": "field"}
    reply = problem(409, "commit-conflict", rule="delete-read", winners=[winner], paths=["p"], retry="rebase")
    script = Scripted(reply)
    outcome = commit(script)
    assert isinstance(outcome, Conflicted)
    assert (outcome.rule, outcome.paths, outcome.retry) == ("delete-read", ("p",), "rebase")
    assert [(each.version, each.seq, each.operation) for each in outcome.winners] == [(12, 1, "DELETE")]
    assert len(script.requests) == 1
    with pytest.raises(CommitConflict) as caught:
        raise_for_outcome(outcome)
    assert (caught.value.rule, caught.value.paths) == ("delete-read", ("p",))
    assert caught.value.winners == outcome.winners
    assert isinstance(caught.value, Conflict)


def test_a_txn_conflict_tells_how_far_the_application_is() -> None:
    outcome = commit(Scripted(problem(409, "commit-conflict", rule="txn", retry="never", lastTxnVersion=7)))
    assert isinstance(outcome, Conflicted)
    assert (outcome.retry, outcome.last_txn_version) == ("never", 7)


def test_a_conflict_in_a_newer_spelling_is_still_a_conflict() -> None:
    outcome = commit(Scripted(problem(409, "commit-conflict", rule="new-rule", retry="someday", winners="many")))
    assert isinstance(outcome, Conflicted)
    assert outcome.rule == "new-rule"


@pytest.mark.parametrize(
    "status, slug, error",
    [
        (409, "table-read-only", Conflict),
        (409, "foreign-writer-detected", Conflict),
        (422, "commit-invalid", InvalidRequest),
        (422, "commit-id-reused", InvalidRequest),
        (422, "commit-id-expired", InvalidRequest),
        (413, "commit-too-large", InvalidRequest),
        (401, "unauthenticated", Denied),
        (403, "forbidden", Denied),
        (404, "table-not-found", NotFound),
        (500, "log-corrupt", Corrupt),
    ],
)
def test_rejected_is_not_sent_again(status: int, slug: str, error: type[TarnlogError]) -> None:
    script = Scripted(problem(status, slug, errors=[{"pointer": "/actions/0", "message": "no"}]))
    outcome = commit(script)
    assert isinstance(outcome, Rejected)
    assert outcome.problem["type"].endswith(slug)
    assert outcome.problem["errors"] == [{"pointer": "/actions/0", "message": "no"}]
    assert len(script.requests) == 1
    with pytest.raises(error, match=slug) as caught:
        raise_for_outcome(outcome)
    assert type(caught.value) is error
    assert caught.value.slug == slug


@pytest.mark.parametrize(
    "first",
    [
        problem(429, "too-many-waiting", retry_after="2"),
        problem(503, "commit-contended", retry_after="2"),
        problem(503, "clock-skew", retry_after="2"),
        problem(503, "not-ready", retry_after="2"),
        problem(408, "request-timeout", retry_after="2"),
        problem(503, "too-many-connections", retry_after="2"),
        problem(503, "commit-unknown", retry_after="2"),
        problem(503, "storage-unavailable", retry_after="2"),
        problem(500, "internal-error", retry_after="2"),
        answer(502, None, retry_after="2"),
    ],
    ids=lambda reply: str(reply.status_code),
)
def test_not_settled_is_sent_again_with_the_same_bytes_after_retry_after(first: Reply) -> None:
    script = Scripted(first, first, committed)
    outcome = commit(script)
    assert isinstance(outcome, Committed)
    assert len(script.requests) == 3
    assert len({request.content for request in script.requests}) == 1
    assert parse_commit_id(script.bodies[0]["commitId"]) == outcome.commit_id
    assert all(2.0 <= seconds <= 2.2 for seconds in script.slept), script.slept


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ReadTimeout("slow"),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("closed"),
        httpx.WriteError("reset"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_transport_is_sent_again_with_the_same_commit_id(trouble: Exception) -> None:
    script = Scripted(trouble, trouble, lambda request: committed(request, 200, replayed=True))
    outcome = commit(script)
    assert isinstance(outcome, Committed)
    assert outcome.replayed
    assert len({body["commitId"] for body in script.bodies}) == 1
    assert len(script.requests) == 3


def test_waiting_grows_with_jitter_and_is_bounded() -> None:
    script = Scripted(httpx.ReadTimeout("slow"))
    commit(script)
    for number, seconds in enumerate(script.slept):
        ceiling = min(5.0, 0.05 * 2**number)
        assert ceiling / 2 <= seconds <= ceiling
    assert 50 < sum(script.slept) < 60


def test_a_timeout_until_the_deadline_is_unknown() -> None:
    script = Scripted(httpx.ReadTimeout("slow"))
    mine = new_commit_id()
    outcome = commit(script, commit_id=mine, deadline=10)
    assert outcome == Unknown(commit_id=mine, retry_after=1.0)
    assert script.now <= 1010.0
    assert {body["commitId"] for body in script.bodies} == {mine}
    with pytest.raises(CommitUnknown, match="Delete nothing") as caught:
        raise_for_outcome(outcome)
    assert caught.value.commit_id == mine
    assert not isinstance(caught.value, Unavailable)


def test_a_try_is_cut_at_the_deadline() -> None:
    script = Scripted(committed)
    script.client(timeout=30).commit("a.b", [FILE], deadline=7)
    assert script.requests[0].extensions["timeout"]["read"] == 7
    assert script.requests[0].extensions["timeout"]["connect"] == 4


def test_no_wait_goes_past_the_deadline() -> None:
    script = Scripted(problem(429, "too-many-waiting", retry_after="90"))
    outcome = commit(script)
    assert isinstance(outcome, NotNow)
    assert outcome.retry_after == 90
    assert script.slept == []
    with pytest.raises(Unavailable) as caught:
        raise_for_outcome(outcome)
    assert caught.value.retry_after == 90


def test_not_now_until_the_deadline_is_not_now() -> None:
    outcome = commit(Scripted(problem(503, "commit-contended", retry_after="1")), deadline=5)
    assert isinstance(outcome, NotNow)
    assert outcome.problem["type"].endswith("commit-contended")


@pytest.mark.parametrize("status, slug", [(408, "request-timeout"), (503, "too-many-connections")])
def test_what_the_service_never_had_is_not_now(status: int, slug: str) -> None:
    assert isinstance(commit(Scripted(problem(status, slug, retry_after="1")), deadline=5), NotNow)


def test_a_service_that_was_never_reached_is_not_now() -> None:
    outcome = commit(Scripted(httpx.ConnectError("refused")), deadline=5)
    assert isinstance(outcome, NotNow)
    assert "Nothing was sent" in outcome.problem["detail"]
    with pytest.raises(Unreachable):
        raise_for_outcome(outcome)


@pytest.mark.parametrize(
    "later",
    [
        problem(429, "too-many-waiting", retry_after="1"),
        problem(503, "commit-contended", retry_after="1"),
        problem(401, "unauthenticated"),
        problem(404, "table-not-found"),
        problem(422, "commit-id-expired"),
        problem(422, "commit-invalid", asOfVersion=7),
        problem(409, "commit-conflict", rule="delete-delete", asOfVersion=7),
        problem(409, "table-read-only"),
        httpx.ConnectError("refused"),
    ],
    ids=lambda reply: str(getattr(reply, "status_code", "refused")),
)
def test_after_a_lost_answer_a_refusal_of_the_resend_settles_nothing(later: Reply) -> None:
    script = Scripted(httpx.ReadTimeout("lost"), later)
    outcome = commit(script, deadline=5)
    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("slug, kind", [("commit-conflict", Conflicted), ("commit-invalid", Rejected)])
def test_after_a_lost_answer_conflict_and_invalid_do_settle(slug: str, kind: type) -> None:
    outcome = commit(
        Scripted(httpx.ReadTimeout("lost"), problem(409 if kind is Conflicted else 422, slug, rule="append"))
    )
    assert isinstance(outcome, kind)


@pytest.mark.parametrize(
    "reply",
    [
        answer(201, None),
        answer(200, {"hello": "world"}),
        answer(200, ["x"]),
        lambda request: committed(request, commitId=new_commit_id()),
        httpx.Response(200, content=b"\xff\xfe<html>"),
    ],
)
def test_a_success_that_does_not_say_what_happened_is_unknown(reply: Reply) -> None:
    assert isinstance(commit(Scripted(reply), deadline=0), Unknown)


@pytest.mark.parametrize("reply", [problem(431, "headers-too-large"), answer(431, None)], ids=["ours", "a proxy's"])
def test_a_head_that_is_too_large_settles_nothing_and_is_not_sent_again(reply: Reply) -> None:
    """An older service says so of commits that it has written."""
    script = Scripted(reply)
    assert isinstance(commit(script), Unknown)
    assert len(script.requests) == 1


def test_a_foreign_409_is_no_conflict() -> None:
    outcome = commit(Scripted(answer(409, None)))
    assert isinstance(outcome, Rejected)


def test_a_commit_that_cannot_be_written_is_refused_before_it_is_sent() -> None:
    script = Scripted(committed)
    with pytest.raises(InvalidRequest, match="at least one action"):
        script.client().commit("a.b", [])
    with pytest.raises(InvalidRequest, match="cannot be written"):
        script.client().commit("a.b", [FILE], operation_parameters={"lone": "\ud800"})
    with pytest.raises(InvalidRequest, match="cannot be written"):
        script.client().commit("a.b", [FILE], operation_parameters={"what": object()})
    assert script.requests == []


async def test_the_asyncio_client_decides_alike() -> None:
    script = Scripted(httpx.ReadTimeout("lost"), problem(503, "commit-unknown", retry_after="3"), committed)
    async with script.async_client() as client:
        outcome = await client.commit("sales.orders", [FILE])
    assert isinstance(outcome, Committed)
    assert len({request.content for request in script.requests}) == 1
    assert script.slept[1] >= 3

    script = Scripted(httpx.ReadTimeout("lost"))
    async with script.async_client() as client:
        assert isinstance(await client.commit("sales.orders", [FILE], deadline=1), Unknown)
