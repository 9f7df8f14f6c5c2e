"""Leases as one replica knows them: taken behind commits, renewed while used, given up when idle, lost in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.ports.leases import Lease, LeasesUnavailable, Owner
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.ownership import Ownership
from tests.usecases.replicas import FakeWorld

A, B = Owner("a", "http://a"), Owner("b", "http://b")
SECONDS = 9.0


class Database(MemoryLeases):
    """Leases whose database can be away, and that count what is asked."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__(world.monotonic)
        self.up = True
        self.asked: list[list[str]] = []

    async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
        wanted = list(tables)
        self.asked.append(wanted)
        if not self.up:
            raise LeasesUnavailable("it is away")
        return await super().hold(owner, wanted, seconds)


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def database(world: FakeWorld) -> Database:
    return Database(world)


def replica(me: Owner, database: Database, world: FakeWorld) -> Ownership:
    return Ownership(database, me, world, Telemetry(), lease_seconds=SECONDS)


async def test_nothing_is_asked_before_something_was_written(database: Database, world: FakeWorld) -> None:
    a = replica(A, database, world)
    assert a.owner("s.t") is None
    await a.round()
    assert database.asked == []


async def test_the_first_writer_holds_the_table_and_others_send_to_it(database: Database, world: FakeWorld) -> None:
    a, b = replica(A, database, world), replica(B, database, world)
    for one in (a, b):
        one.used("s.t")
        await one.round()
    assert (a.owner("s.t"), b.owner("s.t")) == (None, A)
    assert (a.held(), b.held()) == (["s.t"], [])


async def test_a_table_in_use_is_renewed_in_time_and_an_idle_one_is_given_up(
    database: Database, world: FakeWorld
) -> None:
    a, b = replica(A, database, world), replica(B, database, world)
    for _ in range(10):
        a.used("s.t")
        await a.round()
        world.advance(SECONDS / 2)
    assert a.held() == ["s.t"]
    for _ in range(8):
        world.advance(SECONDS / 2)
        await a.round()
    assert a.held() == []
    b.used("s.t")
    await b.round()
    assert b.held() == ["s.t"]


async def test_a_fresh_lease_is_not_asked_for_again(database: Database, world: FakeWorld) -> None:
    a = replica(A, database, world)
    for _ in range(3):
        a.used("s.t")
        await a.round()
    assert len(database.asked) == 1


async def test_what_is_known_runs_out_while_the_database_is_away(database: Database, world: FakeWorld) -> None:
    a, b = replica(A, database, world), replica(B, database, world)
    for one in (a, b):
        one.used("s.t")
        await one.round()
    database.up = False
    world.advance(SECONDS + 1)
    for one in (a, b):
        assert one.owner("s.t") is None
        assert one.held() == []
        one.used("s.t")
        with pytest.raises(LeasesUnavailable):
            await one.round()
    database.up = True
    await b.round()
    assert b.held() == ["s.t"]


async def test_a_lease_ends_here_before_it_ends_in_the_database(database: Database, world: FakeWorld) -> None:
    """The time the question took is not counted as held."""

    class Slow(Database):
        async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
            found = await super().hold(owner, tables, seconds)
            world.advance(5)
            return found

    slow = Slow(world)
    a = replica(A, slow, world)
    a.used("s.t")
    await a.round()
    world.advance(SECONDS - 5)
    assert a.held() == []


async def test_a_replica_that_fails_is_left_alone_longer_and_longer(database: Database, world: FakeWorld) -> None:
    a, b = replica(A, database, world), replica(B, database, world)
    for one in (a, b):
        one.used("s.t")
        await one.round()
    for _ in range(5):  # sent at the same time, failed at the same time
        b.distrust(A)
    assert b.owner("s.t") is None
    world.advance(1.1)
    assert b.owner("s.t") == A
    b.distrust(A)
    world.advance(1.1)
    assert b.owner("s.t") is None
    world.advance(1.0)
    assert b.owner("s.t") == A
    b.trust(A)
    b.distrust(A)
    world.advance(1.1)
    assert b.owner("s.t") == A, "an answer makes good for all failures before"


async def test_only_one_commit_tries_whether_a_replica_is_back(database: Database, world: FakeWorld) -> None:
    """A frozen replica costs one commit its time, not all of them."""
    a, b = replica(A, database, world), replica(B, database, world)
    for one in (a, b):
        one.used("s.t")
        await one.round()
    b.distrust(A)
    world.advance(1.1)
    assert [b.owner("s.t") for _ in range(3)] == [A, None, None]
    b.distrust(A)
    world.advance(2.1)
    assert [b.owner("s.t") for _ in range(3)] == [A, None, None]
    b.trust(A)
    assert [b.owner("s.t") for _ in range(3)] == [A, A, A]


async def test_a_try_that_nobody_told_about_is_followed_by_another(database: Database, world: FakeWorld) -> None:
    """The client left, and with it what came of its commit."""
    b = Ownership(database, B, world, Telemetry(), lease_seconds=1000)
    await database.hold(A, ["s.t"], 1000)
    b.used("s.t")
    await b.round()
    b.distrust(A)
    world.advance(1.1)
    assert [b.owner("s.t") for _ in range(2)] == [A, None]
    world.advance(5.1)
    assert [b.owner("s.t") for _ in range(2)] == [A, None]


async def test_leaving_lets_others_take_over_at_once(database: Database, world: FakeWorld) -> None:
    a, b = replica(A, database, world), replica(B, database, world)
    a.used("s.t")
    await a.round()
    await a.release()
    assert a.held() == []
    b.used("s.t")
    await b.round()
    assert b.held() == ["s.t"]


async def test_leaving_does_not_wait_for_a_database_that_is_away(world: FakeWorld) -> None:
    class Away(Database):
        async def release(self, owner: Owner, tables: Iterable[str]) -> None:
            raise LeasesUnavailable("it is away")

    a = replica(A, Away(world), world)
    a.used("s.t")
    await a.round()
    await a.release()
    assert a.held() == []


async def test_the_task_behind_takes_what_was_written_and_says_when_it_is_cut_off(
    database: Database, world: FakeWorld
) -> None:
    a = replica(A, database, world)
    task = asyncio.create_task(a.keep())
    try:
        await _until(lambda: not a.cut_off)
        a.used("s.t")
        await _until(lambda: a.held() == ["s.t"])
        database.up = False
        world.advance(2 * SECONDS)
        a.used("s.t")
        await _until(lambda: a.cut_off)
        database.up = True
        a.used("s.t")
        await _until(lambda: not a.cut_off and a.held() == ["s.t"])
    finally:
        task.cancel()


async def _until(true: object) -> None:
    assert callable(true)
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("never")
