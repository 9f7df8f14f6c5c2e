"""The watch over the stores: what a real probe finds reaches readiness, and a bad store is tried again sooner."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tarnlog_server.adapters.faulty_store import Faults, FaultyStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.bootstrap import Service
from tarnlog_server.jobs.store_checks import AFTER_FAILURE_SECONDS, EVERY_SECONDS, check_stores, keep_checking
from tarnlog_server.ports.object_store import ObjectStore
from tarnlog_server.settings import load_settings
from tarnlog_server.usecases.probe import ProbeReport
from tarnlog_server.usecases.roots import Root


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
