"""The index over HTTP: rebuilt on demand, told by readiness and metrics, and never in the way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.conftest import SCHEMA, Api, slug
from tests.usecases.unreliable_index import UnreliableIndex


@pytest_asyncio.fixture
async def indexed() -> AsyncIterator[tuple[Api, UnreliableIndex]]:
    index = UnreliableIndex()
    async with Api(index=index) as api:
        ingest = api.coordinator.ingest
        assert ingest is not None
        api.telemetry.watch_index(ingest.status)
        await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA})
        yield api, index
        await api.coordinator.close(0)


async def test_an_index_is_rebuilt(indexed: tuple[Api, UnreliableIndex]) -> None:
    api, index = indexed
    for name in ("a", "b", "c"):
        await api.append(name)
    answer = await api.post("/v1/tables/db.t/rebuild")
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert (made["status"], made["firstVersion"], made["lastVersion"], made["versions"]) == ("success", 0, 3, 4)
    (rows,) = index.rows.values()
    assert f"{rows.content:x}" == made["contentHash"]
    assert (await api.post("/v1/tables/db.t/rebuild", json={})).json() == made


async def test_a_rebuild_says_what_stands_in_its_way(indexed: tuple[Api, UnreliableIndex]) -> None:
    api, index = indexed
    index.down = True
    answer = await api.post("/v1/tables/db.t/rebuild")
    assert (answer.status_code, slug(answer)) == (503, "index-unavailable")
    assert answer.headers["retry-after"]
    assert (await api.post("/v1/tables/db.t/rebuild", json={"all": True})).status_code == 422
    assert slug(await api.post("/v1/tables/no.table/rebuild")) == "table-not-found"


async def test_without_an_index_a_rebuild_is_refused_and_readiness_says_off(api: Api, table: str) -> None:
    assert slug(await api.post(f"{table}/rebuild")) == "index-unavailable"
    assert (await api.get("/v1/health/ready")).json()["index"] == "off"


async def test_readiness_and_metrics_tell_and_do_not_fail(indexed: tuple[Api, UnreliableIndex]) -> None:
    api, index = indexed
    ingest = api.coordinator.ingest
    assert ingest is not None
    assert (await api.get("/v1/health/ready")).json()["index"] == "starting"
    await api.append("a")
    assert "tarnlog_index_waiting_tables 1.0" in api.telemetry.exposition().decode()
    await ingest.flush()
    assert (await api.get("/v1/health/ready")).json()["index"] == "ready"
    assert "tarnlog_index_ready 1.0" in api.telemetry.exposition().decode()
    assert "tarnlog_index_versions_written_total 2.0" in api.telemetry.exposition().decode()
    index.down = True
    await api.post("/v1/tables/db.t/rebuild")
    ready = await api.get("/v1/health/ready")
    assert (ready.status_code, ready.json()["index"]) == (200, "degraded")
    shown = api.telemetry.exposition().decode()
    assert "tarnlog_index_ready 0.0" in shown
    assert 'tarnlog_index_errors_total{kind="forget"} 1.0' in shown
    assert (await api.append("b"))["version"] == 2
