"""Whoever starts waits for the index as long as it takes to know whether there is one, and no longer than told."""

from __future__ import annotations

import asyncio

from tarnlog_server.usecases.index_guard import GuardSettings, IndexGuard
from tests.usecases.replicas import FakeWorld
from tests.usecases.unreliable_index import UnreliableIndex

AGES = 60.0
"""Longer than any test may take: what waits so long hangs."""


def _guard(index: UnreliableIndex) -> IndexGuard:
    return IndexGuard(index, FakeWorld(), settings=GuardSettings(write_seconds=5))


async def test_a_prepared_index_is_waited_for() -> None:
    guard = _guard(UnreliableIndex())
    waiting = asyncio.create_task(guard.tried(AGES))
    await asyncio.sleep(0)
    assert not waiting.done()
    await guard.prepared()
    async with asyncio.timeout(5):
        await waiting
    assert guard.state == "ready"


async def test_an_index_that_is_down_is_not_waited_for() -> None:
    index = UnreliableIndex()
    index.down = True
    guard = _guard(index)
    preparing = asyncio.create_task(guard.prepared())
    async with asyncio.timeout(5):
        await guard.tried(AGES)
    assert guard.state == "degraded"
    preparing.cancel()


async def test_an_index_that_does_not_answer_is_waited_for_only_so_long() -> None:
    guard = _guard(UnreliableIndex())
    async with asyncio.timeout(5):
        await guard.tried(0.01)
    assert guard.state == "starting"
