"""SIGTERM: everyone who waits is answered, and the process ends with 0 within its grace."""

from __future__ import annotations

import asyncio
import collections
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.process.journal import Journal, check
from tests.process.load import SCHEMA, TABLE
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
MANY = httpx.Limits(max_connections=None, max_keepalive_connections=None)


async def test_everyone_who_waits_is_answered(start_service: Start) -> None:
    service = start_service(env={"TARNLOG_TEST_STORE_DELAY_MS": "100"})
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=MANY) as http:
        await _create(http)
        writer = RawWriter(http, journal)
        stream = asyncio.create_task(_follow(http))
        waiting = [asyncio.create_task(writer.append(f"file-{number}")) for number in range(64)]
        await _all_arrived(http, waiting)
        started = time.monotonic()
        assert await asyncio.to_thread(service.stop) == 0
        assert time.monotonic() - started < 10
        told = collections.Counter(_said(answer) for answer in await asyncio.gather(*waiting))
        assert set(told) == {"201", "503 shutting-down"}, told
        await asyncio.wait_for(stream, 5)
    check(journal, read_log(objects_in_folder(Path(service.warehouse)), TABLE))
    service.env.clear()
    service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=MANY) as http:
        writer = RawWriter(http, journal)
        again = await asyncio.gather(*(writer.send(sent) for sent in journal.sent))
    assert collections.Counter(_said(answer) for answer in again) == {
        "200": told["201"],
        "201": told["503 shutting-down"],
    }
    check(journal, read_log(objects_in_folder(Path(service.warehouse)), TABLE))


async def test_what_cannot_be_settled_within_the_grace_is_told_to_be_unknown(
    start_service: Start, tmp_path: Path
) -> None:
    env = {"TARNLOG_TEST_STORE_DELAY_MS": "150", "TARNLOG_SHUTDOWN_GRACE_SECONDS": "0"}
    told: collections.Counter[str] = collections.Counter()
    for attempt in range(3):
        if told["503 commit-unknown"]:
            break  # the signal nearly always finds a version under way; rarely it comes between two
        service = start_service(tmp_path / str(attempt), env)
        told = await _stopped_with_a_full_queue(service)
        assert set(told) <= {"201", "503 shutting-down", "503 commit-unknown"}, told
        assert told["503 commit-unknown"] <= 1, "one version was under way, with one commit in it"
    assert told["503 commit-unknown"]


async def _stopped_with_a_full_queue(service: ServiceProcess) -> collections.Counter[str]:
    """What sixteen writers are told by a service that has no time to finish."""
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=MANY) as http:
        await _create(http)
        writer = RawWriter(http, journal)
        waiting = [asyncio.create_task(writer.append(f"file-{number}")) for number in range(16)]
        await _all_arrived(http, waiting)
        started = time.monotonic()
        assert await asyncio.to_thread(service.stop) == 0
        assert time.monotonic() - started < 5
        answers = await asyncio.gather(*waiting)
    check(journal, read_log(objects_in_folder(Path(service.warehouse)), TABLE))
    return collections.Counter(_said(answer) for answer in answers)


async def test_under_load_no_request_is_cut_off(start_service: Start) -> None:
    service = start_service()
    journal = Journal()
    told: collections.Counter[str] = collections.Counter()
    signalled = float("inf")

    async def write(writer: RawWriter, name: str) -> None:
        """Commits until told that the service ends."""
        number = 0
        said = ""
        while said != "503 shutting-down":
            number += 1
            sent = float("inf")

            async def noted(step: str, _: dict[str, object]) -> None:
                nonlocal sent
                if step == "http11.send_request_body.complete":
                    sent = time.monotonic()

            try:
                said = _said(await writer.append(f"{name}-{number}", noted))
            except httpx.TransportError:
                # Whoever comes late finds a closed door; whoever had sent all before is answered.
                assert sent > signalled, "cut off"
                return
            told[said] += 1

    async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=MANY) as http:
        await _create(http)
        writer = RawWriter(http, journal)
        writers = [asyncio.create_task(write(writer, f"w{number}")) for number in range(16)]
        await asyncio.sleep(1)
        signalled = time.monotonic()
        assert await asyncio.to_thread(service.stop) == 0
        await asyncio.wait_for(asyncio.gather(*writers), 30)
    assert set(told) == {"201", "503 shutting-down"}
    assert told["201"] > 16
    check(journal, read_log(objects_in_folder(Path(service.warehouse)), TABLE))


def _said(answer: httpx.Response) -> str:
    return str(answer.status_code) if answer.is_success else f"{answer.status_code} {slug(answer)}"


async def _all_arrived(http: httpx.AsyncClient, requests: list[asyncio.Task[httpx.Response]]) -> None:
    """Return once one is answered, one is being written, and the service has the others in its queue."""
    end = time.monotonic() + 30
    while True:
        assert time.monotonic() < end, "they do not arrive"
        metrics = (await http.get("/metrics")).text
        waiting = re.search(r"^tarnlog_commits_waiting (\d+)", metrics, re.MULTILINE)
        answered = sum(request.done() for request in requests)
        if waiting and answered and int(waiting[1]) + answered + 1 >= len(requests):
            return


async def _create(http: httpx.AsyncClient) -> None:
    # A version for each commit: there is always one under way, and the others wait for it.
    table = {"name": TABLE, "schema": SCHEMA, "properties": {"commit.coalesce": "false"}}
    assert (await http.post("/v1/tables", json=table)).status_code == 201


async def _follow(http: httpx.AsyncClient) -> None:
    """A live feed, until the service ends it."""
    async with http.stream("GET", f"/v1/tables/{TABLE}/events", timeout=60) as stream:
        assert stream.status_code == 200
        async for _ in stream.aiter_bytes():
            pass
