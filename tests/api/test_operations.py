"""Long calls over HTTP: 202 with an operation, what it becomes, and who may see it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import pytest
import structlog

from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.usecases.checkpoints import CheckpointView
from tests.api.conftest import Api, slug

LOOKS = 500


async def ended(api: Api, where: str) -> dict[str, Any]:
    """The operation once it does not run any more."""
    for _ in range(LOOKS):
        found = await api.get(where)
        assert found.status_code == 200, found.text
        if found.json()["status"] != "running":
            return dict(found.json())
        await asyncio.sleep(0.01)
    raise AssertionError(f"{where} still runs")


@pytest.fixture
async def held(api: Api, table: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Checkpoints that wait for this event, while nobody waits for them."""
    go = asyncio.Event()
    checkpoints = api.coordinator.checkpoints
    write = checkpoints.checkpoint

    async def slow(*arguments: Any) -> CheckpointView:
        arguments[-1](1, 4, "files")
        await go.wait()
        return await write(*arguments)

    monkeypatch.setattr(checkpoints, "checkpoint", slow)
    api.coordinator.operations.wait_seconds = 0.01
    return go


async def test_a_long_call_answers_202_and_then_its_result(api: Api, table: str, held: asyncio.Event) -> None:
    answer = await api.post(f"{table}/checkpoint")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    where = answer.headers["location"]
    assert where == f"/v1/operations/{told['id']}"
    assert answer.headers["retry-after"] == "1"
    assert (told["kind"], told["table"], told["status"]) == ("checkpoint", "db.t", "running")
    assert told["progress"] == {"done": 1, "total": 4, "unit": "files"}
    assert "result" not in told
    joined = await api.post(f"{table}/checkpoint")
    assert joined.headers["location"] == where
    assert (await api.get(where)).headers["retry-after"] == "1"
    held.set()
    done = await ended(api, where)
    assert (done["status"], done["result"]["checkpointVersion"]) == ("succeeded", 0)
    assert done["finishedAt"] >= done["startedAt"]
    listed = (await api.get("/v1/operations")).json()["operations"]
    assert listed == [done]
    assert (await api.get(f"{table}/state")).json()["status"] == "ours"


async def test_a_long_call_that_fails_has_the_problem_it_would_have_answered(
    api: Api, table: str, held: asyncio.Event
) -> None:
    where = (await api.post("/v1/tables/db.nothing/checkpoint")).headers["location"]
    held.set()
    done = await ended(api, where)
    assert (done["status"], done["problem"]["status"]) == ("failed", 404)
    assert done["problem"]["type"].endswith("table-not-found")
    assert "result" not in done


async def test_the_audit_line_of_a_long_call_names_the_operation(api: Api, table: str, held: asyncio.Event) -> None:
    with structlog.testing.capture_logs() as logs:
        answer = await api.post(f"{table}/checkpoint")
    [line] = [line for line in logs if line["event"] == "audit"]
    assert (line["what"], line["outcome"], line["operation"]) == ("checkpoint", "running", answer.json()["id"])


async def test_an_operation_that_is_not_known(api: Api) -> None:
    answer = await api.get("/v1/operations/nothing")
    assert (answer.status_code, slug(answer)) == (404, "operation-not-found")
    assert (await api.get("/v1/operations")).json() == {"operations": []}


async def test_a_shutdown_fails_it(api: Api, table: str, held: asyncio.Event) -> None:
    where = (await api.post(f"{table}/checkpoint")).headers["location"]
    await api.coordinator.operations.close()
    done = (await api.get(where)).json()
    assert (done["status"], done["problem"]["status"]) == ("failed", 503)
    refused = await api.post(f"{table}/checkpoint")
    assert (refused.status_code, slug(refused)) == (503, "shutting-down")


def key(name: str, scope: Any, namespaces: str | None = None) -> ApiKey:
    return ApiKey(id=name, sha256=hashlib.sha256(b"secret").hexdigest(), scope=scope, namespaces=namespaces)


def sent_by(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}.secret"}


async def test_only_keys_of_its_namespace_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (key("all", "admin"), key("db", "read", "db"), key("other", "admin", "other*"))
    async with Api(ApiSettings(keys=keys), headers=sent_by("all")) as api:
        await api.create()
        go = asyncio.Event()

        async def slow(*_: Any) -> None:
            await go.wait()

        monkeypatch.setattr(api.coordinator.checkpoints, "compact", slow)
        api.coordinator.operations.wait_seconds = 0.01
        where = (await api.post("/v1/tables/db.t/compact")).headers["location"]

        async def seen(name: str) -> tuple[httpx.Response, int]:
            listed = (await api.get("/v1/operations", headers=sent_by(name))).json()["operations"]
            return await api.get(where, headers=sent_by(name)), len(listed)

        for name in ("all", "db"):
            found, count = await seen(name)
            assert (found.status_code, count) == (200, 1)
        found, count = await seen("other")
        assert (found.status_code, slug(found), count) == (404, "operation-not-found", 0)
        refused = await api.post("/v1/tables/db.t/compact", headers=sent_by("db"))
        assert (refused.status_code, slug(refused)) == (403, "forbidden")
