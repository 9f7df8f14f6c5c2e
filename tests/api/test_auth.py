"""Keys: who is let in, what a scope and a namespace pattern allow, and what wrong keys cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import MAX_ADDRESSES, ApiKey, Authenticator, Scope
from tarnlog_server.telemetry.logs import LineHead
from tests.api.conftest import SCHEMA, Api, add, slug

SECRET = "open sesame"


def key(name: str, scope: Scope, namespaces: str | None = None) -> ApiKey:
    return ApiKey(
        id=name, sha256=hashlib.sha256(SECRET.encode()).hexdigest().upper(), scope=scope, namespaces=namespaces
    )


def bearer(name: str, secret: str = SECRET) -> dict[str, str]:
    return {"authorization": f"Bearer {name}.{secret}"}


KEYS = (key("reader", "read"), key("writer", "write"), key("admin", "admin"), key("sales", "admin", "sales*"))


class NoWait(SystemWorld):
    """Remembers the pauses instead of taking them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
async def guarded() -> AsyncIterator[Api]:
    async with Api(ApiSettings(keys=KEYS)) as api:
        made = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA}, headers=bearer("admin"))
        assert made.status_code == 201
        yield api


OPERATIONS: list[tuple[str, str, Any, Scope]] = [
    ("GET", "/v1/tables", None, "read"),
    ("GET", "/v1/tables/db.t", None, "read"),
    ("GET", "/v1/tables/db.t/snapshot", None, "read"),
    ("GET", "/v1/tables/db.t/files", None, "read"),
    ("GET", "/v1/tables/db.t/changes", None, "read"),
    ("GET", "/v1/tables/db.t/commits", None, "read"),
    ("GET", "/v1/tables/db.t/commits/0", None, "read"),
    ("GET", "/v1/tables/db.t/skips", None, "read"),
    ("GET", "/v1/tables/db.t/cooldowns", None, "read"),
    ("GET", "/v1/tables/db.t/state", None, "read"),
    ("GET", "/v1/cache", None, "read"),
    ("GET", "/metrics", None, "read"),
    ("GET", "/docs", None, "read"),
    ("GET", "/openapi.json", None, "read"),
    ("POST", "/v1/tables/db.t/commits", {"actions": [add("a")]}, "write"),
    ("POST", "/v1/tables/db.t/skips", {"path": "a", "reason": "r", "operation": "o"}, "write"),
    ("POST", "/v1/tables/db.t/checkpoint", {}, "write"),
    ("POST", "/v1/tables/db.t/compact", {}, "write"),
    ("POST", "/v1/tables/db.t/cleanup", {}, "write"),
    ("POST", "/v1/tables", {"name": "db.new", "schema": SCHEMA}, "write"),
    ("PATCH", "/v1/tables/db.t", {"description": "d"}, "write"),
    ("POST", "/v1/cache/invalidate", {}, "admin"),
    ("POST", "/v1/tables/register", {"name": "db.x", "location": "memory://warehouse/x"}, "admin"),
    ("DELETE", "/v1/tables/db.t", None, "admin"),
]
RANK = {"reader": 0, "writer": 1, "admin": 2}
NEEDED = {"read": 0, "write": 1, "admin": 2}


@pytest.mark.parametrize("name", ["reader", "writer", "admin"])
@pytest.mark.parametrize("method, path, body, scope", OPERATIONS, ids=lambda value: str(value)[:40])
async def test_scopes(guarded: Api, name: str, method: str, path: str, body: Any, scope: Scope) -> None:
    answer = await guarded.request(method, path, json=body, headers=bearer(name))
    if RANK[name] >= NEEDED[scope]:
        assert answer.status_code not in (401, 403), answer.text
    else:
        assert (answer.status_code, slug(answer)) == (403, "forbidden")


@pytest.mark.parametrize("method, path, body, scope", OPERATIONS, ids=lambda value: str(value)[:40])
async def test_nothing_without_a_key(guarded: Api, method: str, path: str, body: Any, scope: Scope) -> None:
    answer = await guarded.request(method, path, json=body)
    assert (answer.status_code, slug(answer)) == (401, "unauthenticated")
    in_a_browser = path in ("/docs", "/openapi.json", "/metrics")
    assert answer.headers["www-authenticate"].split(" ")[0] == ("Basic" if in_a_browser else "Bearer")


async def test_unknown_paths_need_a_key_too(guarded: Api) -> None:
    assert (await guarded.get("/nothing")).status_code == 401
    assert (await guarded.get("/nothing", headers=bearer("reader"))).status_code == 404


async def test_health_needs_no_key(guarded: Api) -> None:
    assert (await guarded.get("/v1/health/live")).status_code == 200
    assert (await guarded.get("/v1/health/ready")).status_code == 200


async def test_why_a_service_is_not_ready_is_told_only_with_a_key(guarded: Api) -> None:
    guarded.readiness.checked("s3://the-bucket/lake", ("<Error><Code>AccessDenied</Code></Error>",), 0)
    for headers in ({}, bearer("reader", "wrong"), {"authorization": "Basic eA=="}):
        answer = await guarded.get("/v1/health/ready", headers=headers)
        assert (answer.status_code, slug(answer)) == (503, "not-ready")
        assert answer.headers["retry-after"]
        assert "bucket" not in answer.text
        assert "AccessDenied" not in answer.text
    told = await guarded.get("/v1/health/ready", headers=bearer("reader"))
    assert (told.status_code, slug(told)) == (503, "not-ready")
    assert "s3://the-bucket/lake: <Error>" in told.json()["detail"]
    assert (await guarded.get("/v1/health/live", headers=bearer("reader", "wrong"))).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer admin.{SECRET}x",
        "Bearer admin.",
        "Bearer admin",
        "Bearer",
        "",
        f"Bearer nobody.{SECRET}",
        f"Bearer .{SECRET}",
        f"Basic admin.{SECRET}",
        f"admin.{SECRET}",
        "Bearer admin." + KEYS[2].sha256,
        "Bearer " + "x" * 10_000,
    ],
)
async def test_wrong_keys(header: str) -> None:
    world = NoWait()
    with pytest.raises(ProblemError) as caught:
        await Authenticator(KEYS, world).caller(header.encode("latin-1"), "10.0.0.1")
    assert caught.value.slug == "unauthenticated"
    assert SECRET not in caught.value.detail
    assert world.pauses == [0.1]


async def test_wrong_keys_are_slowed_down_by_address() -> None:
    world = NoWait()
    auth = Authenticator(KEYS, world)

    async def fail(address: str) -> float:
        with pytest.raises(Exception, match="not valid"):
            await auth.caller(b"Bearer admin.wrong", address)
        return world.pauses[-1]

    assert [await fail("a") for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert await fail("b") == 0.1
    good = await auth.caller(f"Bearer admin.{SECRET}".encode(), "a")
    assert good.id == "admin"
    assert len(world.pauses) == 9
    world.now = 1000.0
    assert await fail("a") == 0.1
    for number in range(MAX_ADDRESSES + 10):
        await fail(f"address {number}")
    assert len(auth._wrong) == MAX_ADDRESSES


async def test_the_scheme_is_not_case_sensitive(guarded: Api) -> None:
    answer = await guarded.get("/v1/tables", headers={"authorization": f"bearer reader.{SECRET}"})
    assert answer.status_code == 200


async def test_namespaces(guarded: Api) -> None:
    own = bearer("sales")
    for name, status in (("sales.a", 201), ("sales_eu.a", 201), ("db.a", 403), ("xsales.a", 403)):
        made = await guarded.post("/v1/tables", json={"name": name, "schema": SCHEMA}, headers=own)
        assert made.status_code == status, name
    listed = (await guarded.get("/v1/tables", headers=own)).json()["tables"]
    assert [table["name"] for table in listed] == ["sales.a", "sales_eu.a"]
    assert len((await guarded.get("/v1/tables", headers=bearer("admin"))).json()["tables"]) == 3
    for method, path in (
        ("GET", "/v1/tables/db.t"),
        ("DELETE", "/v1/tables/db.t"),
        ("GET", "/v1/tables/db.none/files"),
    ):
        answer = await guarded.request(method, path, headers=own)
        assert (answer.status_code, slug(answer)) == (403, "forbidden")
    registered = await guarded.post(
        "/v1/tables/register", json={"name": "db.x", "location": "memory://warehouse/x"}, headers=own
    )
    assert (registered.status_code, slug(registered)) == (403, "forbidden")
    everything = await guarded.post("/v1/cache/invalidate", json={}, headers=own)
    assert (everything.status_code, slug(everything)) == (403, "forbidden")
    assert (await guarded.post("/v1/cache/invalidate", json={"table": "sales.a"}, headers=own)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/tables", "/v1/tables/register"])
@pytest.mark.parametrize(
    "place, allowed",
    [("hr", False), ("hr/t", False), ("db/t", False), ("salesx/t", True), ("sales/t", True), ("sales", True)],
)
async def test_a_key_for_namespaces_takes_no_place_of_another(
    guarded: Api, path: str, place: str, allowed: bool
) -> None:
    body: dict[str, Any] = {"name": "sales.t", "location": f"memory://warehouse/{place}"}
    if path == "/v1/tables":
        body["schema"] = SCHEMA
    answer = await guarded.post(path, json=body, headers=bearer("sales"))
    assert (answer.status_code == 403) is not allowed, answer.text
    if not allowed:
        assert "leave the location out" in answer.json()["detail"]
        answer = await guarded.post(path, json=body, headers=bearer("admin"))
        assert answer.status_code != 403


async def test_every_change_is_audited(guarded: Api, capsys: pytest.CaptureFixture[str]) -> None:
    with structlog.testing.capture_logs(processors=[LineHead()]) as logs:
        commit = await guarded.post(
            "/v1/tables/db.t/commits",
            json={"actions": [add("a")]},
            headers={**bearer("writer"), "x-request-id": "r1"},
        )
        await guarded.post("/v1/tables/db.t/commits", json={"actions": []}, headers=bearer("writer"))
        await guarded.delete("/v1/tables/db.t", headers=bearer("writer"))
        await guarded.get("/v1/tables/db.t", headers=bearer("writer"))
        await guarded.delete("/v1/tables/db.t", headers=bearer("admin"))
    lines = [line for line in logs if line["event"] == "audit"]
    told = [(line["who"], line["what"], line["table"], line["outcome"]) for line in lines]
    assert told == [
        ("writer", "commit", "db.t", "committed"),
        ("writer", "commit", "db.t", "commit-invalid"),
        ("writer", "drop table", "db.t", "forbidden"),
        ("admin", "drop table", "db.t", "done"),
    ]
    assert lines[0]["version"] == 1
    assert lines[0]["commit_id"] == commit.json()["commitId"]
    assert lines[0]["request_id"] == "r1"
    assert SECRET not in json.dumps(logs, default=str)


async def test_a_change_that_failed_is_audited_too(api: Api, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(api.coordinator.commits, "commit", fail)
    with structlog.testing.capture_logs() as logs:
        await api.post(f"{table}/commits", json={"actions": [add("a")]})
    assert [(line["what"], line["outcome"]) for line in logs if line["event"] == "audit"] == [
        ("commit", "internal-error")
    ]


async def test_a_key_in_the_wrong_place_is_none(guarded: Api) -> None:
    answer: httpx.Response = await guarded.get("/v1/tables", params={"key": f"admin.{SECRET}"})
    assert answer.status_code == 401


@pytest.mark.parametrize("order", [("reader", "admin"), ("admin", "reader"), ("admin", "admin")])
async def test_two_authorization_headers_are_refused(guarded: Api, order: tuple[str, str]) -> None:
    """A proxy that judges by one of them and a service that judges by the other would open what neither allows."""
    headers = [("authorization", bearer(name)["authorization"]) for name in order]
    for path in ("/v1/tables", "/v1/health/ready", "/metrics"):
        answer = await guarded.get(path, headers=headers)
        assert (answer.status_code, slug(answer)) == (400, "bad-request")
    assert (await guarded.delete("/v1/tables/db.t", headers=headers)).status_code == 400
    assert (await guarded.get("/v1/tables/db.t", headers=bearer("reader"))).status_code == 200
