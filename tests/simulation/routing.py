"""Leases and forwarding in the simulation: the service's own commit route, over leases that expire and lie, and a
network between replicas that loses requests and answers.

A commit is posted to a replica as the bytes of a request. The replica may send it on to whom it believes to own the
table: to the other one, to a life of it that has ended, or to nobody at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from starlette.requests import Request

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError, from_document
from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.api.answers import problem_answer
from tarnlog_server.api.bodies import BodyLimits
from tarnlog_server.api.commits import CommitRoutes
from tarnlog_server.ports.leases import Lease, LeasesUnavailable, Owner
from tarnlog_server.ports.peers import PeerAnswer, PeerSilent
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tests.simulation.storage import Trace

LIMITS = BodyLimits(sent=2**26, inflated=2**26)


@dataclasses.dataclass(frozen=True, slots=True)
class RoutingFaults:
    """Chances from 0 to 1: of a question about leases, and of a commit that is sent on."""

    unavailable: float = 0.0  # nobody tells who holds what
    slow: float = 0.0  # the answer is older than the lease
    mine: float = 0.0  # told to hold what another holds: two owners
    stale: float = 0.0  # told of an owner that is none any more
    unreachable: float = 0.0  # a commit is not sent at all
    lost_request: float = 0.0  # sent, never arrives, and nobody can tell
    late_request: float = 0.0  # sent, arrives when the sender waits for it no more, and nobody can tell
    lost_answer: float = 0.0  # written there, and the answer is lost
    answer_seconds: float = 2.0


class LeaseLink:
    """The leases as one life of a replica is told of them."""

    def __init__(
        self, leases: MemoryLeases, rng: random.Random, faults: RoutingFaults, name: str, trace: Trace
    ) -> None:
        self.faults = faults
        self._leases = leases
        self._rng = rng
        self._name = name
        self._trace = trace
        self._seen: dict[str, Lease] = {}

    async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
        faults, roll = self.faults, self._rng.random
        await asyncio.sleep(self._rng.expovariate(1000))
        if roll() < faults.unavailable:
            self._noted("unavailable")
            raise LeasesUnavailable("the database says no")
        wanted = list(tables)
        found = await self._leases.hold(owner, wanted, seconds)
        if roll() < faults.slow:
            self._noted("slow")
            await asyncio.sleep(1.5 * seconds)
        if roll() < faults.mine:
            self._noted("two owners")
            return {table: Lease(owner, seconds) for table in wanted}
        if self._seen and roll() < faults.stale:
            self._noted("stale owner")
            return {table: self._seen.get(table, lease) for table, lease in found.items()}
        self._seen.update((table, lease) for table, lease in found.items() if lease.owner.id != owner.id)
        return found

    async def owners(self, tables: Iterable[str]) -> dict[str, Lease]:
        return await self._leases.owners(tables)

    async def release(self, owner: Owner, tables: Iterable[str]) -> None:
        if self._rng.random() < self.faults.unavailable:
            raise LeasesUnavailable("the database says no")
        await self._leases.release(owner, tables)

    async def close(self) -> None:
        return None

    def _noted(self, fault: str) -> None:
        self._trace.append((asyncio.get_running_loop().time(), self._name, "lease", fault))


Post = Callable[[str, bytes, bytes, float], Any]
"""Posts a body for a table, with a query, to whoever listens at an address; raises what a client sees."""


class PeerLink:
    """The way from one replica to the others, by address."""

    def __init__(
        self, post: dict[str, Post], rng: random.Random, faults: RoutingFaults, name: str, trace: Trace
    ) -> None:
        self.faults = faults
        self._post = post
        self._rng = rng
        self._name = name
        self._trace = trace
        self._on_their_way: set[asyncio.Task[None]] = set()

    async def _late(self, owner: Owner, table: str, body: bytes) -> None:
        await asyncio.sleep(self.faults.answer_seconds * (0.5 + 2 * self._rng.random()))
        with contextlib.suppress(ConnectionError):
            await self._post[owner.url](table, body, f"replica={owner.id}".encode(), self.faults.answer_seconds)

    async def commit(self, owner: Owner, table: str, body: bytes, headers: dict[str, str]) -> PeerAnswer:
        faults, roll = self.faults, self._rng.random
        await asyncio.sleep(self._rng.expovariate(1000))
        if owner.url not in self._post or roll() < faults.unreachable:
            self._noted("unreachable")
            raise PeerSilent("nobody is there", sent=False)
        if roll() < faults.lost_request:
            self._noted("lost request")
            await asyncio.sleep(faults.answer_seconds)
            raise PeerSilent("no answer", sent=True)
        if roll() < faults.late_request:
            self._noted("late request")
            late = asyncio.get_running_loop().create_task(self._late(owner, table, body))
            self._on_their_way.add(late)
            late.add_done_callback(self._on_their_way.discard)
            await asyncio.sleep(faults.answer_seconds)
            raise PeerSilent("no answer", sent=True)
        try:
            status, answer = await self._post[owner.url](
                table, body, f"replica={owner.id}".encode(), faults.answer_seconds
            )
        except ConnectionError as error:
            self._noted("no answer")
            raise PeerSilent("the connection broke", sent=True) from error
        if roll() < faults.lost_answer:
            self._noted("lost answer")
            raise PeerSilent("the answer was lost", sent=True)
        return PeerAnswer(status, answer, "application/json" if status < 300 else "application/problem+json")

    async def close(self) -> None:
        return None

    def _noted(self, fault: str) -> None:
        self._trace.append((asyncio.get_running_loop().time(), self._name, "forward", fault))


class Door:
    """The commit route of one life of a replica, without the network in front of it."""

    def __init__(self, coordinator: Coordinator, forwarding: Forwarding) -> None:
        self._posted = CommitRoutes(coordinator, LIMITS, forwarding).operations()[0].endpoint

    async def post(self, table: str, body: bytes, query: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of the answer, whatever it is."""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        scope = {
            "type": "http",
            "query_string": query,
            "headers": [(b"content-type", b"application/json")],
            "path_params": {"table": TableName.parse(table)},
        }
        try:
            answer: Any = await self._posted(Request(scope, receive))
        except ProblemError as problem:
            answer = problem_answer(problem)
        return answer.status_code, bytes(answer.body)


def told(status: int, body: bytes) -> Committed:
    """What a client makes of an answer. Raises the problem that it is told."""
    if status < 300:
        return msgspec.json.decode(body, type=Committed)
    raise from_document(status, msgspec.json.decode(body))
