"""Who sees the dashboard: keys by HTTP Basic for what only reads, and no further."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import httpx
import pytest

from tarnlog_server.api.app import ApiSettings
from tests.api.conftest import SCHEMA, Api, add, slug
from tests.api.pages import Page
from tests.api.test_auth import KEYS, SECRET, bearer

PAGES = ["/", "/dashboard/tables/db.t", "/dashboard/tables/db.t/history", "/dashboard/assets/dashboard.css"]


def basic(name: str, secret: str = SECRET) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


@pytest.fixture
async def guarded() -> AsyncIterator[Api]:
    async with Api(ApiSettings(keys=KEYS)) as api:
        for name in ("db.t", "sales.orders"):
            made = await api.post("/v1/tables", json={"name": name, "schema": SCHEMA}, headers=bearer("admin"))
            assert made.status_code == 201
        yield api


def asks_for_a_key(answer: httpx.Response) -> bool:
    assert answer.status_code == 401
    return answer.headers["www-authenticate"].startswith("Basic realm=")


@pytest.mark.parametrize("path", [*PAGES, "/dashboard/tables/db.none", "/dashboard/nothing"])
async def test_a_browser_is_asked_for_a_key(guarded: Api, path: str) -> None:
    answer = await guarded.get(path)
    assert asks_for_a_key(answer)
    shown = Page(answer)
    assert "db.t" not in shown.text
    assert "id of an API key as the user name" in shown.text


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("name", ["reader", "writer", "admin"])
async def test_every_scope_may_look(guarded: Api, path: str, name: str) -> None:
    assert (await guarded.get(path, headers=basic(name))).status_code == 200
    assert (await guarded.get(path, headers=bearer(name))).status_code == 200


async def test_the_page_says_who_looks(guarded: Api) -> None:
    shown = Page(await guarded.get("/", headers=basic("sales")))
    assert "signed in as sales (scope admin, namespaces sales*)" in shown.text


@pytest.mark.parametrize(
    "header",
    [
        basic("reader", SECRET + "x"),
        basic("reader", ""),
        basic("nobody"),
        basic("", ""),
        {"authorization": "Basic"},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic " + base64.b64encode(f"reader.{SECRET}".encode()).decode()},
        {"authorization": "Digest " + base64.b64encode(f"reader:{SECRET}".encode()).decode()},
    ],
)
async def test_wrong_keys_are_asked_again(guarded: Api, header: dict[str, str]) -> None:
    assert asks_for_a_key(await guarded.get("/", headers=header))


async def test_a_browser_reaches_docs_and_metrics_with_the_same_key(guarded: Api) -> None:
    for path in ("/docs", "/docs/assets/start.js", "/openapi.json", "/metrics"):
        assert asks_for_a_key(await guarded.get(path))
        assert (await guarded.get(path, headers=basic("reader"))).status_code == 200


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/tables/db.t/commits"),
        ("DELETE", "/v1/tables/db.t"),
        ("POST", "/v1/cache/invalidate"),
        ("GET", "/v1/tables"),
    ],
)
async def test_what_a_browser_sends_by_itself_opens_no_call(guarded: Api, method: str, path: str) -> None:
    """A page of somebody else can make a browser send a request with these credentials."""
    answer = await guarded.request(method, path, json={"actions": [add("a")]}, headers=basic("admin"))
    assert (answer.status_code, slug(answer)) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_nothing_but_reading_is_open_on_pages(guarded: Api) -> None:
    assert (await guarded.post("/", headers=basic("admin"))).status_code == 401
    assert (await guarded.post("/", headers=bearer("admin"))).status_code == 405


async def test_a_key_for_namespaces_sees_those(guarded: Api) -> None:
    shown = Page(await guarded.get("/", headers=basic("sales")))
    assert "sales.orders" in shown.text
    assert "db.t" not in shown.text
    assert "1 table" in shown.text
    own = await guarded.get("/dashboard/tables/sales.orders", headers=basic("sales"))
    assert own.status_code == 200
    for below in ("", "/history", "/schema", "/files", "/plan", "/skips"):
        for name in ("db.t", "db.none"):
            answer = await guarded.get(f"/dashboard/tables/{name}{below}", headers=basic("sales"))
            assert answer.status_code == 403
            assert "is for namespaces like 'sales*'" in Page(answer).text


async def test_the_history_tells_which_key_sent_a_commit(guarded: Api) -> None:
    body = {"actions": [add("a")]}
    sent = await guarded.post("/v1/tables/db.t/commits", json=body, headers=bearer("writer"))
    again = {**body, "commitId": sent.json()["commitId"]}
    assert (await guarded.post("/v1/tables/db.t/commits", json=again, headers=bearer("admin"))).status_code == 200
    skip = {"path": "a", "reason": "r", "operation": "o"}
    assert (await guarded.post("/v1/tables/db.t/skips", json=skip, headers=bearer("admin"))).status_code == 201
    shown = Page(await guarded.get("/dashboard/tables/db.t/history", headers=basic("reader")))
    assert "writer WRITE blind" in shown.text
    assert "admin SKIP FILE" in shown.text
    assert SECRET not in shown.text
