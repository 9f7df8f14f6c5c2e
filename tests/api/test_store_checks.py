"""The watch over the stores: what a real probe finds reaches readiness, and a bad store is tried again sooner."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tarnlog import new_commit_id
from tarnlog.protocol.ids import commit_id_time_ms
from tarnlog_server.adapters.faulty_store import Faults, FaultyStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.bootstrap import Service
from tarnlog_server.jobs import store_checks
from tarnlog_server.jobs.store_checks import (
    AFTER_FAILURE_SECONDS,
    EVERY_SECONDS,
    LOOK_SECONDS,
    check_stores,
    keep_checking,
)
from tarnlog_server.ports.object_store import ObjectStore
from tarnlog_server.settings import load_settings
from tarnlog_server.usecases.probe import ProbeReport
from tarnlog_server.usecases.roots import Root
from tarnlog_server.usecases.steady_clock import STEP_MS, SteadyClock
from tests.api.conftest import SCHEMA

ADD = {"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


class Paced(SystemWorld):
    """Remembers its pauses and takes none; the watch is cancelled after `turns` of them."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._turns = turns

    async def sleep(self, seconds: float) -> None:
        if len(self.pauses) == self._turns:
            raise asyncio.CancelledError
        self.pauses.append(seconds)


def broken() -> ObjectStore:
    faults = Faults(broken_conditional_create=True)
    return FaultyStore(MemoryStore("bad"), faults, rng=random.Random(1), sleep=asyncio.sleep, spawn=asyncio.create_task)


async def checked(store: ObjectStore) -> Readiness:
    readiness = Readiness()

    def told(place: str, report: ProbeReport) -> None:
        readiness.checked(place, report.problems, report.clock_offset_ms)

    await check_stores([Root("memory://x", store)], SystemWorld(), told)
    return readiness


async def test_a_store_that_overwrites_is_not_ready() -> None:
    assert (await checked(MemoryStore("good"))).reasons == []
    assert "If-None-Match" in " ".join((await checked(broken())).reasons)


@pytest.mark.parametrize("ahead_ms, ready", [(30_000, True), (90_000, False), (-90_000, False)])
async def test_a_clock_that_is_off_is_found_by_the_probe(ahead_ms: int, ready: bool) -> None:
    store = MemoryStore("clock", now_ms=lambda: SystemWorld().now_ms() + ahead_ms)
    reasons = (await checked(store)).reasons
    assert (reasons == []) is ready
    assert ready or "clock" in reasons[0]


async def test_the_watch_goes_on_and_is_quicker_after_a_failure() -> None:
    store = MemoryStore("watched")
    roots = [Root("memory://good", store), Root("memory://bad", broken())]
    world, told = Paced(3), []
    with pytest.raises(asyncio.CancelledError):
        await keep_checking(roots, world, lambda place, report: told.append((place, report.ok)), passed=True)
    assert world.pauses == [EVERY_SECONDS, AFTER_FAILURE_SECONDS, AFTER_FAILURE_SECONDS]
    assert told == [("memory://good", True), ("memory://bad", False)] * 3


async def test_a_check_that_breaks_does_not_end_the_watch() -> None:
    def fail(_: str, __: ProbeReport) -> None:
        raise RuntimeError("boom")

    world = Paced(2)
    with pytest.raises(asyncio.CancelledError):
        await keep_checking([Root("memory://x", MemoryStore("x"))], world, fail, passed=True)
    assert world.pauses == [EVERY_SECONDS, AFTER_FAILURE_SECONDS]


async def test_the_lifespan_checks_before_the_first_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    service = Service(load_settings(warehouse=str(tmp_path / "w"), port=0))
    assert service.readiness.reasons != []
    async with service.lifespan(service.app):
        assert service.readiness.reasons == []
    assert service.readiness.closing


class Settable(SystemWorld):
    """A machine whose wall clock can be set; its monotonic clock goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.set_by_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_by_ms


def test_time_goes_on_as_before_until_a_step_is_confirmed() -> None:
    machine = Settable()
    clock = SteadyClock(machine)
    for step in (20 * 60_000, -20 * 60_000, 2 * STEP_MS):
        machine.set_by_ms = step
        assert abs(clock.now_ms() - SystemWorld().now_ms()) < STEP_MS
        assert abs(clock.stepped_ms() - step) < STEP_MS
        assert abs(commit_id_time_ms(str(clock.uuid7())) - SystemWorld().now_ms()) < STEP_MS
    machine.set_by_ms = 3_600_000
    clock.checked(clock.reading(), confirmed=False)
    assert clock.stepped_ms() == 0, "a check has seen it"
    assert abs(clock.now_ms() - SystemWorld().now_ms()) < STEP_MS, "and found it wrong"
    clock.checked(clock.reading(), confirmed=True)
    assert abs(clock.now_ms() - machine.now_ms()) < STEP_MS
    machine.set_by_ms -= STEP_MS // 2
    assert clock.stepped_ms() == 0
    assert abs(clock.now_ms() - machine.now_ms()) <= 1, "slewing is followed"


async def test_a_step_of_the_clock_is_a_reason_to_check_at_once() -> None:
    """Not after five minutes: the watch looks every second, and each write compares the clocks itself."""
    machine = Settable()
    clock, pauses = SteadyClock(machine), 0

    async def sleep(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        assert seconds <= LOOK_SECONDS
        if pauses == 3:
            machine.set_by_ms = -3_600_000
        if pauses == 6:
            raise asyncio.CancelledError

    machine.sleep = sleep  # type: ignore[method-assign]
    told: list[int] = []
    root = Root("memory://x", MemoryStore("x"))
    with pytest.raises(asyncio.CancelledError):
        await keep_checking([root], clock, lambda _, report: told.append(report.clock_offset_ms), passed=True)
    assert len(told) == 1
    assert abs(told[0] - 3_600_000) < 5000, "the machine's clock is compared, not the time that goes on without it"


async def test_a_store_that_does_not_answer_confirms_no_step() -> None:
    machine = Settable()
    clock = SteadyClock(machine)
    machine.set_by_ms = 3_600_000
    await check_stores([Root("memory://bad", broken())], clock, lambda *_: None)
    assert abs(clock.now_ms() - SystemWorld().now_ms()) < STEP_MS


async def test_a_service_whose_clock_is_set_writes_again_once_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store_checks, "LOOK_SECONDS", 0.01)
    machine = Settable()
    service = Service(load_settings(warehouse=str(tmp_path / "w"), port=0), machine)
    transport = httpx.ASGITransport(service.app)
    async with (
        service.lifespan(service.app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        made = await http.post("/v1/tables", json={"name": "a.b", "schema": SCHEMA})
        assert made.status_code == 201
        body = {"commitId": new_commit_id(), "actions": [ADD]}
        done = await http.post("/v1/tables/a.b/commits", json=body)
        assert done.status_code == 201

        machine.set_by_ms = -20 * 60_000
        refused = await http.post("/v1/tables/a.b/commits", json=body)  # no check was made in between
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/not-ready")
        assert "clock" in refused.json()["detail"]
        found = await http.get(f"/v1/tables/a.b/commits/by-id/{body['commitId']}")
        assert found.status_code == 200

        async def ready() -> int:
            return (await http.get("/v1/health/ready")).status_code

        while not any("behind" in reason for reason in service.readiness.reasons):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await ready() == 503
        machine.set_by_ms = 0
        while await ready() != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        again = await http.post("/v1/tables/a.b/commits", json=body)
        assert (again.status_code, again.json()["version"]) == (200, done.json()["version"])
