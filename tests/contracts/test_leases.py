"""One suite for every place that keeps leases: in memory, in SQLite, in a real Postgres."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import text

from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.adapters.sql_engine import Database, database_url
from tarnlog_server.adapters.sql_leases import SqlLeases
from tarnlog_server.adapters.sql_schema import REVISION_TABLE, metadata
from tarnlog_server.ports.leases import Lease, Leases, LeasesUnavailable, Owner

A, B, C = (Owner(name, f"http://{name}:8420") for name in "abc")
LONG = 1000.0
STORED = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
in_a_database = pytest.mark.parametrize("place", STORED, indirect=True)


class Place(msgspec.Struct, frozen=True):
    """Where leases are kept, and how their time is made to pass."""

    leases: Leases
    pass_seconds: Callable[[float], Awaitable[None]]
    database: Database | None = None


@pytest_asyncio.fixture(params=["memory", *STORED])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "memory":
        clock = [0.0]

        async def advance(seconds: float) -> None:
            clock[0] += seconds

        yield Place(MemoryLeases(lambda: clock[0]), advance)
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/index.sqlite"
    else:
        server = request.getfixturevalue("postgres_server")
        url = server.url(await server.new_database())
    database = Database(database_url(url))
    await database.prepare()

    async def earlier(seconds: float) -> None:
        # A database's clock cannot be set: every lease is made to end that much earlier instead.
        async with database.begin() as connection:
            await connection.execute(text("UPDATE tarnlog_leases SET until = until - :seconds"), {"seconds": seconds})

    yield Place(SqlLeases(database, "file:///w"), earlier, database)
    await database.close()


async def test_a_free_lease_is_taken_and_everyone_sees_by_whom(place: Place) -> None:
    taken = await place.leases.hold(A, ["s.t", "s.u"], LONG)
    assert {table: lease.owner for table, lease in taken.items()} == {"s.t": A, "s.u": A}
    assert all(LONG - 60 < lease.seconds <= LONG for lease in taken.values())
    seen = await place.leases.owners(["s.t", "s.none"])
    assert {table: lease.owner for table, lease in seen.items()} == {"s.t": A}


async def test_a_held_lease_is_not_taken_and_the_loser_learns_the_owner(place: Place) -> None:
    await place.leases.hold(A, ["s.t"], LONG)
    found = await place.leases.hold(B, ["s.t", "s.u"], 5 * LONG)
    assert {table: lease.owner for table, lease in found.items()} == {"s.t": A, "s.u": B}
    assert found["s.t"].seconds <= LONG


async def test_the_owner_renews(place: Place) -> None:
    await place.leases.hold(A, ["s.t"], LONG)
    await place.pass_seconds(LONG / 2)
    before = (await place.leases.owners(["s.t"]))["s.t"].seconds
    after = (await place.leases.hold(A, ["s.t"], LONG))["s.t"].seconds
    assert before < 0.6 * LONG < after


async def test_a_lease_that_ran_out_is_nobodys_until_someone_takes_it(place: Place) -> None:
    await place.leases.hold(A, ["s.t"], LONG)
    await place.pass_seconds(LONG + 1)
    assert await place.leases.owners(["s.t"]) == {}
    assert (await place.leases.hold(B, ["s.t"], LONG))["s.t"].owner == B
    assert (await place.leases.hold(A, ["s.t"], LONG))["s.t"].owner == B


async def test_a_replica_that_started_again_takes_over_what_its_url_held(place: Place) -> None:
    await place.leases.hold(A, ["s.t"], LONG)
    again = Owner("a2", A.url)
    assert (await place.leases.hold(again, ["s.t"], LONG))["s.t"].owner == again


async def test_only_the_owner_releases(place: Place) -> None:
    await place.leases.hold(A, ["s.t", "s.u"], LONG)
    await place.leases.release(B, ["s.t"])
    await place.leases.release(A, ["s.u", "s.none"])
    assert {table: lease.owner for table, lease in (await place.leases.owners(["s.t", "s.u"])).items()} == {"s.t": A}


async def test_of_many_at_once_one_takes_it(place: Place) -> None:
    tables = [f"s.t{number}" for number in range(20)]
    orders = [(A, tables), (B, tables[::-1]), (C, tables[7:] + tables[:7])] * 3
    found = await asyncio.gather(*(place.leases.hold(owner, order, LONG) for owner, order in orders))
    for table in tables:
        assert len({answer[table].owner for answer in found}) == 1


async def test_thousands_of_tables_are_held_at_once(place: Place) -> None:
    tables = [f"s.t{number}" for number in range(2500)]
    assert len(await place.leases.hold(A, tables, LONG)) == len(tables)
    assert {lease.owner for lease in (await place.leases.hold(B, tables, LONG)).values()} == {A}


async def test_nothing_is_asked_for_nothing(place: Place) -> None:
    assert await place.leases.hold(A, [], LONG) == {}
    assert await place.leases.owners([]) == {}
    await place.leases.release(A, [])


@in_a_database
async def test_warehouses_do_not_see_each_other(place: Place) -> None:
    assert place.database is not None
    other = SqlLeases(place.database, "s3://other")
    await place.leases.hold(A, ["s.t"], LONG)
    assert (await other.hold(B, ["s.t"], LONG))["s.t"].owner == B
    assert (await place.leases.owners(["s.t"]))["s.t"].owner == A


@in_a_database
async def test_the_clock_is_the_databases(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.database is not None
    await place.leases.hold(A, ["s.t"], LONG)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10 * LONG)
    assert (await place.leases.hold(B, ["s.t"], LONG))["s.t"].owner == A


@in_a_database
async def test_a_schema_that_went_missing_is_made_again(place: Place) -> None:
    assert place.database is not None
    await place.leases.hold(A, ["s.t"], LONG)
    async with place.database.begin() as connection:
        for name in (REVISION_TABLE, *metadata.tables):
            await connection.execute(text(f"DROP TABLE {name}"))
    with pytest.raises(LeasesUnavailable):
        await place.leases.hold(B, ["s.t"], LONG)
    assert (await place.leases.hold(B, ["s.t"], LONG))["s.t"].owner == B


@in_a_database
async def test_old_rows_are_swept(place: Place) -> None:
    assert place.database is not None
    await place.leases.hold(A, ["s.old"], LONG)
    await place.pass_seconds(10 * 86_400)
    await place.leases.hold(A, ["s.new"], LONG)
    await place.leases.release(B, [])
    async with place.database.begin() as connection:
        names = (await connection.execute(text('SELECT "table" FROM tarnlog_leases'))).scalars().all()
    assert names == ["s.new"]


@pytest.mark.parametrize("place", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_a_replica_that_is_stopped_keeps_no_rows_from_the_others(place: Place) -> None:
    """After its statement was answered, another one can take what is free."""
    assert place.database is not None

    waiting = asyncio.Event()

    class Stopped(SqlLeases):
        async def _found(self, *_: Any) -> dict[str, Lease]:
            waiting.set()
            await asyncio.Event().wait()
            raise AssertionError

    stopped = asyncio.create_task(Stopped(place.database, "file:///w").hold(A, ["s.t"], -1.0))
    try:
        async with asyncio.timeout(30):
            await waiting.wait()
            assert (await place.leases.hold(B, ["s.t"], LONG))["s.t"].owner == B
    finally:
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
