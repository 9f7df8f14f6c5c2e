"""A table that is dropped and made again by one service while another still has the old one open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx

from tarnlog import Committed
from tests.process.journal import Journal, check, slug_of
from tests.process.load import SCHEMA, TABLE
from tests.process.log_reading import locations, objects_in_folder, read_log_at
from tests.process.raw import RawWriter, slug
from tests.service_process import ServiceProcess

Start = Callable[..., list[ServiceProcess]]
NEW_TABLE = {"name": TABLE, "schema": SCHEMA}


async def test_a_stale_service_never_writes_to_the_dropped_table(start_pair: Start, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    stale, other = (service.url for service in start_pair(warehouse))
    old, new = Journal(), Journal()
    async with httpx.AsyncClient(base_url=stale, timeout=30) as http, httpx.AsyncClient(base_url=other) as elsewhere:
        assert (await http.post("/v1/tables", json=NEW_TABLE)).status_code == 201
        for number in range(3):
            assert (await RawWriter(http, old).append(f"old-{number}")).status_code == 201
        assert (await elsewhere.delete(f"/v1/tables/{TABLE}")).status_code == 204
        planned = RawWriter(http, old).new({"remove": {"path": "old-0", "dataChange": True}}, read_version=3)
        answer = await RawWriter(http, old).send(planned)
        assert (answer.status_code, slug(answer)) == (404, "table-not-found")
        assert (await elsewhere.post("/v1/tables", json=NEW_TABLE)).status_code == 201
        assert (await RawWriter(elsewhere, new).append("new-0")).status_code == 201
        answer = await RawWriter(http, new).append("new-1")
        assert (answer.status_code, answer.json()["version"]) == (201, 2)
        for client in (http, elsewhere):
            files = (await client.get(f"/v1/tables/{TABLE}/files?maxStalenessSeconds=0")).json()["files"]
            assert {file["path"] for file in files} == {"new-0", "new-1"}
    objects = objects_in_folder(warehouse)
    first, second = locations(objects, TABLE)
    check(old, read_log_at(objects, first))
    check(new, read_log_at(objects, second))
    assert read_log_at(objects, first).dropped
    assert first != second


async def test_under_load_every_answer_is_about_one_of_the_tables(start_pair: Start, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    urls = [service.url for service in start_pair(warehouse)]
    journal = Journal()
    stop = asyncio.Event()

    async def write(http: httpx.AsyncClient, name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            answer = await RawWriter(http, journal).append(f"{name}-{number}")
            assert answer.status_code == 201 or slug(answer) == "table-not-found", answer.text

    async with httpx.AsyncClient(base_url=urls[0], timeout=30) as one, httpx.AsyncClient(base_url=urls[1]) as two:
        assert (await one.post("/v1/tables", json=NEW_TABLE)).status_code == 201
        async with asyncio.TaskGroup() as writers:
            for number in range(8):
                writers.create_task(write((one, two)[number % 2], f"w{number}"))
            for _ in range(5):
                await asyncio.sleep(0.3)
                assert (await two.delete(f"/v1/tables/{TABLE}")).status_code == 204
                assert (await two.post("/v1/tables", json=NEW_TABLE)).status_code == 201
            await asyncio.sleep(0.3)
            stop.set()
    objects = objects_in_folder(warehouse)
    logs = [read_log_at(objects, location) for location in locations(objects, TABLE)]
    assert [log.dropped for log in logs] == [True] * 5 + [False]
    assert all(len(log.live) > 0 for log in logs)
    for sent in journal.sent:
        found = [log.commits[sent.commit_id].place for log in logs if sent.commit_id in log.commits]
        told = [
            (answer.version, answer.seq, answer.timestamp) for answer in sent.answers if isinstance(answer, Committed)
        ]
        assert found == told, f"{sent.commit_id} told {sent.answers}, in the logs at {found}"
        assert told or [slug_of(answer) for answer in sent.answers] == ["table-not-found"]
