"""The dashboard's pages: what they show, whom they are shown to, and that nothing in them is anybody's markup."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.api.dashboard import closed_tables, overview, table_pages
from tarnlog_server.ports.object_store import StoreUnavailable
from tarnlog_server.ports.telemetry import IndexStatus
from tarnlog_server.usecases.replicas import Replicas
from tests.api.conftest import SCHEMA, Api, add
from tests.api.pages import Page
from tests.usecases.unreliable_index import UnreliableIndex

MARKUP = """<script>alert("x")</script><img src=x onerror=alert(1)>'"&"""
PARTITIONED = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {"comment": MARKUP}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
        {"name": MARKUP, "type": "string", "nullable": True, "metadata": {}},
    ],
}


async def page(api: Api, path: str, status: int = 200, **headers: str) -> Page:
    answer = await api.get(path, headers=headers)
    assert answer.status_code == status, answer.text[:2000]
    return Page(answer)


async def test_an_empty_service_says_how_to_begin(api: Api) -> None:
    shown = await page(api, "/")
    assert "Ready" in shown.text
    assert "There are no tables yet" in shown.text
    assert shown.headings == ["h1", "h2", "h2"]


async def test_the_overview_tells_what_each_table_does(api: Api) -> None:
    await api.create("db.busy")
    await api.create("db.quiet")
    for number in range(3):
        await api.append(f"f{number}", table="db.busy")
    await api.post("/v1/tables/db.busy/checkpoint", json={})
    clash = {"actions": [add("g")], "readVersion": 1, "reads": {"wholeTable": True}, "isolation": "serializable"}
    conflict = await api.post("/v1/tables/db.busy/commits", json=clash)
    rule = conflict.json()["rule"]
    shown = await page(api, "/")
    assert "2 tables" in shown.text
    busy = shown.text.split("db.busy")[1].split("db.quiet")[0]
    assert f"{rule} 1" in busy
    assert re.search(r"[\d.]+ / [\d.]+ / [\d.]+ ms", busy), "latency percentiles"
    assert re.search(r"\d s, 0 versions ago", busy), "the state's age"
    assert re.search(r"[\d.]+/min|[\d.]+/s", busy), "the rate"
    assert "Commits to db.busy: 3 in the last 10 min, at most" in " ".join(shown.pictures)
    assert "Commits: 3 in the last 10 min" in " ".join(shown.pictures)
    assert "committed 3" in shown.text
    assert "versionsList" in shown.text
    assert re.search(r"tables \d+ 2 [\d.]+ % [\d.]+ KiB of 2.0 GiB", shown.text), "what open tables take"
    assert "when this process started" in shown.text


async def test_a_replica_that_is_not_ready_says_why(api: Api) -> None:
    api.readiness.checked("memory://warehouse", ("it does not create objects once <b>.",), 0)
    shown = await page(api, "/")
    assert "Not ready for writes" in shown.text
    assert "memory://warehouse: it does not create objects once <b>." in shown.text


async def test_the_index_and_the_other_replicas_are_told(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = await page(api, "/")
    assert "Index none storage answers alone" in alone.text
    assert "alone: every commit is written here" in alone.text

    class Behind:
        def status(self) -> IndexStatus:
            return IndexStatus("degraded", 2, 1700)

    monkeypatch.setattr(api.coordinator, "ingest", Behind())
    monkeypatch.setattr(Replicas, "role", "replica")
    shared = await page(api, "/")
    assert "Index degraded 1,700 versions behind in 2 tables" in shared.text
    assert "shares tables by leases, holds 0" in shared.text
    monkeypatch.setattr(Replicas, "role", "replica-cut-off")
    assert "cut off from the database" in (await page(api, "/")).text


async def test_a_table_is_shown_from_all_sides(api: Api) -> None:
    await api.create("db.t", schema=PARTITIONED, partitionColumns=["day"], description="All orders")
    for number in range(12):
        day = {"day": f"d{number % 3}"}
        action = add(f"f{number}", partitionValues=day, size=1000 * (number % 3 + 1), numRecords=5)
        answer = await api.post(
            "/v1/tables/db.t/commits", json={"actions": [action], "operation": "LOAD", "operationMetrics": {"rows": 5}}
        )
        assert answer.status_code == 201
    commit_id = answer.json()["commitId"]
    await api.post("/v1/tables/db.t/checkpoint", json={})
    await api.post("/v1/tables/db.t/skips", json={"path": "f1", "reason": "no footer", "operation": "MERGE"})
    shown = await page(api, "/dashboard/tables/db.t")
    for part in ("All orders", "memory://warehouse/", "avro-state", "Latest commits", "LOAD", commit_id):
        assert part in shown.text, part
    assert "Bytes by day, largest first, at version" in shown.text
    assert "d2 11.7 KiB 4 d1 7.8 KiB 4 d0 3.9 KiB 4" in shown.text
    assert "11.7 KiB" in shown.pictures
    assert "1 skipped file" in shown.text
    history = await page(api, "/dashboard/tables/db.t/history")
    assert history.text.count("LOAD") == 12
    assert "CREATE TABLE" in history.text
    assert '{"rows":5}' in history.text
    schema = await page(api, "/dashboard/tables/db.t/schema")
    assert "day partition 1 string yes" in schema.text
    assert "None is set" in schema.text
    files = await page(api, "/dashboard/tables/db.t/files?version=2")
    assert "Files of version 2" in files.text
    assert "f0 1000 B 5 day = d0 1970-01-01 00:00:00 f1 2.0 KiB" in files.text
    assert "f2" not in files.text
    skips = await page(api, "/dashboard/tables/db.t/skips")
    assert re.search(r"f1 no footer MERGE 1 [\d: -]+ 23 h 59 min left", skips.text), skips.text


async def test_another_partition_column_can_be_looked_at(api: Api) -> None:
    await api.create("db.t", schema=PARTITIONED, partitionColumns=["day", MARKUP])
    values = {"day": None, MARKUP: ""}
    await api.post("/v1/tables/db.t/commits", json={"actions": [add("f", partitionValues=values)]})
    first = await page(api, "/dashboard/tables/db.t")
    assert "Bytes by day" in first.text
    assert "null 1 B 1" in first.text
    other = await page(api, next(link for link in first.links if "by=%3Cscript" in link))
    assert f"Bytes by {MARKUP}" in other.text
    assert "empty 1 B 1" in other.text
    assert "is no partition column" in (await page(api, "/dashboard/tables/db.t?by=none", 422)).text


async def hostile(api: Api) -> None:
    """A table in which everything that can be text is markup."""
    partitioned: dict[str, Any] = {"schema": PARTITIONED, "partitionColumns": ["day"]}
    await api.create("db.t", description=MARKUP, properties={"note": MARKUP}, **partitioned)
    action = add(f"a{MARKUP}.parquet".replace("/", ""), partitionValues={"day": MARKUP})
    body = {
        "actions": [action],
        "operation": MARKUP,
        "operationParameters": {MARKUP: MARKUP},
        "operationMetrics": {MARKUP: MARKUP},
    }
    assert (await api.post("/v1/tables/db.t/commits", json=body)).status_code == 201
    skip = {"path": action["add"]["path"], "reason": MARKUP, "operation": MARKUP}
    assert (await api.post("/v1/tables/db.t/skips", json=skip)).status_code == 201


HOSTILE = [
    "/dashboard/tables/db.t",
    "/dashboard/tables/db.t/history",
    "/dashboard/tables/db.t/schema",
    "/dashboard/tables/db.t/files",
    "/dashboard/tables/db.t/skips",
    f"/dashboard/tables/db.t/plan?filter={quote(MARKUP)}",
    f"/dashboard/tables/db.t/plan?version={quote('<script>')}",
    f"/dashboard/tables/db.t/plan?show=why&filter={quote('day = ' + repr('x'))}",
    f"/?find={quote(MARKUP)}",
    f"/dashboard/tables/db.t?by={quote(MARKUP)}",
    f"/dashboard/tables/{quote('<script>alert(1)')}",
    f"/?{quote(MARKUP, safe='')}=1",
]


@pytest.mark.parametrize("path", HOSTILE)
async def test_text_is_never_markup(api: Api, path: str) -> None:
    """Page fails on any handler, inline script or tag that does not match."""
    await hostile(api)
    answer = await api.get(path)
    shown = Page(answer)
    assert "<script>" not in answer.text
    assert "<img src=x" not in answer.text
    assert "&lt;script" in answer.text, shown.text


async def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(api: Api) -> None:
    await hostile(api)
    operations = {
        f"/docs#/{operation['tags'][0]}/{operation['operationId']}"
        for methods in (await api.get("/openapi.json")).json()["paths"].values()
        for operation in methods.values()
    }
    todo, seen = ["/"], {"/"}
    while todo:
        at = todo.pop()
        answer = await api.get(at)
        assert answer.status_code == 200, at
        shown = Page(answer)
        assert set(shown.inputs) <= shown.labels, "every field has a label"
        assert shown.headings[0] == "h1"
        for link in {*shown.links, *shown.loaded}:
            if link.startswith("/docs#"):
                assert link in operations, link
            elif not link.startswith("#"):
                link = str(answer.url.join(link).raw_path.decode())
                assert urlsplit(link).netloc == ""
                if link not in seen:
                    seen.add(link)
                    if link.startswith("/dashboard/tables/"):
                        todo.append(link)
                    else:
                        assert (await api.get(link)).status_code == 200, link
    assert {"/dashboard/tables/db.t/plan", "/dashboard/tables/db.t/skips", "/docs", "/metrics"} <= seen


async def test_pages_are_sent_with_strict_headers(api: Api, table: str) -> None:
    for path in ("/", "/dashboard/tables/db.t", "/dashboard/tables/db.none"):
        answer = await api.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"]
    assert (await api.head("/")).status_code == 200
    script = await api.get("/dashboard/assets/dashboard.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert (await api.get("/dashboard/assets/../pages.py")).status_code == 404
    assert (await api.get("/dashboard/assets/%2e%2e/pages.py")).status_code == 404


@pytest.mark.parametrize(
    "path, status, says",
    [
        ("/dashboard/tables/db.none", 404, "there is no table db.none"),
        ("/dashboard/tables/db.none/history", 404, "there is no table db.none"),
        ("/dashboard/tables/none", 422, "is not a table name"),
        ("/dashboard/nothing", 404, "there is no such page"),
        ("/dashboard/", 404, "there is no such page"),
        ("/?nothing=1", 422, "there is no such query parameter"),
        ("/dashboard/tables/db.t/files?version=99", 404, "version 99 does not exist"),
        ("/dashboard/tables/db.t/files?cursor=x", 422, "cursor"),
        ("/dashboard/tables/db.t/skips?start=-1", 422, "start"),
    ],
)
async def test_what_goes_wrong_is_a_page_too(api: Api, table: str, path: str, status: int, says: str) -> None:
    shown = await page(api, path, status)
    assert says in shown.text
    assert "/" in shown.links


async def test_a_fault_of_ours_is_a_page(api: Api, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(api.coordinator, "cache_stats", fail)
    assert "its log says more under request id" in (await page(api, "/", 500)).text


async def test_nothing_can_be_sent_to_a_page(api: Api, table: str) -> None:
    for path in ("/", "/dashboard/tables/db.t"):
        answer = await api.post(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_no_route_of_the_api_is_shadowed(api: Api, table: str) -> None:
    for path in ("/v1/tables", "/v1/tables/db.t", "/v1/cache", "/v1/health/ready", "/openapi.json"):
        assert (await api.get(path)).headers["content-type"] == "application/json", path
    assert (await api.get("/nothing")).headers["content-type"] == "application/problem+json"
    assert (await api.get("/metrics")).headers["content-type"].startswith("text/plain")


async def walked(api: Api, path: str, word: str) -> list[Page]:
    """Every page of a listing."""
    pages = [await page(api, path)]
    while True:
        link = next((link for link in pages[-1].links if f"{word}=" in link), None)
        if link is None:
            return pages
        pages.append(await page(api, link if link.startswith("/") else path + link))


async def test_long_listings_come_in_pages(api: Api, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_pages, "HISTORY_A_PAGE", 4)
    monkeypatch.setattr(table_pages, "FILES_A_PAGE", 3)
    monkeypatch.setattr(table_pages, "SKIPS_A_PAGE", 2)
    monkeypatch.setattr(overview, "TABLES_A_PAGE", 2)
    for number in range(7):
        await api.append(f"file-{number}")
        await api.create(f"db.more{number}")
    for number in range(5):
        skip = {"path": f"file-{number}", "reason": "r", "operation": "o"}
        await api.post(f"{table}/skips", json=skip)
    base = "/dashboard/tables/db.t"
    history = await walked(api, f"{base}/history", "cursor")
    assert [len(re.findall("WRITE|SKIP FILE|CREATE", one.text)) for one in history] == [4, 4, 4, 1]
    await api.append("later")
    files = await walked(api, f"{base}/files?version=7", "cursor")
    names = [name for one in files for name in re.findall(r"file-\d|later", one.text)]
    assert names == [f"file-{number}" for number in range(7)]
    skips = await walked(api, f"{base}/skips", "start")
    assert [name for one in skips for name in re.findall(r"file-\d", one.text)] == [f"file-{n}" for n in range(5)]
    tables = await walked(api, "/", "after")
    names = [name for one in tables for name in re.findall(r"db\.more\d|db\.t\b", one.text)]
    assert names == [*(f"db.more{number}" for number in range(7)), "db.t"]
    found = await page(api, "/?find=MORE3")
    assert "1 table with “MORE3” in the name" in found.text
    assert found.inputs["find"]["value"] == "MORE3"


async def test_looking_on_costs_the_store_little(api: Api, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.append("a")
    calls: list[str] = []
    for name in ("list", "get", "head"):
        real = getattr(MemoryStore, name)

        async def counted(*given: Any, _real: Any = real, _name: str = name, **named: Any) -> Any:
            calls.append(_name)
            return await _real(*given, **named)

        monkeypatch.setattr(MemoryStore, name, counted)
    for _ in range(20):
        await page(api, "/")
    assert calls.count("list") <= 2
    calls.clear()
    for _ in range(20):
        await page(api, "/dashboard/tables/db.t")
    assert len(calls) <= 10


async def test_a_view_opens_a_few_tables_and_pushes_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Api() as writer, Api() as reader:
        for number in range(8):
            await writer.create(f"db.t{number}")
        tables = reader.coordinator.open_tables
        monkeypatch.setattr(reader.coordinator.catalog, "_store", writer.store)
        object.__setattr__(reader.coordinator.roots.warehouse, "store", writer.store)
        first = await page(reader, "/")
        assert len(tables.opened()) == closed_tables.OPENED_A_VIEW
        assert first.text.count("not open here yet") == 8 - closed_tables.OPENED_A_VIEW
        tables.max_open = 5
        for _ in range(4):
            await page(reader, "/")
        assert len(tables.opened()) == 5
        tables.max_open, tables.memory.max_bytes = 100, 2 * sum(table.nbytes for table in tables.opened()) - 1
        await page(reader, "/")
        assert len(tables.opened()) == 5
        tables.memory.max_bytes *= 4
        await page(reader, "/")
        assert len(tables.opened()) == 8


async def test_what_the_index_knows_is_shown_without_opening_anything() -> None:
    index = UnreliableIndex()
    async with Api(index=index) as api:
        ingest = api.coordinator.ingest
        assert ingest is not None
        await ingest.guard.prepared()
        for name in ("db.one", "db.two"):
            await api.create(name)
            await api.append("a", "b", "c", table=name)
        await ingest.flush()
        await api.coordinator.open_tables.close(1.0)
        shown = await page(api, "/")
        assert shown.text.count("not open here, from the index") == 2
        assert "db.one 1 3 3 B" in shown.text
        assert api.coordinator.open_tables.opened() == []
        index.down = True
        fallen_back = await page(api, "/")
        assert "from the index" not in fallen_back.text
        assert "db.one 1 3 3 B" in fallen_back.text
        assert len(api.coordinator.open_tables.opened()) == 2


async def test_a_table_that_cannot_be_opened_says_so(monkeypatch: pytest.MonkeyPatch, api: Api, table: str) -> None:
    async def broken(*_: object) -> None:
        raise ProblemError("log-corrupt", "restore <object> 3.json")

    await api.coordinator.open_tables.close(1.0)
    monkeypatch.setattr(api.coordinator.open_tables, "get", broken)
    assert "restore <object> 3.json" in (await page(api, "/")).text
    assert "restore <object> 3.json" in (await page(api, "/dashboard/tables/db.t", 500)).text


async def test_without_its_store_the_service_still_shows_itself(
    api: Api, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object, **__: object) -> None:
        raise StoreUnavailable("no route", key="x")

    monkeypatch.setattr(MemoryStore, "list", down)
    shown = await page(api, "/")
    assert "The catalog cannot be read now" in shown.text
    assert "db.t" in shown.text


async def test_large_pages_are_compressed(api: Api, table: str) -> None:
    answer = await api.get("/", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert Page(answer).status == 200
    assert "content-encoding" not in (await api.get("/", headers={"accept-encoding": "identity"})).headers


async def test_unicode_that_is_none_does_not_break_a_page(api: Api) -> None:
    assert (await api.get("/?find=%ff")).status_code == 422
    await api.create("db.t", schema=SCHEMA, description="half a pair \ud83d".encode("utf-8", "replace").decode())
    assert "half a pair" in (await page(api, "/dashboard/tables/db.t")).text
