"""The real clock, the real randomness and a thread pool."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tarnlog.protocol.ids import uuid7

T = TypeVar("T")


class SystemWorld:
    """The World the service runs in."""

    def __init__(self) -> None:
        self._rng = random.SystemRandom()

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uuid7(self) -> UUID:
        return uuid7(self.now_ms(), self._rng)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)
