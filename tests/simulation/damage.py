"""Runs in which the log is damaged: a version is lost, or copied into another slot, or comes from a fork of the log.

The rule for every answer afterwards: it is true of the log as it was written, or it is `log-corrupt`. The truth keeps
what was damaged as it was, so the checker judges such a run as any other: a commit that was acknowledged in or over a
hole is not in that log, and a read that took the hole for the head is too old.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import zlib

from tests.simulation.clients import Client, is_final
from tests.simulation.journal import Damage
from tests.simulation.log_model import Log, Version, read_tables
from tests.simulation.plan import CALM, MILD, Plan
from tests.simulation.run import Run, run
from tests.simulation.sim import Sim

KINDS = ("hole", "wrong slot", "copy behind", "fork")
PAUSES = (7.0, 20.0, 55.0, 70.0)
"""How long nobody writes after the damage: longer than a replica goes on without a listing beside its PUT."""
SETTLED_SECONDS = 30.0
CRC_AT = len(b'{"commitInfo":{"crc32":"')


def damaged_plan(plan: Plan) -> Plan:
    """Storage that is well or nearly so, and nobody else who deletes: what goes wrong is the damage."""
    return dataclasses.replace(
        plan,
        faults=CALM if plan.faults.read_error > 0.1 else MILD,
        outsider=False,
        follower=False,
        drops=False,
        cleanup=False,
        crashes=0,
        lulls=(),
        routing=None,
        client_timeout=60.0,
        think=min(plan.think, 0.05),
        max_open_tables=1000,
        steps=min(plan.steps, 6),
        mix={**plan.mix, "state": 0.7, "cleanup": 0.0, "vacuum": 0.0, "in_session": 0.0},
    )


def run_damaged(seed: int | str, kinds: tuple[str, ...] = KINDS) -> Run:
    """Run one seed with damage of some kind in the middle of it."""
    return run(f"damaged {seed}", adjust=damaged_plan, everything=lambda sim: _everything(sim, kinds))


async def _everything(sim: Sim, kinds: tuple[str, ...]) -> None:
    rng = random.Random(f"{sim.seed} damage")
    for replica in sim.replicas:
        replica.start()
    for table in sim.tables:
        while not is_final(await sim.create(sim.replicas[0], table)):  # noqa: ASYNC110 (it is a retry)
            await asyncio.sleep(1.0)
    await asyncio.gather(*(Client(sim, f"c{index}").run() for index in range(sim.plan.clients)))
    await asyncio.sleep(SETTLED_SECONDS)
    # One of them is behind when it happens: it has not seen what the other one wrote last.
    ahead, behind = rng.sample(sim.replicas, 2)
    seen = await sim.snapshot(behind, sim.tables[0], 0)
    writer = Client(sim, "w")
    for _ in range(rng.randrange(6)):
        body = writer.bodies.body("WRITE", [writer.bodies.add()])
        await sim.commit(ahead, sim.tables[0], writer.new_id(), body)
    await asyncio.sleep(1.0)
    _damage(sim, rng, rng.choice(kinds), None if seen is None else seen["version"] + 1)
    await asyncio.sleep(rng.choice(PAUSES))
    for replica in sim.replicas:
        if rng.random() < 0.4:
            replica.crash()
            await asyncio.sleep(0.1)
            replica.start()
    await asyncio.gather(*(Client(sim, f"d{index}").run() for index in range(sim.plan.clients)))
    for replica in sim.replicas:
        replica.heal()
    await asyncio.sleep(SETTLED_SECONDS)
    sim.journal.calm_since = sim.loop.time()
    for table in sim.tables:
        for replica in sim.replicas:
            await sim.snapshot(replica, table, 0)
            await sim.files(replica, table, 0, 1000)
            await sim.changes(replica, table, 0, 1000)
            versions = range(len(_log(sim, table).versions))
            for version in rng.sample(versions, min(len(versions), 4)):
                await sim.snapshot(replica, table, 60, version=version)


def _log(sim: Sim, table: str) -> Log:
    return read_tables(sim.truth.raw(), sim.truth.created)[table][-1]


def _damage(sim: Sim, rng: random.Random, kind: str, unseen: int | None) -> None:
    """Damage one version of the first table, at one instant; at times the first that a replica has not seen."""
    table = sim.tables[0]
    log = _log(sim, table)
    newest = log.versions[-1].number
    if newest < 3:
        return
    states = [key for key in sim.truth.raw() if key.startswith(f"{log.root}state-v") and key.endswith("_manifest.json")]
    state = max((int(key.removeprefix(f"{log.root}state-v")[:20]) for key in states), default=-1)
    # The newest version that is lost leaves no trace but a state of it; a fork shows at the version behind it.
    version = rng.randrange(max(state + 1, 0) if rng.random() < 0.7 and state + 1 < newest else 0, newest)
    if unseen is not None and unseen < newest and rng.random() < 0.5:
        version = unseen
    if kind == "hole":
        sim.truth.vandalise(log.key(version), None)
    elif kind == "wrong slot":
        source = rng.choice([one.number for one in log.versions if one.number != version])
        sim.truth.vandalise(log.key(version), sim.truth.raw()[log.key(source)][0])
    elif kind == "copy behind":
        version = newest + 1
        sim.truth.vandalise(log.key(version), sim.truth.raw()[log.key(rng.randrange(newest + 1))][0])
    else:
        forked = _forked(sim.truth.raw()[log.key(version)][0], log.versions[version], rng)
        if forked is None:
            return
        sim.truth.vandalise(log.key(version), forked)
    at = sim.loop.time()
    sim.trace.append((at, "vandal", kind, version, state, newest))
    sim.journal.damage.append(Damage(table, kind, version, log.key(version), at, needed=version >= state))


def _forked(data: bytes, version: Version, rng: random.Random) -> bytes | None:
    """The same version of another history: whole, of another identity, and it adds another file. None if compressed."""
    if not data.startswith(b'{"commitInfo":{"crc32":"'):
        return None
    lines = [json.loads(line) for line in data.splitlines()]
    info = lines[0]["commitInfo"]
    info["putId"] = f"{rng.getrandbits(128):032x}"
    info["crc32"] = "0" * 8
    for sub in info["subCommits"]:
        sub["commitId"] = f"{sub['commitId'][:-12]}{rng.getrandbits(48):012x}"
    for line in lines[1:]:
        if "add" in line:
            line["add"]["path"] += ".fork"
    text = b"\n".join([json.dumps(line, separators=(",", ":")).encode() for line in lines] + [b""])
    return text[:CRC_AT] + b"%08x" % zlib.crc32(text) + text[CRC_AT + 8 :]
