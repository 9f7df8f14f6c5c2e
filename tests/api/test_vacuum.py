"""Vacuum over HTTP: what is answered, what is refused, who may override the minimum."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest
import structlog

from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey, Scope
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tests.api.conftest import Api, pointers, slug

DAY_MS = 24 * 3600 * 1000


async def create(api: Api, **more: Any) -> str:
    """A table that was created 1000 days ago: what is older than its table, vacuum leaves alone."""

    def long_ago() -> int:
        return time.time_ns() // 1_000_000 - 1000 * DAY_MS

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api.coordinator.world, "now_ms", long_ago)
        patched.setattr(api.store, "_now_ms", long_ago)
        await api.create(**more)
    return "/v1/tables/db.t"


@pytest.fixture
async def table(api: Api) -> str:
    return await create(api)


async def write(api: Api, path: str, days: float) -> str:
    """A data file of the table that was written that many days ago; its key."""
    table = (await api.get("/v1/tables/db.t")).json()
    key = str(table["location"]).removeprefix("memory://warehouse/") + "/" + path
    store: MemoryStore = api.store
    await store.put(key, b"data")
    data, now = store._objects[key]
    store._objects[key] = (data, now - int(days * DAY_MS))
    return key


async def there(api: Api) -> set[str]:
    infos = await api.store.list("db/")
    return {info.key.split("/", 2)[2] for info in infos if "_transaction_log" not in info.key}


async def test_a_dry_run_is_the_default_and_deleting_is_asked_for(api: Api, table: str) -> None:
    for path in ("live", "orphan"):
        await write(api, path, 8)
    await write(api, "young", 6)
    await api.append("live")
    looked = await api.post(f"{table}/vacuum")
    assert looked.status_code == 200, looked.text
    told = looked.json()
    assert told.pop("durationMs") >= 0
    [example] = told.pop("examples")
    assert (example["path"], example["size"]) == ("orphan", 4)
    assert told == {
        "tableName": "db.t",
        "status": "dry-run",
        "orphanedFilesFound": 1,
        "orphanedFilesDeleted": 0,
        "sizeBytesFound": 4,
        "sizeBytesDeleted": 0,
        "retentionHours": 168.0,
        "dryRun": True,
        "message": "1 files would be deleted; send dryRun: false to delete them",
        "kept": {"referenced": 1, "young": 1, "inSession": 0, "notData": 0, "otherTable": 0, "olderThanTable": 0},
    }
    assert await there(api) == {"live", "orphan", "young"}
    deleted = (await api.post(f"{table}/vacuum", json={"dryRun": False, "retentionHours": 24})).json()
    assert (deleted["orphanedFilesDeleted"], deleted["sizeBytesDeleted"], deleted["retentionHours"]) == (2, 8, 24.0)
    assert await there(api) == {"live"}


@pytest.mark.parametrize(
    "body, pointer",
    [
        ({"dryRun": "no"}, "/dryRun"),
        ({"dryRun": False, "retentionHours": 23}, "/retentionHours"),
        ({"dryRun": False, "retentionHours": -1}, "/retentionHours"),
        ({"dryRun": False, "retentionHours": "1"}, "/retentionHours"),
        ({"dryRun": False, "force": True}, "/force"),
    ],
)
async def test_what_does_not_fit_is_refused(api: Api, table: str, body: dict[str, Any], pointer: str) -> None:
    await write(api, "orphan", 100)
    answer = await api.post(f"{table}/vacuum", json=body)
    assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert pointers(answer) == [pointer]
    assert await there(api) == {"orphan"}


def key(name: str, scope: Scope, namespaces: str | None = None) -> ApiKey:
    return ApiKey(id=name, sha256=hashlib.sha256(b"s").hexdigest(), scope=scope, namespaces=namespaces)


@pytest.mark.parametrize(
    "who, override, status",
    [("reads", False, 403), ("writes", False, 200), ("writes", True, 403), ("rules", True, 200), ("other", True, 403)],
)
async def test_only_an_admin_overrides_the_minimum(who: str, override: bool, status: int) -> None:
    keys = (key("reads", "read"), key("writes", "write"), key("rules", "admin"), key("other", "admin", "other"))
    async with Api(ApiSettings(keys=keys), headers={"authorization": "Bearer rules.s"}) as api:
        await create(api)
        await write(api, "orphan", 2)
        hours = 1 if override else 24
        body = {"dryRun": False, "retentionHours": hours, "overrideMinimum": override}
        answer = await api.post("/v1/tables/db.t/vacuum", json=body, headers={"authorization": f"Bearer {who}.s"})
        assert answer.status_code == status, answer.text
        assert await there(api) == (set() if status == 200 else {"orphan"})


async def test_a_vacuum_is_audited(api: Api, table: str) -> None:
    await write(api, "orphan", 100)
    with structlog.testing.capture_logs() as logs:
        await api.post(f"{table}/vacuum", json={"dryRun": False})
    [line] = [line for line in logs if line["event"] == "audit"]
    assert (line["what"], line["dry_run"], line["found"], line["deleted"]) == ("vacuum", False, 1, 1)


def test_the_metrics_of_vacuum() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.vacuum_ended("success", 0.5, 3, 300)
    telemetry.vacuum_ended("failed", 0.5, 1, 100)
    lines = telemetry.exposition().decode().splitlines()
    assert 'tarnlog_vacuums_total{outcome="success"} 1.0' in lines
    assert "tarnlog_vacuum_files_deleted_total 4.0" in lines
    assert "tarnlog_vacuum_bytes_deleted_total 400.0" in lines
    assert "tarnlog_vacuum_seconds_sum 1.0" in lines
