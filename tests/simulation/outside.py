"""Actors beside the clients: a writer that goes around the service, a follower, a janitor that drops tables.

The outside writer keeps the one rule there is for it: it creates N.json with put-if-absent after it has read all below.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.object_store import OutcomeUnknown, PutResult, StoreError, StoreRefused
from tarnlog_server.usecases.coordinator import Coordinator
from tests.simulation.bodies import Bodies, Json
from tests.simulation.journal import Followed, Outside
from tests.simulation.log_model import Broken, Log, read_tables
from tests.simulation.replica import ConnectionLost
from tests.simulation.sim import Sim, as_json
from tests.simulation.storage import Link


class Outsider:
    """Another program that writes to the same log."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed} outsider")
        self._bodies = Bodies("out", self._rng)
        link_rng = random.Random(f"{sim.seed} outsider link")
        self._link = Link(sim.truth, sim.plan.faults, link_rng, "outside", sim.trace)

    async def run(self) -> None:
        for _ in range(self._rng.randint(1, 8)):
            await self._sim.think(self._rng)
            for _ in range(20):
                log = self._newest()
                if log is None or log.dropped_at is not None:
                    break
                if await self._create(log.key(len(log.versions)), self._content(log)):
                    break

    def _newest(self) -> Log | None:
        try:
            logs = read_tables(self._sim.truth.raw(), self._sim.truth.created).get(self._sim.tables[0], [])
        except Broken:
            return None  # the checker will say so
        return logs[-1] if logs else None

    def _content(self, log: Log) -> bytes:
        lines: list[Json] = [self._bodies.add()]
        live = sorted(log.versions[-1].after.files)
        if live and self._rng.random() < 0.4:
            lines.append(self._bodies.remove(self._rng.choice(live)))
        if self._rng.random() < 0.5:
            info = {
                "timestamp": self._sim.clock.now_ms(),
                "operation": "WRITE",
                "isBlindAppend": False,
                "tool": "other",
            }
            lines.insert(0, {"commitInfo": info})
        text = "\n".join(json.dumps(line) for line in lines).encode()
        return gzip.compress(text, mtime=0) if self._rng.random() < 0.3 else text

    async def _create(self, key: str, data: bytes) -> bool:
        while True:
            try:
                if await self._link.put_if_absent(key, data) is PutResult.CREATED or await self._is(key, data):
                    self._sim.journal.outside.append(Outside(key, data))
                    return True
                return False
            except StoreRefused:
                return False
            except OutcomeUnknown:
                await asyncio.sleep(0.05)

    async def _is(self, key: str, data: bytes) -> bool:
        while True:
            try:
                return await self._link.get(key) == data
            except StoreError:
                await asyncio.sleep(0.05)


class Follower:
    """Follows the first table's changes and takes the feed up again where it broke."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._rng = random.Random(f"{sim.seed} follower")

    async def run(self) -> None:
        after = -1
        table = self._sim.tables[0]
        name = TableName.parse(table)
        while True:
            replica = self._rng.choice(self._sim.replicas)
            feed = Followed(table, after, replica.name, self._sim.loop.time())
            self._sim.journal.followed.append(feed)

            async def consume(coordinator: Coordinator, feed: Followed = feed) -> None:
                async for change in await coordinator.history.follow(name, feed.after):
                    if change is not None:
                        feed.changes.append(as_json(change))
                feed.finished = True

            try:
                await replica.call(consume, 1e9)
            except (ProblemError, ConnectionLost):
                await asyncio.sleep(self._rng.random())
            if feed.finished:
                after = -1
            elif feed.changes:
                after = feed.changes[-1]["version"]


async def janitor(sim: Sim) -> None:
    """Drop the first table and create it again, a few times, while everyone goes on."""
    rng = random.Random(f"{sim.seed} janitor")
    table = sim.tables[0]
    for _ in range(rng.randint(1, 2)):
        for _ in range(rng.randint(2, 12)):
            await sim.think(rng)
        await sim.drop(rng.choice(sim.replicas), table, purge=rng.random() < 0.3)
        for _ in range(rng.randint(0, 4)):
            await sim.think(rng)
        creators = sim.replicas if rng.random() < 0.3 else [rng.choice(sim.replicas)]
        await asyncio.gather(*(sim.create(replica, table) for replica in creators))
