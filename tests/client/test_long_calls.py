"""Calls that answer 202: the operation is looked at until it ends, and its end is the call's."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tarnlog import CheckpointInfo, Conflict, NotFound, OperationInfo, Progress, ServerFault, Unavailable
from tests.client.scripted import Scripted, answer, problem

RESULT = {"tableName": "s.t", "status": "success", "checkpointVersion": 7, "numActions": 5, "numFiles": 3}
REFUSED = {"type": "/problems/table-read-only", "title": "t", "status": 409, "detail": "it is read-only"}


def operation(status: str = "running", done: int = 0, *, http: int = 200, **more: Any) -> httpx.Response:
    progress = {"done": done, "total": 10, "unit": "files"}
    return answer(
        http, {"id": "o-1", "kind": "checkpoint", "table": "s.t", "status": status, "progress": progress, **more}
    )


def started() -> httpx.Response:
    return operation(http=202)


def paths(script: Scripted) -> list[str]:
    return [f"{request.method} {request.url.path}" for request in script.requests]


LOOK = "GET /v1/operations/o-1"


def test_it_is_looked_at_until_it_ends() -> None:
    script = Scripted(started(), operation(done=4), operation("succeeded", 10, result=RESULT))
    told: list[Progress] = []
    written = script.client().checkpoint("s.t", on_progress=told.append)
    assert (written.checkpoint_version, written.num_files) == (7, 3)
    assert paths(script) == ["POST /v1/tables/s.t/checkpoint", LOOK, LOOK]
    assert [progress.done for progress in told] == [0, 4, 10]
    assert told[0] == Progress(0, 10, "files")
    assert script.slept == [1.0, 1.0]


async def test_the_asyncio_client_does_the_same() -> None:
    script = Scripted(started(), operation(done=4), operation("succeeded", 10, result=RESULT))
    told: list[Progress] = []
    written = await script.async_client().compact("s.t", on_progress=told.append)
    assert isinstance(written, CheckpointInfo)
    assert [progress.done for progress in told] == [0, 4, 10]


def test_an_answer_at_once_needs_no_look() -> None:
    script = Scripted(answer(200, RESULT))
    told: list[Progress] = []
    assert script.client().checkpoint("s.t", on_progress=told.append).checkpoint_version == 7
    assert (len(script.requests), told) == (1, [])


def test_it_may_take_much_longer_than_the_deadline() -> None:
    script = Scripted(started(), *[operation()] * 300, operation("succeeded", result=RESULT))
    assert script.client(deadline=5).checkpoint("s.t").checkpoint_version == 7
    assert sum(script.slept) > 200


def test_a_failure_is_raised_as_the_call_would_have() -> None:
    script = Scripted(started(), operation("failed", problem=REFUSED))
    with pytest.raises(Conflict, match="it is read-only") as caught:
        script.client().checkpoint("s.t")
    assert caught.value.slug == "table-read-only"


def test_a_failure_without_words_is_the_services() -> None:
    with pytest.raises(ServerFault):
        Scripted(started(), operation("failed")).client().checkpoint("s.t")


def test_a_look_that_fails_is_tried_again() -> None:
    script = Scripted(
        started(),
        httpx.ReadTimeout("lost"),
        problem(503, "not-ready"),
        problem(404, "operation-not-found"),
        operation("succeeded", result=RESULT),
    )
    assert script.client().checkpoint("s.t").checkpoint_version == 7


def test_an_operation_that_stays_lost_is_an_error() -> None:
    script = Scripted(started(), problem(404, "operation-not-found"))
    with pytest.raises(NotFound, match="operation-not-found"):
        script.client(deadline=10).checkpoint("s.t")
    assert 5 < sum(script.slept) < 20


def test_a_service_that_stays_away_is_an_error() -> None:
    script = Scripted(started(), problem(503, "not-ready"))
    with pytest.raises(Unavailable):
        script.client(deadline=10).checkpoint("s.t")


def test_operations_can_be_listed_and_looked_at() -> None:
    script = Scripted(answer(200, {"operations": [{"id": "o-1", "kind": "k", "table": "s.t", "status": "failed"}]}))
    [found] = script.client().operations()
    assert (found.id, found.status, found.progress) == ("o-1", "failed", Progress())
    script = Scripted(operation("succeeded", result=RESULT, problem=None))
    one = script.client().operation("o-1")
    assert isinstance(one, OperationInfo)
    assert one.result == RESULT
    assert paths(script) == [LOOK]
