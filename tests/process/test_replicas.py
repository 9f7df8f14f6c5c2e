"""Several replicas share tables by leases: commits come together at one, and go on without it, the database, or both.

Whatever happens to the replicas, every answer is held against the log: nothing acknowledged is lost, nothing is there
twice. That commits share versions is what leases are for; that they are safe never depends on one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from tarnlog import AsyncClient, Committed
from tarnlog.protocol.actions import Action
from tests.process.journal import check
from tests.process.load import SCHEMA, TABLE, Load, client_of, file, load_on
from tests.process.log_reading import read_log
from tests.process.raw import RawWriter, add
from tests.process.sharing import Group, group, metric, owner_among, role, until
from tests.service_process import ServiceProcess

__all__ = ["group"]  # a fixture
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]
WRITERS = 8
IN_HAND = 4 * WRITERS
"""The most that writers wait for at a time: two rivals, each sent to two replicas."""
on_disk = pytest.mark.parametrize("group", ["disk"], indirect=True)


async def sent_on(replicas: list[ServiceProcess], outcome: str = "relay") -> float:
    """How many commits these replicas had written by another."""
    return sum([await metric(one, "tarnlog_commits_forwarded_total", outcome=outcome) for one in replicas])


@on_disk
async def test_commits_sent_to_two_replicas_come_together_at_one(group: Group, rng: random.Random) -> None:
    # Long enough that a slow machine changes nothing about who holds the table.
    patient = {"TARNLOG_LEASE_SECONDS": "300", "TARNLOG_FORWARD_TIMEOUT_SECONDS": "60"}
    replicas = await group.start(2, **patient)
    async with load_on([client_of(replica.url) for replica in replicas], rng, writers=WRITERS) as load:
        await load.acknowledgements(1)
        owner = await owner_among(replicas)
        (other,) = [replica for replica in replicas if replica is not owner]
        await until(lambda: _more_than([other], 0), "the other knows the owner")
        before = await metric(other, "tarnlog_batch_commits_sum")
        await until(lambda: _more_than([other], 80), "the other sends commits on")
        await load.finish()
        elsewhere = await metric(other, "tarnlog_batch_commits_sum") - before
        async with httpx.AsyncClient(base_url=other.url, timeout=60) as http:
            # Head and body of the forwarded request arrive together at the owner: the size must not matter.
            writer = RawWriter(http, load.journal)
            for files in (1, 700, 1000, 2000, 20_000):
                large = writer.new(*(add(f"large-{files}-{number}") for number in range(files)))
                assert (await writer.send(large)).status_code == 201
        assert await sent_on([other], "not-written") == 0
    log = read_log(group.storage.objects(), TABLE)
    check(load.journal, log)
    assert set(load.journal.counts()) <= {"Committed", "Conflicted", "Rejected"}, "both were well all the time"
    assert log.head < len(log.commits), "commits of both share versions"
    assert elsewhere <= IN_HAND, "what it had in hand when it learned of the owner, and nothing after"


async def test_three_replicas_go_on_whatever_happens_to_one(group: Group, rng: random.Random, long_run: bool) -> None:
    replicas = await group.start(3)
    # Little patience: writers whose replica hangs resend to another.
    clients = [client_of(replica.url, timeout=2.0, deadline=3.0) for replica in replicas]
    async with load_on(clients, rng, writers=WRITERS) as load:
        for _ in range(10 if long_run else 1):
            await load.acknowledgements(20)
            await _freeze(replicas, load)
            await _cut_off(group, replicas, load)
            await _kill(replicas, load)
            await _restart(replicas, load)
        begun = await sent_on(replicas)
        await until(lambda: _more_than(replicas, begun + 10), "commits come together again")
    check(load.journal, read_log(group.storage.objects(), TABLE))
    assert all(replica.returncode is None for replica in replicas)


async def _freeze(replicas: list[ServiceProcess], load: Load) -> None:
    """The owner is stopped: its lease passes on. When it wakes, it has lost the table and sends commits on."""
    owner = await owner_among(replicas)
    others = [replica for replica in replicas if replica is not owner]
    owner.sigstop()
    try:
        await load.acknowledgements(10)
        assert await owner_among(others) is not owner
        await load.acknowledgements(10)
    finally:
        owner.sigcont()
    await owner_among(replicas)
    await load.acknowledgements(20)


async def _cut_off(group: Group, replicas: list[ServiceProcess], load: Load) -> None:
    """The owner loses the database: it stays ready and writes what arrives at it, and another one takes the table."""
    owner = await owner_among(replicas)
    others = [replica for replica in replicas if replica is not owner]
    cable = group.cable(owner)
    await cable.cut()
    await until(lambda: _has_role(owner, "replica-cut-off"), "it notices")
    await owner_among(others)
    written = await metric(owner, "tarnlog_batch_commits_sum")
    await load.acknowledgements(20)
    await until(lambda: _wrote_more(owner, written), "it writes by itself")
    cable.mend()
    await until(lambda: _has_role(owner, "replica"), "it is back")
    await owner_among(replicas)


async def _kill(replicas: list[ServiceProcess], load: Load) -> None:
    """The owner is killed in the middle of its work; it comes back on the same address, as another one."""
    owner = await owner_among(replicas)
    owner.kill9()
    await load.acknowledgements(10)
    await owner_among([replica for replica in replicas if replica is not owner])
    owner.start(wait=False)
    await until(lambda: _is_ready(owner), "it is back")
    await load.acknowledgements(20)


async def _restart(replicas: list[ServiceProcess], load: Load) -> None:
    """The owner is stopped and started again, as for a new release."""
    owner = await owner_among(replicas)
    assert await asyncio.to_thread(owner.stop, 60.0) == 0
    await load.acknowledgements(10)
    owner.start(wait=False)
    await until(lambda: _is_ready(owner), "it is back")
    await load.acknowledgements(20)


@on_disk
async def test_new_versions_are_told_and_polled_for_when_they_cannot_be(group: Group) -> None:
    """With no follower and a head that may be an hour old, only news can make the second replica look."""
    first, second = await group.start(2, TARNLOG_HEAD_MAX_AGE_SECONDS="3600")
    async with AsyncClient(first.url) as writer, AsyncClient(second.url) as reader:
        await writer.create_table(TABLE, SCHEMA)

        async def commit(path: str) -> int:
            actions: list[Action] = [file(path)]
            done = await writer.commit(TABLE, actions)
            assert isinstance(done, Committed)
            return done.version

        async def shown(version: int) -> bool:
            return (await reader.snapshot(TABLE)).version == version

        assert (await reader.snapshot(TABLE)).version == 0
        one = await commit("one")
        await until(lambda: shown(one), "the commit is heard of")
        assert await metric(first, "tarnlog_change_notifications_total", direction="sent")
        assert await metric(second, "tarnlog_change_notifications_total", direction="received")

        cable = group.cable(second)
        await cable.cut()
        two = await commit("two")
        assert await shown(one), "nobody told it"
        cable.mend()
        await until(lambda: shown(two), "what was missed is looked at when the connection is back")

        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", f"{second.url}/v1/tables/{TABLE}/events") as events,
        ):
            lines = events.aiter_lines()
            assert await anext(lines) == ": following"
            for path in ("three", "four"):
                version = await commit(path)
                assert await _next_event(lines) == version
            await cable.cut()
            version = await commit("five")
            assert await _next_event(lines) == version, "a follower polls"
        assert await role(second) in ("replica", "replica-cut-off")


async def _next_event(lines: AsyncIterator[str]) -> int:
    while True:
        line = await anext(lines)
        if line.startswith("id:"):
            return int(line.removeprefix("id:"))


async def _more_than(replicas: list[ServiceProcess], count: float) -> bool:
    return await sent_on(replicas) > count


async def _has_role(replica: ServiceProcess, wanted: str) -> bool:
    return await role(replica) == wanted


async def _wrote_more(replica: ServiceProcess, before: float) -> bool:
    return await metric(replica, "tarnlog_batch_commits_sum") > before


async def _is_ready(replica: ServiceProcess) -> bool:
    try:
        return bool(await role(replica))
    except (httpx.HTTPError, AssertionError):
        return False
