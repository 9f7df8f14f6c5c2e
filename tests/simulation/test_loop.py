"""The virtual loop itself: it never waits, notices when nobody will ever go on, and ends what a replica was doing."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time

import pytest

from tests.simulation.loop import OWNER, Hang, Owner, SimLoop


def a_loop() -> SimLoop:
    return SimLoop(random.Random(1), shuffle=False, max_virtual_seconds=1e6)


def test_a_virtual_day_takes_no_time() -> None:
    loop = a_loop()
    before = time.monotonic()

    async def sleep_a_day() -> float:
        started = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - started

    assert loop.run(sleep_a_day()) == pytest.approx(86_400)
    assert time.monotonic() - before < 10


def test_waiting_for_ever_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Hang, match="waits for ever"):
        a_loop().run(wait())


def test_a_run_that_does_not_end_is_an_error() -> None:
    async def poll() -> None:
        while True:  # noqa: ASYNC110 (polling for ever is the point)
            await asyncio.sleep(100)

    with pytest.raises(Hang, match="did not end"):
        a_loop().run(poll())


def test_a_crash_ends_the_tasks_of_one_owner_and_what_they_started() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1)
            ended.append(f"{name} finished")
        except asyncio.CancelledError:
            ended.append(f"{name} died")
            raise

    async def parent() -> None:
        await asyncio.gather(work("child one"), work("child two"))

    async def main() -> None:
        owner = Owner("replica")
        context = contextvars.copy_context()
        context.run(OWNER.set, owner)
        asyncio.get_running_loop().create_task(parent(), context=context)
        other = asyncio.create_task(work("other"))
        await asyncio.sleep(0.5)
        owner.cancel_all()
        await other

    a_loop().run(main())
    assert sorted(ended) == ["child one died", "child two died", "other finished"]
