"""Long work in short slices: commits come first.

Work in a thread still holds the interpreter's lock for most of its time, so a commit that arrives meanwhile waits for
it. A slice of a few milliseconds is the longest such wait; while commits come in, two thirds of the time are left to
them. A table that nobody writes to is not slowed down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from tarnlog_server.ports.world import World

PAUSE_FACTOR = 2.0
LONGEST_PAUSE = 0.1
SHORTEST_SLICE = 0.0005
BUSY_SECONDS = 0.25
"""How long after the last sign of a commit a table counts as busy."""
T = TypeVar("T")


class Pace:
    """Runs slices off the event loop, with pauses while `sign` changes; one for each piece of work."""

    def __init__(
        self, world: World, sign: Callable[[], object], lane: AbstractAsyncContextManager[Any] | None = None
    ) -> None:
        self._world = world
        self._lane = lane or contextlib.nullcontext()
        """Entered for each slice: so many slices of all tables run at the same time."""
        self._sign = sign
        self._last = sign()
        self._busy_until = float("-inf")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of one slice."""
        async with self._lane:
            started = self._world.monotonic()
            result = await self._world.run_blocking(work)
        now = self._world.monotonic()
        sign = self._sign()
        if sign != self._last:
            self._last, self._busy_until = sign, now + BUSY_SECONDS
        if now < self._busy_until and now - started > SHORTEST_SLICE:
            await self._world.sleep(min(PAUSE_FACTOR * (now - started), LONGEST_PAUSE))
        return result
