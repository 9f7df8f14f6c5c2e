"""A key that is limited to namespaces learns nothing of other tables: no name, no id, no place, from any route.

Every GET route of the application is called, with paths of tables that the key sees and of tables that it does not.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from tarnlog.protocol.ids import TableName, uuid7
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey, Scope
from tarnlog_server.ports.object_store import StoreUnavailable
from tests.api.conftest import SCHEMA, Api, add, slug

HIDDEN = ("bvault.payroll", "bvault.salaries", "aaa-not.really")
"""Sorted around the visible ones, so that a page which skips one would show it in its cursor."""
SEEN = ("apps.events", "apps.orders", "azure.logs")
PARAMETER = re.compile(r"\{([A-Za-z]+)(?::path)?\}")


def key(name: str, scope: Scope, namespaces: str | None = None) -> ApiKey:
    return ApiKey(id=name, sha256=hashlib.sha256(b"s").hexdigest(), scope=scope, namespaces=namespaces)


def as_(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}.s"}


KEYS = ApiSettings(keys=(key("root", "admin"), key("reader", "read", "a[pz]*"), key("admin", "admin", "a[pz]*")))


class Service:
    """An application with tables that a restricted key sees, and others."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.secrets: set[str] = set()
        self.operation = ""

    async def fill(self) -> None:
        for name in (*SEEN, *HIDDEN):
            made = await self.api.post("/v1/tables", json={"name": name, "schema": SCHEMA}, headers=as_("root"))
            assert made.status_code == 201, made.text
            body = {"actions": [add("f.parquet")]}
            answer = await self.api.post(f"/v1/tables/{name}/commits", json=body, headers=as_("root"))
            assert answer.status_code == 201, answer.text
            if name in HIDDEN:
                namespace, table = name.split(".")
                self.secrets |= {namespace, table, made.json()["id"], made.json()["location"]}
            self.api.telemetry.queue_depth(name, 3)

    def check(self, answer: httpx.Response, about: str) -> None:
        """Nothing of a hidden table is in an answer; the path that was asked for may be echoed."""
        path = answer.request.url.path
        said = answer.text.replace(path, "") if len(path) > 1 else answer.text
        said += " ".join(f"{name}: {value}" for name, value in answer.headers.items())
        decoded = " ".join(_decoded(text) for text in re.findall(r"[A-Za-z0-9_-]{16,}", said))
        for secret in self.secrets:
            assert secret not in said, f"{about}: {secret} in {said[:2000]}"
            assert secret not in decoded, f"{about}: {secret} inside a cursor"


def _decoded(text: str) -> str:
    whole = text[: len(text) // 4 * 4]
    return base64.urlsafe_b64decode(whole).decode("latin-1")


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Api(KEYS) as api:
        made = Service(api)
        await made.fill()
        yield made


def paths(api: Api, commit_id: str, operation: str) -> list[str]:
    """Every GET path of the application, with each parameter in several values."""
    values: dict[str, list[str]] = {
        "table": [*SEEN[:1], *HIDDEN, "bvault.none", "apps.none"],
        "version": ["1"],
        "commitId": [commit_id],
        "appId": ["stream"],
        "operation": [operation, "unknown"],
        "session": ["none"],
        "rest": ["none"],
        "path": ["none"],
    }
    found = []
    for route in api.app.routes:
        if isinstance(route, Route) and "GET" in (route.methods or ()):
            names = PARAMETER.findall(route.path)
            for chosen in itertools.product(*(values[name] for name in names)):
                path = route.path
                for name, value in zip(names, chosen, strict=True):
                    path = re.sub(r"\{" + name + r"(:path)?\}", value, path)
                found.append(path)
    return found


@pytest.mark.parametrize("who", ["reader", "admin"])
async def test_no_get_route_names_a_hidden_table(service: Service, who: str) -> None:
    api, operations = service.api, service.api.coordinator.operations
    release = asyncio.Event()

    async def work(_: Any) -> str:
        await release.wait()
        return "bvault.payroll"

    operations.wait_seconds = 0.0  # the next call is answered with an operation at once
    running = await operations.run("vacuum", TableName("bvault", "payroll"), work)
    commit_id = str(uuid7(api.coordinator.world.now_ms(), api.coordinator.world.rng))
    crawled = paths(api, commit_id, running.operation.id)  # type: ignore[union-attr]
    assert {"/v1/tables", "/metrics", "/v1/cache", "/v1/operations", "/", "/v1/tables/apps.events/files"} <= set(
        crawled
    )
    for path in crawled:
        if path.endswith("apps.events/events"):
            continue  # it never ends; what it says is the table's own
        answer = await api.get(path, headers=as_(who))
        assert answer.status_code != 500, (path, answer.text)
        service.check(answer, f"GET {path}")
        if any(f"/{name}" in path for name in (*HIDDEN, "bvault.none")):
            assert answer.status_code == 403, (path, answer.status_code)
    release.set()


async def test_a_page_has_as_many_tables_as_asked_for(service: Service) -> None:
    for limit in (1, 2, 3, 10):
        cursor, pages = None, []
        while True:
            query = {"limit": limit, **({"cursor": cursor} if cursor else {})}
            answer = await service.api.get("/v1/tables", params=query, headers=as_("reader"))
            service.check(answer, f"limit {limit}")
            pages.append([one["name"] for one in answer.json()["tables"]])
            cursor = answer.json()["next"]
            if cursor is None:
                break
        assert [name for page in pages for name in page] == list(SEEN)
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    hidden = await service.api.get("/v1/tables", params={"namespace": "bvault"}, headers=as_("reader"))
    assert hidden.json() == {"tables": [], "next": None}


async def test_metrics_have_series_of_visible_tables_only(service: Service) -> None:
    seen = (await service.api.get("/metrics", headers=as_("reader"))).text
    everything = (await service.api.get("/metrics", headers=as_("root"))).text
    shown = set(re.findall(r'tarnlog_queue_depth\{table="([^"]+)"\}', seen))
    assert shown == set(SEEN)
    assert set(re.findall(r'tarnlog_queue_depth\{table="([^"]+)"\}', everything)) == {*SEEN, *HIDDEN}
    assert "tarnlog_commits_waiting 18.0" in seen, "sums are of the whole service"


async def test_an_overlap_names_only_what_the_key_sees(service: Service) -> None:
    api = service.api
    place = "memory://warehouse/apps/shared"
    body = {"name": "bvault.placed", "schema": SCHEMA, "location": place}
    made = await api.post("/v1/tables", json=body, headers=as_("root"))
    assert made.status_code == 201, made.text
    service.secrets |= {made.json()["id"], "placed"}
    for path, more in (("/v1/tables", {"schema": SCHEMA}), ("/v1/tables/register", {})):
        for location in (place, f"{place}/inside"):
            wanted = {"name": "apps.mine", "location": location, **more}
            answer = await api.post(path, json=wanted, headers=as_("admin"))
            assert (answer.status_code, slug(answer)) == (409, "location-overlap")
            service.check(answer, path)
            assert "may not see" in answer.json()["detail"]
    own = {"name": "apps.mine", "schema": SCHEMA, "location": "memory://warehouse/apps/own"}
    assert (await api.post("/v1/tables", json=own, headers=as_("admin"))).status_code == 201
    again = await api.post("/v1/tables", json={**own, "name": "apps.other"}, headers=as_("admin"))
    assert "apps.mine" in again.json()["detail"]


async def test_a_name_that_the_key_does_not_see_answers_the_same_whether_it_exists_or_not(service: Service) -> None:
    def strip(answer: httpx.Response) -> Any:
        return answer.status_code, answer.json()

    for method, below in (("GET", ""), ("GET", "/files"), ("POST", "/vacuum"), ("DELETE", ""), ("PATCH", "")):
        exists = await service.api.request(method, f"/v1/tables/bvault.payroll{below}", headers=as_("admin"))
        missing = await service.api.request(method, f"/v1/tables/bvault.nothing{below}", headers=as_("admin"))
        assert strip(exists) == strip(missing)
        assert exists.status_code == 403
    created = {"name": "bvault.payroll", "schema": SCHEMA}
    assert strip(await service.api.post("/v1/tables", json=created, headers=as_("admin"))) == strip(
        await service.api.post("/v1/tables", json={**created, "name": "bvault.no"}, headers=as_("admin"))
    )


async def test_errors_of_the_catalog_name_nothing_hidden(service: Service) -> None:
    class Failing(MemoryStore):
        async def get(self, wanted: str, start: int = 0, length: int | None = None) -> bytes:
            if wanted.startswith("_catalog/bvault/"):
                raise StoreUnavailable(f"{wanted} does not answer", key=wanted)
            return await super().get(wanted, start, length)

    store = Failing("warehouse")
    store._objects, store._keys = service.api.store._objects, service.api.store._keys
    async with Api(KEYS, store=store) as api:
        seen = await api.get("/v1/tables", headers=as_("reader"))
        assert [one["name"] for one in seen.json()["tables"]] == list(SEEN), "what it does not see does not stop it"
        assert (await api.get("/v1/tables", headers=as_("root"))).status_code == 503
        service.check(await api.get("/", headers=as_("reader")), "the first page")


@pytest.mark.parametrize("name", ["_catalog.t", "_probe.t", "_x.t", "a._t", "_a._b"])
async def test_new_names_do_not_start_with_an_underscore(name: str) -> None:
    async with Api() as api:
        for path, more in (("/v1/tables", {"schema": SCHEMA}), ("/v1/tables/register", {"location": "memory://w/x"})):
            body = {"name": name, "location": "memory://warehouse/x", **more}
            answer = await api.post(path, json={**body, "location": "memory://warehouse/x"})
            assert (answer.status_code, slug(answer)) == (422, "table-name-invalid")
        assert await api.store.list("") == []


async def test_tables_that_were_named_so_before_are_served_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Api() as api:
        with monkeypatch.context() as before:
            before.setattr(TableName, "parse_new", TableName.parse)
            await api.create("_old.t")
        await api.append("f", table="_old.t")
        assert [one["name"] for one in (await api.get("/v1/tables?namespace=_old")).json()["tables"]] == ["_old.t"]
        assert (await api.get("/v1/tables/_old.t/files")).json()["files"][0]["path"] == "f"
        assert (await api.delete("/v1/tables/_old.t")).status_code == 204


@pytest.mark.parametrize("place", ["_catalog/x", "_probe", ".tarnlog", ".tarnlog/t"])
async def test_the_folders_of_the_service_are_no_locations(place: str) -> None:
    async with Api() as api:
        body = {"name": "db.t", "schema": SCHEMA, "location": f"memory://warehouse/{place}"}
        answer = await api.post("/v1/tables", json=body)
        assert (answer.status_code, slug(answer)) == (422, "location-not-allowed")


@pytest.mark.parametrize("operation", ["DROP", "REGISTER", "ERASE"])
async def test_a_commit_cannot_pass_for_an_operation_of_the_service(operation: str) -> None:
    """A commit named DROP ended the log of its table, with a key that may not drop."""
    async with Api() as api:
        await api.create()
        answer = await api.post("/v1/tables/db.t/commits", json={"actions": [add("f")], "operation": operation})
        assert (answer.status_code, slug(answer)) == (422, "commit-invalid")
        assert answer.json()["errors"][0]["pointer"] == "/operation"
        assert (await api.get("/v1/tables/db.t")).json()["version"] == 0
