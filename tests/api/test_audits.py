"""Audits, and tables of other software, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tests.api.conftest import Api, slug
from tests.usecases.field_writers import Generation, field_table


async def place(api: Api) -> str:
    """The table's folder, as a key."""
    return str((await api.get("/v1/tables/db.t")).json()["location"]).removeprefix("memory://warehouse/")


def failed(document: dict[str, Any]) -> list[str]:
    return [check["name"] for check in document["checks"] if not check["ok"]]


async def test_a_table_is_verified_damaged_and_repaired(api: Api, table: str) -> None:
    folder = await place(api)
    for name in ("a", "b"):
        await api.append(name)
    missing = (await api.post(f"{table}/verify")).json()
    assert (missing["tableName"], missing["status"], failed(missing)) == ("db.t", "failed", ["data-files"])
    size = (await api.get(f"{table}/files")).json()["files"][0]["size"]
    for name in ("a", "b"):
        await api.store.put(f"{folder}/{name}", b"x" * size)
    assert (await api.post(f"{table}/verify", json={})).json()["status"] == "success"
    written = (await api.post(f"{table}/checkpoint")).json()
    state = f"{folder}/_transaction_log/state-v{written['checkpointVersion']:020d}/_manifest.json"
    await api.store.put(state, b"{}")
    broken = (await api.post(f"{table}/verify")).json()
    assert "states-sound" in failed(broken)
    with structlog.testing.capture_logs() as logs:
        done = await api.post(f"{table}/repair")
    assert done.status_code == 200, done.text
    assert (done.json()["status"], failed(done.json())) == ("success", [])
    assert done.json()["repaired"]
    [line] = [line for line in logs if line["event"] == "audit"]
    assert (line["what"], line["status"]) == ("repair", "success")
    assert (await api.post(f"{table}/repair")).json()["repaired"] == []


@pytest.mark.parametrize("verb", ["verify", "repair"])
async def test_what_is_refused(api: Api, table: str, verb: str) -> None:
    assert slug(await api.post(f"{table}/{verb}", json={"hard": True})) == "request-invalid"
    assert slug(await api.post(f"{table}/{verb}?x=1")) == "request-invalid"
    assert slug(await api.post(f"/v1/tables/no.table/{verb}")) == "table-not-found"


@pytest.mark.parametrize("generation", ["A", "B", "C"])
async def test_a_table_of_other_software_is_registered_read_taken_over_and_written(
    api: Api, generation: Generation
) -> None:
    writer = await field_table(api.store, "lake/events", generation)
    where = {"name": "raw.events", "location": "memory://warehouse/lake/events"}
    table = "/v1/tables/raw.events"
    read_only = await api.post("/v1/tables/register", json=where)
    assert read_only.status_code == 201, read_only.text
    assert read_only.json()["version"] == 11
    listed = (await api.get(f"{table}/files")).json()["files"]
    assert sorted(file["path"] for file in listed) == sorted(writer.files)
    add = {"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    assert slug(await api.post(f"{table}/commits", json={"actions": [add]})) == "table-read-only"
    assert slug(await api.post(f"{table}/repair")) == "table-read-only"
    await writer.commit("more")
    fresh = (await api.get(f"{table}?maxStalenessSeconds=0")).json()
    assert (fresh["version"], fresh["numFiles"]) == (12, len(writer.files))
    taken = await api.post("/v1/tables/register", json={**where, "foreignWritersStopped": True})
    assert (taken.status_code, taken.json()["version"]) == (201, 13)
    done = await api.post(f"{table}/commits", json={"actions": [add]})
    assert (done.status_code, done.json()["version"]) == (201, 14)
    state = (await api.get(f"{table}/state")).json()
    assert (state["status"], state["version"]) == ("ours", 13)


async def test_a_writer_that_did_not_stop_is_answered_409(api: Api) -> None:
    writer = await field_table(api.store, "lake/events", "B")
    where = {"name": "raw.events", "location": "memory://warehouse/lake/events", "foreignWritersStopped": True}
    assert (await api.post("/v1/tables/register", json=where)).status_code == 201
    writer.version = 30
    await writer.commit("theirs")
    add = {"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    answer = await api.post("/v1/tables/raw.events/commits", json={"actions": [add]})
    assert (answer.status_code, slug(answer)) == (409, "foreign-writer-detected")
    assert "state-v00000000000000000031" in answer.json()["object"]


def test_the_metric_of_other_writers() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.foreign_writer()
    assert "tarnlog_foreign_writers_total 1.0" in telemetry.exposition().decode().splitlines()
