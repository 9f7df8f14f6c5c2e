"""Every problem is a well-formed document, wherever it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarnlog.protocol.commits import CommitRequest, Committed, Conflicted, NotNow, Rejected, Unknown, Winner
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import CODES, TYPE_PREFIX, ProblemError
from tarnlog_server.api.answers import problem_answer
from tests.api.conftest import Api, add, slug

CONFLICT = Conflicted(
    commit_id="id",
    rule="append",
    detail="because",
    winners=(Winner(version=3, seq=1, commit_id="other", operation="WRITE"),),
    paths=("a",),
)
NOT_NOW = {"type": "/problems/commit-contended", "title": "t", "status": 503, "detail": "again"}
INVALID = {"type": "/problems/commit-invalid", "title": "t", "status": 422, "detail": "no", "errors": []}


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.slug)
async def test_every_code_is_told_as_a_document(api: Api, monkeypatch: pytest.MonkeyPatch, code: Any) -> None:
    async def fail(*_: object) -> None:
        raise ProblemError(code.slug, "what to do", retry_after=0.2, extra={"a": 1})

    monkeypatch.setattr(api.coordinator.commits, "commit", fail)
    answer = await api.post("/v1/tables/db.t/commits", json={"actions": [add("a")]})
    assert slug(answer) == code.slug
    assert answer.status_code == code.status
    assert answer.headers["retry-after"] == "1"
    assert answer.json() == {
        "type": TYPE_PREFIX + code.slug,
        "title": code.title,
        "status": code.status,
        "detail": "what to do",
        "extra": {"a": 1},
    }


@pytest.mark.parametrize("wait, told", [(0.0, "1"), (0.01, "1"), (1.0, "1"), (1.2, "2"), (30.0, "30")])
def test_retry_after_is_in_whole_seconds(wait: float, told: str) -> None:
    assert problem_answer(ProblemError("not-ready", "later", retry_after=wait)).headers["retry-after"] == told


def test_no_retry_after_without_a_reason() -> None:
    assert "retry-after" not in problem_answer(ProblemError("not-found", "never")).headers


@pytest.mark.parametrize(
    "outcome, status, code, fields",
    [
        (CONFLICT, 409, "commit-conflict", {"rule": "append", "paths": ["a"], "retry": "rebase", "commitId": "id"}),
        (Rejected(commit_id="id", problem=INVALID), 422, "commit-invalid", {"commitId": "id", "errors": []}),
        (NotNow(commit_id="id", problem=NOT_NOW, retry_after=3.0), 503, "commit-contended", {"commitId": "id"}),
        (Unknown(commit_id="id", retry_after=3.0), 503, "commit-unknown", {"commitId": "id"}),
    ],
)
async def test_outcomes(
    api: Api, monkeypatch: pytest.MonkeyPatch, outcome: Any, status: int, code: str, fields: dict[str, Any]
) -> None:
    async def answer_with(_: TableName, __: CommitRequest, ___: str | None) -> Any:
        return outcome

    monkeypatch.setattr(api.coordinator.commits, "commit", answer_with)
    answer = await api.post("/v1/tables/db.t/commits", json={"actions": [add("a")]})
    assert (answer.status_code, slug(answer)) == (status, code)
    assert fields.items() <= answer.json().items()
    if status == 503:
        assert answer.headers["retry-after"] == "3"


async def test_a_conflict_has_every_field(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conflicted(*_: object) -> Conflicted:
        return msgspec.structs.replace(CONFLICT, last_txn_version=4)

    monkeypatch.setattr(api.coordinator.commits, "commit", conflicted)
    told = (await api.post("/v1/tables/db.t/commits", json={"actions": [add("a")]})).json()
    assert told["winners"] == [{"version": 3, "seq": 1, "commitId": "other", "operation": "WRITE"}]
    assert told["lastTxnVersion"] == 4


async def test_a_commit_that_is_not_settled(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object) -> Committed | Unknown:
        return Unknown(commit_id="id", retry_after=1.0)

    monkeypatch.setattr(api.coordinator.commits, "status", unknown)
    answer = await api.get("/v1/tables/db.t/commits/by-id/id")
    assert (answer.status_code, answer.json()) == (202, {"outcome": "unknown", "commitId": "id"})
    assert answer.headers["retry-after"] == "1"


async def test_unexpected_errors_leak_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(api.coordinator.commits, "commit", fail)
    answer = await api.post(
        "/v1/tables/db.t/commits", json={"actions": [add("a")]}, headers={"x-request-id": "look-for-me"}
    )
    assert (answer.status_code, slug(answer)) == (500, "internal-error")
    assert "swordfish" not in answer.text
    assert "Traceback" not in answer.text
    assert "look-for-me" in answer.json()["detail"]
    logged = capsys.readouterr()
    assert "swordfish" in logged.out + logged.err
    assert "look-for-me" in logged.out + logged.err


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/tables/db.t/nothing", "/v1/tables/", "/v1/tables/db.t/"])
async def test_paths_that_are_not_there(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status_code, slug(answer)) == (404, "not-found")


@pytest.mark.parametrize("path", ["rows"])
async def test_what_later_releases_have_is_not_there_yet(api: Api, table: str, path: str) -> None:
    answer = await api.post(f"{table}/{path}", json={})
    assert (answer.status_code, slug(answer)) == (404, "not-found")


@pytest.mark.parametrize(
    "method, path, allowed",
    [
        ("DELETE", "/v1/tables", "GET, POST"),
        ("PUT", "/v1/tables/db.t", "DELETE, GET, PATCH"),
        ("PATCH", "/v1/tables/db.t/commits", "GET, POST"),
        ("POST", "/v1/health/live", "GET"),
        ("HEAD", "/v1/tables/db.t", "DELETE, GET, PATCH"),
        ("OPTIONS", "/v1/tables/db.t/skips", "GET, POST"),
        ("BREW", "/metrics", "GET"),
    ],
)
async def test_methods_that_are_not_allowed(api: Api, method: str, path: str, allowed: str) -> None:
    answer = await api.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    if method != "HEAD":
        assert slug(answer) == "method-not-allowed"


@pytest.mark.parametrize(
    "sent, kept",
    [
        ("abc-123", True),
        ("trace:00-ab/c+d=@.e", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ('"', False),
    ],
)
async def test_request_ids(api: Api, sent: str, kept: bool) -> None:
    told = (await api.get("/v1/health/live", headers={"x-request-id": sent})).headers["x-request-id"]
    assert (told == sent) is kept
    assert told


async def test_request_ids_differ(api: Api) -> None:
    told = {(await api.get("/v1/health/live")).headers["x-request-id"] for _ in range(20)}
    assert len(told) == 20
