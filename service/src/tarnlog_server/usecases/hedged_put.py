"""One PUT of fixed bytes, hedged: when the first is slower than most were lately, a second identical one is sent.

Legal because the bytes are the same: whichever lands, the slot holds our object, and the other one is told EXISTS.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tarnlog_server.core.ratify import Fact
from tarnlog_server.ports.object_store import ObjectStore, OutcomeUnknown, PutResult, StoreRefused
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World

MIN_SAMPLES = 20
MIN_HEDGE_SECONDS = 0.02


class HedgedPut:
    """Conditional creates on one store. `hedge` is off for local disks, where a second fsync only adds load."""

    def __init__(self, store: ObjectStore, world: World, telemetry: Telemetry, *, hedge: bool) -> None:
        self._store = store
        self._world = world
        self._telemetry = telemetry
        self._hedge = hedge
        self._seconds: deque[float] = deque(maxlen=100)
        self._strays: set[asyncio.Task[Fact]] = set()
        self.refusal = ""
        """What the store said when it last refused."""

    async def put(self, key: str, data: bytes) -> Fact:
        """CREATED, EXISTS, UNKNOWN or REFUSED: what is known after at most two PUTs of the same bytes."""
        after = self._hedge_after()
        if after is None:
            return await self._once(key, data)
        first = asyncio.ensure_future(self._once(key, data))
        done, _ = await asyncio.wait({first}, timeout=after)
        if done:
            return first.result()
        self._telemetry.put_hedged()
        return await self._first_certain(first, asyncio.ensure_future(self._once(key, data)))

    async def close(self) -> None:
        """Wait for PUTs that were overtaken by their twin."""
        if self._strays:
            await asyncio.wait(self._strays, timeout=5)

    async def _once(self, key: str, data: bytes) -> Fact:
        started = self._world.monotonic()
        try:
            result = await self._store.put_if_absent(key, data)
        except OutcomeUnknown:
            return Fact.UNKNOWN
        except StoreRefused as error:
            self.refusal = str(error)
            return Fact.REFUSED
        self._seconds.append(self._world.monotonic() - started)
        return Fact.CREATED if result is PutResult.CREATED else Fact.EXISTS

    async def _first_certain(self, *puts: asyncio.Future[Fact]) -> Fact:
        pending = set(puts)
        facts: set[Fact] = set()
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            facts |= {put.result() for put in done}
            for certain in (Fact.CREATED, Fact.EXISTS):
                if certain in facts:
                    self._keep(pending)
                    return certain
        return Fact.UNKNOWN if Fact.UNKNOWN in facts else Fact.REFUSED

    def _keep(self, pending: set[asyncio.Future[Fact]]) -> None:
        for task in pending:
            if isinstance(task, asyncio.Task):
                self._strays.add(task)
                task.add_done_callback(self._strays.discard)

    def _hedge_after(self) -> float | None:
        if not self._hedge or len(self._seconds) < MIN_SAMPLES:
            return None
        ordered = sorted(self._seconds)
        return max(MIN_HEDGE_SECONDS, ordered[int(0.95 * len(ordered))])
