"""The service about itself, and bodies as they arrive: limits, readiness, metrics, documentation without internet."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.bodies import BodyLimits
from tarnlog_server.telemetry.metrics import SHOWN_QUEUES, PrometheusTelemetry
from tarnlog_server.usecases.committer import CommitterSettings
from tests.api.conftest import Api, add, slug

JSON = {"content-type": "application/json"}
SMALL = ApiSettings(limits=BodyLimits(sent=2000, inflated=5000))


@pytest.fixture
async def small() -> AsyncIterator[Api]:
    async with Api(SMALL) as api:
        await api.create()
        yield api


async def test_a_body_that_says_it_is_too_large(small: Api) -> None:
    answer = await small.post("/v1/tables/db.t/commits", content=b" " * 2001, headers=JSON)
    assert (answer.status_code, slug(answer)) == (413, "commit-too-large")
    other = await small.post("/v1/tables", content=b" " * 2001, headers=JSON)
    assert (other.status_code, slug(other)) == (413, "request-too-large")
    assert answer.headers["connection"] == "close"


async def test_a_body_that_does_not_say_so(small: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 100

    answer = await small.post("/v1/tables/db.t/commits", content=chunks(), headers=JSON)
    assert (answer.status_code, slug(answer)) == (413, "commit-too-large")


async def test_a_body_in_chunks(small: Api) -> None:
    body = json.dumps({"actions": [add("a")]}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    assert (await small.post("/v1/tables/db.t/commits", content=chunks(), headers=JSON)).status_code == 201


async def test_a_gzip_bomb(small: Api) -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    assert len(bomb) < 2000
    answer = await small.post("/v1/tables/db.t/commits", content=bomb, headers={"content-encoding": "gzip", **JSON})
    assert (answer.status_code, slug(answer)) == (413, "commit-too-large")
    many = gzip.compress(b" " * 4000) * 30
    assert len(many) < 2000
    answer = await small.post("/v1/tables/db.t/commits", content=many, headers={"content-encoding": "gzip", **JSON})
    assert answer.status_code == 413


async def test_a_body_of_gzip_members_without_end(api: Api) -> None:
    await api.create()
    headers = {"content-encoding": "gzip", **JSON}
    nothing = gzip.compress(b"") * 300_000
    started = time.monotonic()
    answer = await api.post("/v1/tables/db.t/commits", content=nothing, headers=headers)
    assert (answer.status_code, slug(answer)) == (400, "bad-request")
    assert time.monotonic() - started < 5, "copying what follows each member would take minutes"


async def test_a_commit_above_the_tables_own_limit(api: Api) -> None:
    await api.create(properties={"commit.maxBytes": "2000"})
    actions = [add(f"file-{number}") for number in range(100)]
    answer = await api.post("/v1/tables/db.t/commits", json={"actions": actions})
    assert (answer.status_code, slug(answer)) == (413, "commit-too-large")


async def test_a_full_queue_says_so() -> None:
    async with Api(committing=CommitterSettings(max_waiting_bytes=10)) as api:
        await api.create()
        answer = await api.post("/v1/tables/db.t/commits", json={"actions": [add("a")]})
        assert (answer.status_code, slug(answer)) == (429, "too-many-waiting")
        assert answer.headers["retry-after"] == "1"
        assert (await api.get("/v1/tables/db.t")).json()["version"] == 0


async def test_a_store_that_breaks_its_promises_gets_no_writes(api: Api, table: str) -> None:
    await api.append("a")
    api.readiness.checked("memory://warehouse", ("Conditional create is not atomic.",), 0)
    ready = await api.get("/v1/health/ready")
    assert (ready.status_code, slug(ready)) == (503, "not-ready")
    refused = await api.post(f"{table}/commits", json={"actions": [add("b")]})
    assert (refused.status_code, slug(refused)) == (503, "not-ready")
    assert "Conditional create is not atomic." in refused.json()["detail"]
    assert "memory://warehouse" in refused.json()["detail"]
    assert refused.headers["retry-after"]
    assert (await api.get("/v1/health/live")).status_code == 200
    assert (await api.get(f"{table}/files")).status_code == 200
    api.readiness.checked("memory://warehouse", (), 0)
    assert (await api.get("/v1/health/ready")).json()["status"] == "ready"
    await api.append("b")


@pytest.mark.parametrize("offset, ready", [(59_000, True), (-59_000, True), (61_000, False), (-61_000, False)])
async def test_a_clock_that_is_off(api: Api, offset: int, ready: bool) -> None:
    api.readiness.checked("memory://warehouse", (), offset)
    answer = await api.get("/v1/health/ready")
    assert (answer.status_code == 200) is ready
    if not ready:
        assert "clock" in answer.json()["detail"]
        assert ("behind" if offset > 0 else "ahead") in answer.json()["detail"]


async def test_a_service_that_shuts_down(api: Api, table: str) -> None:
    api.readiness.closed.set()
    for answer in (
        await api.get(table),
        await api.post(f"{table}/commits", json={}),
        await api.get("/v1/health/ready"),
    ):
        assert (answer.status_code, slug(answer)) == (503, "shutting-down")
        assert answer.headers["retry-after"]
    assert (await api.get("/v1/health/live")).status_code == 200


async def test_a_service_that_shuts_down_hears_a_client_out(api: Api, table: str) -> None:
    """The answer ends the connection; bytes that come later would turn it into a reset."""
    api.readiness.closed.set()
    heard: list[int] = []

    async def in_parts() -> AsyncIterator[bytes]:
        for number in range(3):
            heard.append(number)
            yield b"{" * 1000

    answer = await api.post(f"{table}/commits", content=in_parts())
    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert heard == [0, 1, 2]


def test_metrics() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.commit_answered("db.t", "committed", 0.01)
    telemetry.commit_answered("db.t", "committed", 0.01)
    telemetry.conflict("db.t", "append")
    telemetry.batch_written(3, 5, 100)
    telemetry.phase("putting", 0.02)
    telemetry.slot_lost()
    telemetry.put_hedged()
    telemetry.cache_lookup("files", True)
    telemetry.storage("put_if_absent", "ok", 0.01, 100)
    telemetry.storage("get", "missing", 0.01, 0)
    for number in range(SHOWN_QUEUES + 10):
        telemetry.queue_depth(f"db.t{number}", number + 1)
    telemetry.queue_depth("db.t0", 0)
    telemetry.watch_open_tables(lambda: 7)
    text = telemetry.exposition().decode()
    for line in (
        'tarnlog_commits_total{outcome="committed"} 2.0',
        "tarnlog_commit_seconds_count 2.0",
        'tarnlog_commit_phase_seconds_count{phase="putting"} 1.0',
        'tarnlog_conflicts_total{rule="append"} 1.0',
        "tarnlog_batch_commits_sum 3.0",
        'tarnlog_storage_requests_total{code="ok",op="put_if_absent"} 1.0',
        'tarnlog_storage_requests_total{code="missing",op="get"} 1.0',
        'tarnlog_storage_seconds_count{op="get"} 1.0',
        'tarnlog_cache_lookups_total{cache="files",result="hit"} 1.0',
        "tarnlog_slots_lost_total 1.0",
        "tarnlog_puts_hedged_total 1.0",
        "tarnlog_open_tables 7.0",
        'tarnlog_build_info{version="0.1.0"} 1.0',
    ):
        assert line in text.splitlines(), line
    depths = re.findall(r'^tarnlog_queue_depth\{table="([^"]+)"\}', text, re.MULTILINE)
    assert len(depths) == SHOWN_QUEUES
    assert "db.t0" not in depths
    assert f"db.t{SHOWN_QUEUES + 9}" in depths


async def test_the_documentation_needs_no_internet(api: Api) -> None:
    page = await api.get("/docs")
    assert page.status_code == 200
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']|url: ["']([^"']+)["']""", page.text)
    links = [one or other for one, other in loaded]
    assert len(links) >= 4
    for link in links:
        assert link.startswith("/"), link
        assert not link.startswith("//"), link
        assert (await api.get(link)).status_code == 200, link
    assert not re.findall(r"https?://", page.text)


async def test_swagger_is_a_version_that_reads_the_document(api: Api) -> None:
    """OpenAPI 3.1 needs Swagger UI 5: an older one draws an error in the place of the operations."""
    assert (await api.get("/openapi.json")).json()["openapi"].startswith("3.1.")
    bundle = (await api.get("/docs/assets/swagger-ui-bundle.js")).text
    version = re.search(r'PACKAGE_VERSION:"(\d+)\.', bundle)
    assert version is not None
    assert int(version[1]) >= 5
    assert '"/openapi.json"' in (await api.get("/docs/assets/start.js")).text


async def test_files_beside_the_assets_stay_closed(api: Api) -> None:
    for path in ("/docs/assets/../__init__.py", "/docs/assets/%2e%2e/__init__.py", "/docs/assets/none.js"):
        assert (await api.get(path)).status_code == 404


async def test_every_operation_is_described(api: Api) -> None:
    document = (await api.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["operationId"], where
            assert operation["summary"], where
            named = set(re.findall(r"\{(\w+)\}", path))
            assert {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"} == named, where
            statuses = set(operation["responses"])
            assert "500" in statuses, where
            assert "422" in statuses, where
            if not path.startswith("/v1/health"):
                assert {"401", "403"} <= statuses, where
            if method in ("post", "patch"):
                assert "example" in operation["requestBody"]["content"]["application/json"], where
                assert {"400", "413", "415", "503"} <= statuses, where


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if "$ref" in node else set()
        return found.union(*(references(value) for value in node.values()))
    return set().union(*(references(item) for item in node)) if isinstance(node, list) else set()


def test_the_committed_document_is_whole() -> None:
    from tests.api.test_openapi_drift import COMMITTED

    document = yaml.safe_load(COMMITTED.read_text())
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


async def test_no_answer_is_taken_for_what_it_does_not_say_it_is(api: Api, table: str) -> None:
    for method, path in (
        *(("GET", path) for path in ("/", "/docs", "/docs/assets/swagger-ui.css", "/openapi.json", "/metrics", table)),
        *(("GET", path) for path in ("/nowhere", "/v1/health/ready", "/v1/tables/<script>", "/dashboard/tables/no.t")),
        *(("POST", "/v1/tables"), ("PUT", "/v1/tables")),
    ):
        answer = await api.request(method, path)
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path
    for path in ("/", "/docs"):
        assert "frame-ancestors 'none'" in (await api.get(path)).headers["content-security-policy"]
