"""A replica of the service in the simulation: it can crash at any point, losing its memory, and come back."""

from __future__ import annotations

import asyncio
import contextvars
import random
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.simulation.journal import Journal
from tests.simulation.loop import OWNER, Owner
from tests.simulation.plan import Plan
from tests.simulation.storage import Faults, Link, Trace, Truth
from tests.simulation.world import SimWorld

T = TypeVar("T")


class Counted(Telemetry):
    """How often the rare ways were taken, so that a test can tell that they were."""

    def __init__(self) -> None:
        self.hedged = 0
        self.lost = 0

    def put_hedged(self) -> None:
        self.hedged += 1

    def slot_lost(self) -> None:
        self.lost += 1


class ConnectionLost(Exception):
    """The client got no answer: the replica is down, died, or took too long."""


class Replica:
    """One replica. Clients reach it through `call`."""

    def __init__(
        self, name: str, truth: Truth, plan: Plan, skew_ms: int, seed: str, journal: Journal, trace: Trace
    ) -> None:
        self.name = name
        self.faults: Faults = plan.faults
        self.up = False
        self._truth = truth
        self._plan = plan
        self._skew_ms = skew_ms
        self._seed = seed
        self._journal = journal
        self._trace = trace
        self._lives = 0
        self._hang_ups = random.Random(f"{seed} hang ups {name}")
        self._owner = Owner(name)
        self._link: Link | None = None
        self._coordinator: Coordinator | None = None
        self.telemetry = Counted()

    @property
    def link(self) -> Link:
        """Its way to storage; only while it lives."""
        assert self._link is not None
        return self._link

    def start(self) -> None:
        """Come up with an empty memory."""
        loop = asyncio.get_running_loop()
        self._lives += 1
        life = f"{self.name}.{self._lives}"
        self._owner = Owner(life)
        self._link = Link(self._truth, self.faults, random.Random(f"{self._seed} link {life}"), life, self._trace)
        world = SimWorld(loop, random.Random(f"{self._seed} world {life}"), skew_ms=self._skew_ms)
        roots = Roots(Root(self._truth.uri, self._link, hedge=self._plan.hedge))
        self._coordinator = Coordinator(
            roots,
            world,
            self.telemetry,
            settings=self._plan.committer,
            cache_ttl_seconds=self._plan.cache_ttl,
            cache_max_versions=self._plan.cache_versions,
            max_open_tables=self._plan.max_open_tables,
        )
        self.up = True
        self._trace.append((loop.time(), life, "up"))

    def crash(self) -> None:
        """Die: everything it was doing ends where it is, and what it sent to storage stays sent."""
        if self.up and self._link is not None:
            self.up = False
            self._link.cut()
            self._owner.cancel_all()
            self._coordinator = None
            self._trace.append((asyncio.get_running_loop().time(), self._owner.name, "crash"))

    def heal(self) -> None:
        """Storage is well from now on."""
        self.faults = Faults()
        if self._link is not None:
            self._link.faults = self.faults

    async def call(self, verb: Callable[[Coordinator], Awaitable[T]], timeout: float) -> T:
        """Call the replica as a client would. Raises ProblemError or ConnectionLost."""
        if not self.up or self._coordinator is None:
            await asyncio.sleep(0.01)
            raise ConnectionLost
        coordinator = self._coordinator

        async def handle() -> T:
            return await verb(coordinator)

        context = contextvars.copy_context()
        context.run(OWNER.set, self._owner)
        task = asyncio.get_running_loop().create_task(handle(), context=context)
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            # The client hangs up; the server may or may not notice.
            if self._hang_ups.random() < 0.5:
                task.cancel()
            raise ConnectionLost
        if task.cancelled():
            raise ConnectionLost
        error = task.exception()
        if error is not None and not isinstance(error, ProblemError):
            self._journal.faults_of_ours.append("".join(traceback.format_exception(error)))
            raise ConnectionLost
        return task.result()
