"""A replica of the service in the simulation: it can crash at any point, losing its memory, and come back."""

from __future__ import annotations

import asyncio
import contextvars
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.core.routing import Owner as RouteOwner
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.ownership import Ownership
from tarnlog_server.usecases.roots import Root, Roots
from tests.simulation.index import Database, IndexFaults, IndexLink
from tests.simulation.journal import Journal
from tests.simulation.loop import OWNER, Owner
from tests.simulation.plan import Plan
from tests.simulation.routing import Door, LeaseLink, PeerLink, Post, RoutingFaults, told
from tests.simulation.storage import Faults, Link, Trace, Truth
from tests.simulation.world import SimWorld

T = TypeVar("T")
LEASE_SECONDS = 2.0


class Counted(Telemetry):
    """How often the rare ways were taken, so that a test can tell that they were."""

    def __init__(self) -> None:
        self.hedged = 0
        self.lost = 0
        self.shared: Counter[str] = Counter()
        """What came of the index and of forwarding."""

    def put_hedged(self) -> None:
        self.hedged += 1

    def slot_lost(self) -> None:
        self.lost += 1

    def index_lookup(self, kind: str, hit: bool) -> None:
        self.shared[f"index {kind} {'hit' if hit else 'miss'}"] += 1

    def index_wrong(self) -> None:
        self.shared["index wrong"] += 1

    def commit_forwarded(self, outcome: str) -> None:
        self.shared[f"forward {outcome}"] += 1


class Shared:
    """What replicas share besides storage, and can all do without."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: str, trace: Trace) -> None:
        self.database = Database(random.Random(f"{seed} database"), trace)
        self.leases = MemoryLeases(loop.time)
        self.addresses: dict[str, Post] = {}


class ConnectionLost(Exception):
    """The client got no answer: the replica is down, died, or took too long."""


class Replica:
    """One replica. Clients reach it through `call`."""

    def __init__(
        self,
        name: str,
        truth: Truth,
        plan: Plan,
        skew_ms: int,
        seed: str,
        journal: Journal,
        trace: Trace,
        shared: Shared,
    ) -> None:
        self.name = name
        self.faults: Faults = plan.faults
        self.up = False
        self._truth = truth
        self._plan = plan
        self.skew_ms = skew_ms
        """How far its clock is ahead of the true time."""
        self._world: SimWorld | None = None
        self._seed = seed
        self._journal = journal
        self._trace = trace
        self._lives = 0
        self._healed = False
        self._hang_ups = random.Random(f"{seed} hang ups {name}")
        self._owner = Owner(name)
        self._link: Link | None = None
        self._coordinator: Coordinator | None = None
        self.telemetry = Counted()
        self._shared = shared
        self._database: IndexLink | None = None
        self._ways: tuple[LeaseLink, PeerLink] | None = None
        self._door: Door | None = None
        shared.addresses[self.url] = self._posted

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
        world = SimWorld(loop, random.Random(f"{self._seed} world {life}"), skew_ms=self.skew_ms)
        self._world = world
        roots = Roots(Root(self._truth.uri, self._link, hedge=self._plan.hedge))
        self._coordinator = Coordinator(
            roots,
            world,
            self.telemetry,
            settings=self._plan.committer,
            cache_ttl_seconds=self._plan.cache_ttl,
            cache_max_versions=self._plan.cache_versions,
            max_open_tables=self._plan.max_open_tables,
            index=self._index(life),
        )
        if self._coordinator.ingest is not None:
            self._begin(self._coordinator.ingest.run())
        self._share(life, world)
        self.up = True
        self._trace.append((loop.time(), life, "up"))

    def set_clock(self, ahead_ms: int) -> None:
        """Set its wall clock; its monotonic clock goes on. A restart does not set it right."""
        self.skew_ms = ahead_ms
        if self._world is not None:
            self._world.skew_ms = ahead_ms

    @property
    def url(self) -> str:
        """Where other replicas reach it, in every life."""
        return f"sim://{self.name}"

    def _index(self, life: str) -> IndexLink | None:
        if self._plan.index is None:
            return None
        faults = IndexFaults() if self._healed else self._plan.index
        rng = random.Random(f"{self._seed} index {life}")
        self._database = IndexLink(self._shared.database, faults, rng, life, self._trace)
        return self._database

    def _share(self, life: str, world: SimWorld) -> None:
        """Take part in bringing commits together, where the plan has that."""
        if self._plan.routing is None or self._coordinator is None:
            return
        faults = RoutingFaults() if self._healed else self._plan.routing
        rng = random.Random(f"{self._seed} routing {life}")
        leases = LeaseLink(self._shared.leases, rng, faults, life, self._trace)
        peers = PeerLink(self._shared.addresses, rng, faults, life, self._trace)
        ownership = Ownership(leases, RouteOwner(life, self.url), world, self.telemetry, lease_seconds=LEASE_SECONDS)
        self._ways = (leases, peers)
        self._door = Door(self._coordinator, Forwarding(ownership, peers, world, self.telemetry))
        self._begin(ownership.keep())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that goes on until the replica dies."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self._owner)
        asyncio.get_running_loop().create_task(work, context=context)

    async def commit(self, table: str, body: bytes) -> Committed:
        """A commit at its door, as part of a call: it may be sent on to another replica. Raises ProblemError."""
        assert self._door is not None
        return told(*await self._door.post(table, body))

    async def _posted(self, table: str, body: bytes, query: bytes, timeout: float) -> tuple[int, bytes]:
        """A commit that another replica sent on. No answer is a connection that broke."""
        door = self._door
        if door is None:
            raise ConnectionError
        try:
            return await self.call(lambda _: door.post(table, body, query), timeout)
        except ConnectionLost as error:
            raise ConnectionError from error

    def crash(self) -> None:
        """Die: everything it was doing ends where it is, and what it sent to storage stays sent."""
        if self.up and self._link is not None:
            self.up = False
            self._link.cut()
            self._owner.cancel_all()
            self._coordinator = None
            self._trace.append((asyncio.get_running_loop().time(), self._owner.name, "crash"))

    def heal(self) -> None:
        """Storage is well from now on, and so is everything else."""
        self._healed = True
        self.faults = Faults()
        if self._database is not None:
            self._database.faults = IndexFaults()
        for way in self._ways or ():
            way.faults = RoutingFaults()
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
