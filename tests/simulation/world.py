"""A replica's view of time and chance in the simulation: virtual, seeded, and a few seconds off everyone else's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tarnlog.protocol.ids import uuid7

T = TypeVar("T")

EPOCH_MS = 1_750_000_000_000


class SimWorld:
    """The World of one replica (or the clock of one client)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random, *, skew_ms: int = 0) -> None:
        self._loop = loop
        self._rng = rng
        self.skew_ms = skew_ms

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def uuid7(self) -> UUID:
        return uuid7(self.now_ms(), self._rng)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(0.001)
        return work()
