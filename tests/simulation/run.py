"""One run of the simulation, from a seed to what everybody saw and what storage holds."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tarnlog_server.usecases import hedged_put
from tests.simulation.clients import Client, Pending, is_final
from tests.simulation.journal import Journal
from tests.simulation.loop import Hang, SimLoop
from tests.simulation.outside import Follower, Outsider, janitor
from tests.simulation.plan import Plan, make_plan
from tests.simulation.sim import Sim
from tests.simulation.storage import Trace

MAX_VIRTUAL_SECONDS = 400_000.0


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What is left of a run."""

    journal: Journal
    objects: dict[str, tuple[bytes, int]]
    created: dict[str, float]
    trace: Trace
    hedged: int
    lost: int
    shared: Counter[str]
    """What came of the index and of forwarding."""

    def trace_hash(self) -> str:
        """A digest of everything that happened, in order."""
        return hashlib.sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()


class _Errors(logging.Handler):
    """The service's own error logs: nothing a client or a store does may cause one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


def run(
    seed: int | str,
    *,
    adjust: Callable[[Plan], Plan] | None = None,
    broken_create: bool = False,
    everything: Callable[[Sim], Coroutine[Any, Any, None]] | None = None,
) -> Run:
    """Run one seed. `adjust` changes its plan; `broken_create` is the control with a store that breaks its promise;
    `everything` is what happens, in place of the usual storm and calm."""
    plan = make_plan(str(seed))
    if adjust is not None:
        plan = adjust(plan)
    loop = SimLoop(random.Random(f"{seed} loop"), shuffle=plan.shuffle, max_virtual_seconds=MAX_VIRTUAL_SECONDS)
    trace: Trace = []
    sim = Sim(str(seed), plan, loop, trace)
    sim.truth.broken_create = broken_create
    errors = _Errors()
    logger = logging.getLogger("tarnlog_server")
    logger.addHandler(errors)
    propagate, logger.propagate = logger.propagate, False
    samples, hedged_put.MIN_SAMPLES = hedged_put.MIN_SAMPLES, 2  # runs are too short to learn what is slow
    try:
        loop.run((everything or _everything)(sim))
    except Hang as hang:
        sim.journal.faults_of_ours.append(f"hang: {hang}")
    except Exception as error:
        error.add_note(f"in seed {seed}")
        raise
    finally:
        logger.removeHandler(errors)
        logger.propagate = propagate
        hedged_put.MIN_SAMPLES = samples
    sim.journal.faults_of_ours += errors.found + loop.unexpected
    # A write that lands late may bring back a session that was ended: that protects too much, and never too little.
    sim.journal.sessions_in_doubt |= any("/_sessions/" in key for key in sim.truth.raw().keys() - sim.truth.missing())
    sim.journal.deleted, sim.journal.missing = sim.truth.deletions, sim.truth.missing()
    hedged = sum(replica.telemetry.hedged for replica in sim.replicas)
    lost = sum(replica.telemetry.lost for replica in sim.replicas)
    shared = sum((replica.telemetry.shared for replica in sim.replicas), Counter[str]())
    return Run(sim.journal, sim.truth.raw(), sim.truth.created, trace, hedged, lost, shared)


async def _everything(sim: Sim) -> None:
    rng = random.Random(f"{sim.seed} run")
    for replica in sim.replicas:
        replica.start()
    for table in sim.tables:
        while not is_final(await sim.create(rng.choice(sim.replicas), table)):  # noqa: ASYNC110 (it is a retry)
            await asyncio.sleep(1.0)
    _plan_crashes(sim, rng)
    clients = [Client(sim, f"c{index}") for index in range(sim.plan.clients)]
    actors = [client.run() for client in clients]
    if sim.plan.outsider:
        actors.append(Outsider(sim).run())
    if sim.plan.drops:
        actors.append(janitor(sim))
    follower = asyncio.create_task(Follower(sim).run()) if sim.plan.follower else None
    await asyncio.gather(*actors)
    await _calm(sim, clients)
    if follower is not None:
        await asyncio.sleep(20.0)
        sim.journal.feed_is_complete = True
        follower.cancel()


def _plan_crashes(sim: Sim, rng: random.Random) -> None:
    points = {rng.randrange(1, 500) + sim.truth.operations: rng.choice(sim.replicas) for _ in range(sim.plan.crashes)}

    def maybe_crash(operations: int) -> None:
        replica = points.pop(operations, None)
        if replica is not None and replica.up:
            sim.loop.call_soon(replica.crash)
            sim.loop.call_later(rng.choice((0.01, 1.0, 8.0)), lambda: None if replica.up else replica.start())

    sim.truth.on_operation = maybe_crash


async def _calm(sim: Sim, clients: list[Client]) -> None:
    """The storm is over: everybody gets a real answer, and both replicas show the same table."""
    sim.truth.on_operation = lambda operations: None
    for replica in sim.replicas:
        replica.heal()
    sim.clocks.heal(sim.loop.time())
    await asyncio.sleep(sim.plan.faults.late_seconds + 10.0)
    for replica in sim.replicas:
        if not replica.up:
            replica.start()
    await asyncio.gather(*(_settle_all(sim, client) for client in clients))
    if sim.plan.cleanup:
        await _clean_up(sim)
    for table in sim.tables:
        for replica in sim.replicas:
            await sim.files(replica, table, 0, 1000)
            await sim.snapshot(replica, table, 0)
            await sim.changes(replica, table, None if sim.plan.cleanup else 0, 1000)

    if sim.plan.index is not None:
        # By now the index has caught up with everything, and what was wrong with it was made again.
        await asyncio.sleep(40.0)
        for table in sim.tables:
            for replica in sim.replicas:
                await sim.history(replica, table, 60, 1000)


async def _clean_up(sim: Sim) -> None:
    """A day later, both replicas clean up at once, and vacuum; then every version is asked for."""
    for _ in range(sim.plan.last_cleanups):
        await asyncio.sleep(90_000.0)
        for table in sim.tables:
            await asyncio.gather(*(sim.cleanup(replica, table) for replica in sim.replicas))
            await asyncio.gather(*(sim.vacuum(replica, table) for replica in sim.replicas))
    for table in sim.tables:
        head = await sim.snapshot(sim.replicas[0], table, 0)
        for version in range(head["version"] + 1 if head is not None else 0):
            await sim.snapshot(sim.replicas[version % 2], table, 0, version=version)


async def _settle_all(sim: Sim, client: Client) -> None:
    for pending in client.pending:
        await _settle(sim, client, pending)
    for pending in client.done[-2:]:
        await sim.status(client.replica(), pending.table, pending.commit_id)


async def _settle(sim: Sim, client: Client, pending: Pending) -> None:
    for _ in range(40):
        if is_final(await client.send(pending, client.replica())):
            return
        await asyncio.sleep(client.rng.random() * 3)
    sim.journal.unanswered.append(f"{pending.kind} {pending.commit_id} of {pending.table}")
