"""A reader of a damaged old version, again and again: the reader is told, and commits go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.process.journal import Journal
from tests.process.load import SCHEMA, TABLE
from tests.process.log_reading import locations, objects_in_folder
from tests.process.raw import RawWriter, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
COMMITS = 30
READS = ("commits/3", "changes?from=3", "files?version=3", "snapshot?version=3", "commits?from=3&to=4&order=asc")


@pytest.mark.parametrize("missing", [False, True], ids=["flipped", "missing"])
async def test_readers_of_a_damaged_old_version_stop_no_commit(
    start_service: Start, tmp_path: Path, missing: bool
) -> None:
    warehouse = tmp_path / "warehouse"
    # A state for each ten versions, and what is older than the state is in storage alone.
    service = start_service(warehouse, {"TARNLOG_DATABASE_URL": "off"})
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
        for number in range(12):
            assert (await writer.append(f"before-{number}")).status_code == 201
        assert (await http.post(f"/v1/tables/{TABLE}/checkpoint")).status_code == 200
    service.stop()
    key = f"{locations(objects_in_folder(warehouse), TABLE)[-1]}/_transaction_log/{3:020d}.json"
    data = (warehouse / key).read_bytes()
    if missing:
        (warehouse / key).unlink()
    else:
        (warehouse / key).write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    service.start()
    done = asyncio.Event()
    told: dict[str, int] = dict.fromkeys(READS, 0)

    async def read(http: httpx.AsyncClient, what: str) -> None:
        while not done.is_set():
            answer = await http.get(f"/v1/tables/{TABLE}/{what}")
            assert (answer.status_code, slug(answer)) == (500, "log-corrupt"), f"{what}: {answer.text}"
            assert answer.json()["object"] == key
            told[what] += 1
            await asyncio.sleep(0.01)

    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        async with asyncio.TaskGroup() as readers:
            for what in READS:
                readers.create_task(read(http, what))
            for number in range(COMMITS):
                answer = await writer.append(f"meanwhile-{number}")
                assert (answer.status_code, answer.json()["version"]) == (201, 13 + number), answer.text
                await asyncio.sleep(0.02)
            done.set()
        assert min(told.values()) > 0, told
        (warehouse / key).write_bytes(data)
        assert (await http.get(f"/v1/tables/{TABLE}/commits/3")).json()["version"] == 3
