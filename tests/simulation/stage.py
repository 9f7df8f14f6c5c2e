"""A quiet stage for scenarios: two replicas on one store, where only what the scenario says goes wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tarnlog.protocol.ids import uuid7
from tarnlog_server.usecases.committer import CommitterSettings
from tests.simulation.bodies import Bodies, Json
from tests.simulation.checker import check
from tests.simulation.journal import Send
from tests.simulation.log_model import Log, read_tables
from tests.simulation.loop import SimLoop
from tests.simulation.plan import Plan, make_plan
from tests.simulation.replica import Replica
from tests.simulation.sim import Sim
from tests.simulation.storage import Faults, done

TABLE = "sim.t"


class Stage:
    """Two replicas, `one` and `two`, and one table."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.one, self.two = sim.replicas
        self.bodies = Bodies("s", random.Random("bodies"))
        self._rng = random.Random("ids")

    def new_id(self) -> str:
        return str(uuid7(self.sim.clock.now_ms(), self._rng))

    def append(self, **fields: Any) -> Json:
        """A body that adds one file."""
        return self.bodies.body("WRITE", [self.bodies.add()], **fields)

    async def commit(self, replica: Replica, body: Json | None = None, commit_id: str | None = None) -> Send:
        """Commit a body (a blind append by default) under an id (a new one by default)."""
        return await self.sim.commit(replica, TABLE, commit_id or self.new_id(), body or self.append())

    def log(self) -> Log:
        """The newest log of the table, read from its bytes."""
        return read_tables(self.sim.truth.raw(), self.sim.truth.created)[TABLE][-1]

    def slots(self) -> list[str]:
        """The version files there are now."""
        keys = [info.key for info in done(self.sim.truth.list(self.log().root, limit=1000))]
        return [key.rsplit("/", 1)[1] for key in keys if key.endswith(".json") and "/state-v" not in key]


def play(
    scenario: Callable[[Stage], Awaitable[None]],
    *,
    committer: CommitterSettings | None = None,
    skews_ms: tuple[int, int] = (0, 0),
    faults: Faults | None = None,
    properties: dict[str, str] | None = None,
) -> None:
    """Play a scenario on a fresh stage with an empty table; afterwards the checker must have no complaint."""
    plan: Plan = dataclasses.replace(
        make_plan("stage"),
        faults=faults or Faults(),
        committer=committer or CommitterSettings(),
        shuffle=False,
        hedge=False,
        skews_ms=skews_ms,
        properties=properties or {},
        client_timeout=1000.0,
        max_open_tables=1000,
        cache_ttl=300.0,
        cache_versions=1000,
    )
    loop = SimLoop(random.Random("stage"), shuffle=False, max_virtual_seconds=1e6)
    sim = Sim("stage", plan, loop, [])

    async def run() -> None:
        for replica in sim.replicas:
            replica.start()
        await sim.create(sim.replicas[0], TABLE)
        await scenario(Stage(sim))
        await asyncio.sleep(100.0)

    loop.run(run())
    assert check(sim.journal, sim.truth.raw(), sim.truth.created) == []
