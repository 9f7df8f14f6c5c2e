"""Time that does not follow a step of the machine's clock until the store has confirmed it.

The wall clock is compared to the monotonic clock at each use, which costs two clock reads. While both advance together
the wall clock counts. After a step, time continues at the pace of the monotonic clock, from what was confirmed last:
an id or a version is never judged by a clock that was just set, rightly or wrongly. A check of the stores (`jobs.
store_checks`) then compares the machine's clock to theirs and confirms the step, or finds it wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from tarnlog.protocol.ids import uuid7
from tarnlog_server.ports.world import World

T = TypeVar("T")
STEP_MS = 1000
"""Clocks that are slewed stay far below this between two checks; more is a step."""
MAX_CLOCK_OFFSET_MS = 60_000
"""In-commit timestamps come from this machine's clock: further off the store's than this, they would be wrong."""


class SteadyClock:
    """The World of the service, on top of the machine's."""

    def __init__(self, machine: World) -> None:
        self.machine = machine
        self._confirmed = self._checked = self.reading()

    @property
    def rng(self) -> random.Random:
        return self.machine.rng

    def now_ms(self) -> int:
        now, elapsed = self.machine.now_ms(), self.machine.monotonic() * 1000
        return now if abs(now - elapsed - self._confirmed) <= STEP_MS else round(self._confirmed + elapsed)

    def monotonic(self) -> float:
        return self.machine.monotonic()

    def uuid7(self) -> UUID:
        return uuid7(self.now_ms(), self.rng)

    async def sleep(self, seconds: float) -> None:
        await self.machine.sleep(seconds)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await self.machine.run_blocking(work)

    def reading(self) -> float:
        """The wall clock's lead over the monotonic clock, in milliseconds: it only changes when a clock is set."""
        return self.machine.now_ms() - self.machine.monotonic() * 1000

    def stepped_ms(self) -> int:
        """How far the machine's clock was set since the last check; 0 when it was not."""
        step = round(self.reading() - self._checked)
        return step if abs(step) > STEP_MS else 0

    def checked(self, reading: float, *, confirmed: bool) -> None:
        """A check that began with `reading` has ended; `confirmed`: the machine's clock agrees with the stores'."""
        self._checked = reading
        if confirmed:
            self._confirmed = reading
