"""Clocks of replicas that are set while everyone goes on: back and forth, by seconds to more than a day."""

from __future__ import annotations

import random

from tests.simulation.journal import Journal
from tests.simulation.replica import Replica
from tests.simulation.storage import Trace

STEPS_MS = (90_000, 20 * 60_000, 3 * 3_600_000, 26 * 3_600_000)


class Clocks:
    """Sets the clock of some replica now and then. No replica is told: it only sees other times."""

    def __init__(self, seed: str, chance: float, replicas: list[Replica], journal: Journal, trace: Trace) -> None:
        self._rng = random.Random(f"{seed} clocks")
        self._chance = chance
        self._replicas = replicas
        self._journal = journal
        self._trace = trace

    def maybe_step(self, now: float) -> None:
        """Called at each step of a client."""
        if self._chance and self._rng.random() < self._chance:
            replica = self._rng.choice(self._replicas)
            ahead = self._rng.choice((-1, 1)) * self._rng.choice(STEPS_MS)
            # Some are set right again.
            self._set(replica, 0 if self._rng.random() < 0.3 else ahead, now)

    def heal(self, now: float) -> None:
        """Every clock is right from now on."""
        self._chance = 0.0
        for replica in self._replicas:
            if replica.skew_ms:
                self._set(replica, 0, now)

    def _set(self, replica: Replica, ahead_ms: int, now: float) -> None:
        replica.set_clock(ahead_ms)
        self._journal.clocks.append((now, ahead_ms))
        self._trace.append((now, replica.name, "clock", ahead_ms))
