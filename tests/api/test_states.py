"""States over HTTP, and the background job that writes them: what is told, what is refused, what a restart uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from tarnlog_server.core.state_plan import Reason
from tarnlog_server.jobs import keep_states as keeping
from tarnlog_server.jobs import supervised as supervision
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tarnlog_server.usecases import cleanup as cleaning
from tarnlog_server.usecases.open_tables import OpenTable
from tests.api.conftest import SCHEMA, Api, add, pointers, slug
from tests.service_process import ServiceProcess
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create

Start = Callable[..., ServiceProcess]


async def test_a_checkpoint_and_what_is_told_of_it(api: Api, table: str) -> None:
    before = (await api.get(f"{table}/state")).json()
    assert (before["status"], before["format"], before["version"], before["numFiles"]) == ("none", None, None, 0)
    await api.append("a", "b")
    written = await api.post(f"{table}/checkpoint")
    assert written.status_code == 200, written.text
    assert written.json() == {
        "tableName": "db.t",
        "status": "success",
        "checkpointVersion": 1,
        "numActions": 4,
        "numFiles": 2,
        "protocolVersion": 4,
        "isMultiPart": False,
    }
    assert (await api.get(f"{table}/state")).json() == {
        "tableName": "db.t",
        "format": "avro-state",
        "version": 1,
        "numFiles": 2,
        "numManifests": 1,
        "numTombstones": 0,
        "tombstoneRatio": 0.0,
        "totalBytes": 2,
        "needsCompaction": False,
        "status": "ours",
    }


@pytest.mark.parametrize(
    "wanted, told, left",
    [("avro", "avro-state", "_manifest.json"), ("json", "json", "checkpoint.json"), ("parquet", "parquet", ".parquet")],
)
async def test_every_format_lies_in_storage(api: Api, table: str, wanted: str, told: str, left: str) -> None:
    await api.append("a")
    answer = await api.post(f"{table}/checkpoint", json={"format": wanted})
    assert (answer.status_code, answer.json()["checkpointVersion"]) == (200, 1)
    assert (await api.get(f"{table}/state")).json()["format"] == told
    assert any(info.key.endswith(left) for info in await api.store.list("db/"))


async def test_the_format_of_the_table_is_the_default(api: Api) -> None:
    await api.create("db.p", properties={"state.format": "parquet"})
    assert (await api.post("/v1/tables/db.p/checkpoint", json={})).status_code == 200
    assert (await api.get("/v1/tables/db.p/state")).json()["format"] == "parquet"


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "none"])
async def test_every_codec_that_may_be_set_can_be_written(api: Api, codec: str) -> None:
    await api.create("db.p", properties={"state.format": "parquet", "checkpoint.compression": codec})
    assert (await api.post("/v1/tables/db.p/checkpoint")).status_code == 200


async def test_sizes_whose_sum_no_column_holds(api: Api, table: str) -> None:
    huge = [add(path, size=2**63 - 1) for path in ("a", "b")]
    assert (await api.post(f"{table}/commits", json={"actions": huge})).status_code == 201
    for wanted in ("avro", "json", "parquet"):
        written = await api.post(f"{table}/checkpoint", json={"format": wanted})
        assert written.status_code == 200, (wanted, written.text)
        told = (await api.get(f"{table}/state")).json()
        assert told["totalBytes"] == 2 * (2**63 - 1)


async def test_a_compaction_clears_tombstones(api: Api, table: str) -> None:
    await api.append(*(f"f{number}" for number in range(20)))
    await api.post(f"{table}/checkpoint")
    gone = {"remove": {"path": "f3", "dataChange": True}}
    removed = await api.post(f"{table}/commits", json={"actions": [gone], "readVersion": 1})
    assert removed.status_code == 201, removed.text
    assert (await api.post(f"{table}/checkpoint")).status_code == 200
    assert (await api.get(f"{table}/state")).json()["numTombstones"] == 1
    compacted = await api.post(f"{table}/compact", json={})
    assert (compacted.status_code, compacted.json()["numFiles"]) == (200, 19)
    after = (await api.get(f"{table}/state")).json()
    assert (after["numTombstones"], after["numManifests"], after["numFiles"]) == (0, 1, 19)


@pytest.mark.parametrize(
    "path, body, pointer",
    [
        ("checkpoint", {"format": "orc"}, "/format"),
        ("checkpoint", {"format": 1}, "/format"),
        ("checkpoint", {"colour": "red"}, "/colour"),
        ("compact", {"format": "avro"}, "/format"),
        ("compact?format=avro", {}, "/format"),
        ("checkpoint", [], ""),
        ("cleanup", {"dryRun": "yes"}, "/dryRun"),
        ("cleanup", {"dry_run": True}, "/dry_run"),
    ],
)
async def test_what_does_not_fit_is_refused(api: Api, table: str, path: str, body: Any, pointer: str) -> None:
    answer = await api.post(f"{table}/{path}", json=body)
    assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert pointers(answer) == [pointer]
    assert (await api.get(f"{table}/state")).json()["status"] == "none"


async def test_there_is_no_such_table(api: Api) -> None:
    for method, path in (("POST", "checkpoint"), ("POST", "compact"), ("POST", "cleanup"), ("GET", "state")):
        answer = await api.request(method, f"/v1/tables/db.nothing/{path}")
        assert (answer.status_code, slug(answer)) == (404, "table-not-found")


async def test_a_read_only_table_gets_no_state(api: Api, table: str) -> None:
    await api.append("a")
    for info in await api.store.list("db/"):
        copy = "copies/one/_transaction_log/" + info.key.split("/_transaction_log/")[1]
        await api.store.put(copy, await api.store.get(info.key))
    place = {"name": "db.copy", "location": "memory://warehouse/copies/one"}
    assert (await api.post("/v1/tables/register", json=place)).status_code == 201
    before = [info.key for info in await api.store.list("copies/")]
    for path in ("checkpoint", "compact", "cleanup"):
        answer = await api.post(f"/v1/tables/db.copy/{path}")
        assert (answer.status_code, slug(answer)) == (409, "table-read-only")
    assert (await api.get("/v1/tables/db.copy/state")).json()["status"] == "none"
    assert [info.key for info in await api.store.list("copies/")] == before


async def test_writing_a_state_is_audited(api: Api, table: str) -> None:
    with structlog.testing.capture_logs() as logs:
        await api.post(f"{table}/checkpoint")
        await api.post(f"{table}/compact")
        await api.get(f"{table}/state")
    lines = [line for line in logs if line["event"] == "audit"]
    assert [(line["what"], line["table"], line["outcome"], line["version"]) for line in lines] == [
        ("checkpoint", "db.t", "done", 0),
        ("compact", "db.t", "done", 0),
    ]


async def test_a_cleanup_tells_what_it_did(api: Api, table: str) -> None:
    await api.append("a")
    assert (await api.post(f"{table}/checkpoint")).status_code == 200
    expected = {
        "tableName": "db.t",
        "status": "success",
        "checkpointVersion": 1,
        "versionsDeleted": 0,
        "checkpointsDeleted": 0,
        "statesDeleted": 0,
        "manifestsDeleted": 0,
        "filesPreserved": 4,  # two versions, a state, a manifest
        "floor": 0,
        "message": "the floor stays: no version is older than the log's retention",
    }
    with structlog.testing.capture_logs() as logs:
        done = await api.post(f"{table}/cleanup")
        said = await api.post(f"{table}/cleanup", json={"dryRun": True})
    assert (done.status_code, done.json()) == (200, expected)
    assert said.json() == {**expected, "status": "dry-run"}
    lines = [line for line in logs if line["event"] == "audit"]
    assert [(line["what"], line["outcome"], line["floor"]) for line in lines] == [
        ("cleanup", "success", 0),
        ("cleanup", "dry-run", 0),
    ]


# The background job


async def test_a_crash_of_a_job_is_told_and_the_job_begins_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_SECONDS", 0.0)
    runs = 0
    third = asyncio.Event()

    async def job() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
            await asyncio.Event().wait()
        raise RuntimeError(f"boom {runs}")

    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(supervision.supervised("states", job, api.coordinator.world))
        await asyncio.wait_for(third.wait(), 10)
        await supervision.cancelled(task)
    assert task.cancelled()
    assert [(line["event"], line["job"], str(line["exc_info"])) for line in logs] == [
        ("job crashed", "states", "boom 1"),
        ("job crashed", "states", "boom 2"),
    ]


async def test_a_table_whose_state_crashes_holds_up_no_other(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.01)
    for name in ("db.bad", "db.good"):
        await api.create(name, properties={"checkpoint.interval": "1"})
    tries: list[str] = []
    written = asyncio.Event()
    keep = api.coordinator.checkpoints.keep

    async def failing(table: OpenTable, reason: Reason) -> None:
        tries.append(str(table.live.name))
        if tries[-1] == "db.bad":
            raise RuntimeError("boom")
        await keep(table, reason)
        written.set()

    monkeypatch.setattr(api.coordinator.checkpoints, "keep", failing)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(keeping.keep_states(api.coordinator))
        await asyncio.wait_for(written.wait(), 20)
        await asyncio.sleep(0.1)  # several looks
        assert not task.done()
        await supervision.cancelled(task)
    assert (await api.get("/v1/tables/db.good/state")).json()["status"] == "ours"
    assert tries.count("db.bad") == 1, "it is left alone for a while"
    assert [line["table"] for line in logs if line["event"] == "writing a state crashed"] == ["db.bad"]


async def test_tables_are_cleaned_up_one_by_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(cleaning, "FIRST_WITHIN_SECONDS", 0.0)
    for name in ("db.bad", "db.good"):
        await api.create(name)
    tries: list[str] = []
    cleaned = asyncio.Event()
    keep = api.coordinator.cleanup.keep

    async def failing(table: OpenTable) -> None:
        tries.append(str(table.live.name))
        assert await keep(table)
        if tries[-1] == "db.bad":
            raise RuntimeError("boom")
        cleaned.set()

    monkeypatch.setattr(api.coordinator.cleanup, "keep", failing)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(keeping.keep_states(api.coordinator))
        await asyncio.wait_for(cleaned.wait(), 20)
        await asyncio.sleep(0.1)  # several looks
        assert not task.done()
        await supervision.cancelled(task)
    assert sorted(tries) == ["db.bad", "db.good"], "once each, for hours"
    assert [line["table"] for line in logs if line["event"] == "a cleanup crashed"] == ["db.bad"]


def test_the_metrics_of_states() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.table_opened("replay", 0.5)
    telemetry.state_written("avro-state", "interval", 0.25, 1000, 3, 5000)
    telemetry.state_written("avro-state", "age", 0.25, 10, 3, 50)
    telemetry.state_broken("json")
    telemetry.state_failed("parquet")
    lines = telemetry.exposition().decode().splitlines()
    assert 'tarnlog_tables_opened_total{source="replay"} 1.0' in lines
    assert 'tarnlog_table_open_seconds_sum{source="replay"} 0.5' in lines
    assert 'tarnlog_states_written_total{format="avro-state",reason="age"} 1.0' in lines
    assert 'tarnlog_state_write_seconds_sum{format="avro-state"} 0.5' in lines
    assert 'tarnlog_state_bytes_total{format="avro-state"} 1010.0' in lines
    assert 'tarnlog_state_uncompressed_bytes_total{format="avro-state"} 5050.0' in lines
    assert 'tarnlog_state_size_bytes_bucket{format="avro-state",le="1024.0"} 2.0' in lines
    assert 'tarnlog_states_broken_total{format="json"} 1.0' in lines
    assert 'tarnlog_states_failed_total{format="parquet"} 1.0' in lines


@pytest.mark.parametrize("wanted,told", [("avro", "avro-state"), ("json", "json"), ("parquet", "parquet")])
async def test_sizes_times_sources_and_cleaned_files_are_told_as_they_happen(wanted: str, told: str) -> None:
    telemetry = PrometheusTelemetry()

    def value(name: str, **labels: str) -> float:
        return telemetry.registry.get_sample_value(name, labels) or 0.0

    warehouse = Warehouse()
    stored = warehouse.store.keys
    replica = warehouse.replica(telemetry=telemetry)
    properties = {"state.format": wanted, "state.retention.versions": "1", "state.retention.hours": "0"}
    await create(replica, properties=properties)
    await commit(replica, *(add_line(f"a-file-with-a-name-like-others-{n:06d}") for n in range(1000)))
    before = set(stored())
    await replica.checkpoints.checkpoint(ORDERS)
    sent = sum(len(warehouse.store.raw(key)) for key in stored() if key not in before)
    size = value("tarnlog_state_bytes_total", format=told)
    # The hint is no part of a state.
    assert 0 <= sent - size < 500
    assert value("tarnlog_state_size_bytes_sum", format=told) == size
    assert value("tarnlog_state_uncompressed_bytes_total", format=told) > 2 * size
    assert value("tarnlog_states_written_total", format=told, reason="forced") == 1
    assert value("tarnlog_state_write_seconds_count", format=told) == 1
    reopened = warehouse.replica(telemetry=telemetry)
    await reopened.tables.describe(ORDERS)
    assert value("tarnlog_table_open_seconds_count", source=told) == 1
    for number in range(3):
        warehouse.world.advance(31 * 86_400)
        await commit(reopened, add_line(f"later-{number}"))
        await reopened.checkpoints.checkpoint(ORDERS)
    kind = "states" if wanted == "avro" else "checkpoints"
    gone = {"versions": 0, kind: 0}
    for _ in range(2):  # versions go a day after the floor has moved
        view = await reopened.cleanup.cleanup(ORDERS)
        gone["versions"] += view.versions_deleted
        gone[kind] += view.states_deleted + view.checkpoints_deleted
        warehouse.world.advance(2 * 86_400)
    assert gone["versions"] == 4
    assert gone[kind] > 0
    assert {name: value("tarnlog_log_objects_deleted_total", kind=name) for name in gone} == gone
    await warehouse.close()


def fill(url: str, versions: int) -> None:
    """A table with an interval of 3, at that version."""
    body = {"name": "db.t", "schema": SCHEMA, "properties": {"checkpoint.interval": "3"}}
    assert httpx.post(f"{url}/v1/tables", json=body, timeout=30).status_code == 201
    for number in range(versions):
        answer = httpx.post(f"{url}/v1/tables/db.t/commits", json={"actions": [add(f"f{number}")]}, timeout=30)
        assert answer.status_code == 201, answer.text


def state(url: str) -> dict[str, Any]:
    return dict(httpx.get(f"{url}/v1/tables/db.t/state", timeout=30).json())


def wait_for_state(service: ServiceProcess, seconds: float = 20.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (found := state(service.url))["status"] == "none":
        assert time.monotonic() < deadline, f"no state after {seconds} s:\n{service.logs[-4000:]}"
        time.sleep(0.1)
    return found


def test_a_state_is_written_by_itself_and_a_restart_opens_from_it(start_service: Start, tmp_path: Path) -> None:
    service = start_service()
    fill(service.url, 5)
    written = wait_for_state(service)
    assert (written["format"], written["status"]) == ("avro-state", "ours")
    assert written["version"] >= 2
    metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
    assert 'tarnlog_states_written_total{format="avro-state",reason="interval"}' in metrics
    assert service.stop() == 0
    [log] = tmp_path.glob("warehouse/db/t-*/_transaction_log")
    assert (log / f"state-v{written['version']:020d}" / "_manifest.json").is_file()

    service.start()
    snapshot = httpx.get(f"{service.url}/v1/tables/db.t/snapshot", timeout=30).json()
    assert (snapshot["version"], snapshot["numFiles"]) == (5, 5)
    metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
    assert 'tarnlog_tables_opened_total{source="avro-state"} 1.0' in metrics
    assert 'tarnlog_tables_opened_total{source="replay"}' not in metrics
    assert "Traceback" not in service.logs


def test_a_broken_state_costs_a_detour(start_service: Start, tmp_path: Path) -> None:
    service = start_service()
    fill(service.url, 4)
    wait_for_state(service)
    assert service.stop() == 0
    for manifest in tmp_path.glob("warehouse/db/t-*/_transaction_log/state-v*/_manifest.json"):
        manifest.write_bytes(manifest.read_bytes().replace(b'"numFiles":', b'"numFiles":1'))

    service.start()
    snapshot = httpx.get(f"{service.url}/v1/tables/db.t/snapshot", timeout=30).json()
    assert (snapshot["version"], snapshot["numFiles"]) == (4, 4)
    metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
    assert 'tarnlog_states_broken_total{format="avro-state"}' in metrics
    assert 'tarnlog_tables_opened_total{source="replay"} 1.0' in metrics


def test_the_job_can_be_switched_off(start_service: Start) -> None:
    service = start_service(env={"TARNLOG_BACKGROUND_STATES": "false"})
    fill(service.url, 5)
    time.sleep(2.5)  # more than two looks
    assert state(service.url)["status"] == "none"
    asked = httpx.post(f"{service.url}/v1/tables/db.t/checkpoint", timeout=30)
    assert (asked.status_code, asked.json()["checkpointVersion"]) == (200, 5)
