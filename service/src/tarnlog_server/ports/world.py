"""Time, chance and threads as arguments, so that a seed can replay everything that happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class World(Protocol):
    """What the service may ask of the machine it runs on. Nothing else reads a clock or draws a random number."""

    @property
    def rng(self) -> random.Random:
        """The source of jitter and random names."""
        ...

    def now_ms(self) -> int:
        """Wall-clock time in epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines."""
        ...

    def uuid7(self) -> UUID:
        """A new time-ordered id."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run CPU-heavy or blocking `work` off the event loop and return its result."""
        ...
