"""Purging a dropped table: what must stay so that nobody mistakes the place for an empty one."""

from __future__ import annotations

import pytest

from tarnlog.protocol.commits import Rejected
from tarnlog.protocol.ids import TableName
from tarnlog_server.ports.object_store import StoreUnavailable
from tarnlog_server.usecases.purge import purge
from tests.usecases.cleaning import HookedStore, replica_on
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    register,
    send,
    version_key,
)

DAY = 24 * 3600


async def test_purge_keeps_the_last_version_and_the_floor(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    log, place = warehouse.log(view), view.location.removeprefix("memory://w/")
    for number in range(3):
        await commit(replica, add_line(f"f{number}"))
    await warehouse.store.put(f"{place}/f0", b"data")
    await warehouse.store.put(f"{place}x/kept", b"another place with a longer name")
    warehouse.world.advance(DAY)
    await replica.tables.drop(ORDERS, purge_files=True)
    assert warehouse.store.keys(f"{place}/") == [version_key(log, 4), f"{log}_floor/{4:020d}"]
    assert warehouse.store.keys(f"{place}x/") == [f"{place}x/kept"]
    with refused("table-not-found"):
        await files(warehouse.replica())


async def test_without_purge_every_object_stays(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    await commit(replica, add_line("x"))
    before = warehouse.store.keys(warehouse.log(view))
    warehouse.world.advance(DAY)
    await replica.tables.drop(ORDERS)
    assert set(before) < set(warehouse.store.keys(warehouse.log(view)))


@pytest.mark.parametrize("idle_seconds", [0, 30, 120, 2 * 3600, 3 * DAY])
async def test_a_stale_replica_learns_of_the_drop(warehouse: Warehouse, idle_seconds: int) -> None:
    """However long it slept, and although the versions after its head are gone, it never commits into the dead log."""
    one, stale = warehouse.replica(), warehouse.replica()
    view = await create(one)
    await commit(stale, add_line("x"))
    for number in range(4):
        await commit(one, add_line(f"f{number}"))
    warehouse.world.advance(idle_seconds)
    await one.tables.drop(ORDERS, purge_files=True)
    left = warehouse.store.keys(warehouse.log(view))
    outcome: object
    with refused("table-not-found"):
        outcome = await send(stale, add_line("late"))
        assert isinstance(outcome, Rejected), outcome
        assert outcome.problem["type"].endswith("table-not-found")
        await stale.tables.describe(ORDERS, 0)
    assert warehouse.store.keys(warehouse.log(view)) == left, "nothing was written into the dead log"


async def test_the_name_and_the_place_after_a_purge(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica, location="memory://w/data/t")
    await commit(replica, add_line("x"))
    warehouse.world.advance(DAY)
    await replica.tables.drop(ORDERS, purge_files=True)
    with refused("location-not-empty"):
        await create(replica, location=view.location)
    assert (await create(replica)).id != view.id
    with refused("log-not-supported"):
        await register(replica, "sales.again", view.location, stopped=True)


async def test_purge_can_be_run_again_and_only_on_dropped_tables(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    live = (await replica.open_tables.get(ORDERS)).live
    with pytest.raises(ValueError, match="only a dropped table"):
        await purge(live, warehouse.world)
    await commit(replica, add_line("x"))
    await replica.tables.drop(ORDERS)
    warehouse.world.advance(DAY)
    assert await purge(live, warehouse.world) == 2
    assert await purge(live, warehouse.world) == 0


async def test_what_a_purge_had_to_leave_goes_later(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, add_line("x"))
    table = replica.open_tables.opened()[0]
    await replica.tables.drop(ORDERS, purge_files=True)
    left = [version_key(log, 2), f"{log}_floor/{2:020d}"]
    assert set(left) < set(warehouse.store.keys(log)), "young version files stay at first"
    for _ in range(3):
        if replica.cleanup.due(table):
            assert await replica.cleanup.keep(table)
        warehouse.world.advance(4 * 3600)
    assert warehouse.store.keys(log) == left


async def test_a_purge_that_was_cut_off_goes_on_when_asked_again(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    log, place = warehouse.log(view), view.location.removeprefix("memory://w/")
    await commit(replica, add_line("x"))
    await warehouse.store.put(f"{place}/x", b"data")
    warehouse.world.advance(DAY)
    delete, warehouse.store.delete = warehouse.store.delete, _unavailable  # type: ignore[method-assign]
    with refused("storage-unavailable"):
        await replica.tables.drop(ORDERS, purge_files=True)
    warehouse.store.delete = delete  # type: ignore[method-assign]
    with refused("table-not-found"):
        await replica.tables.drop(ORDERS)
    assert f"{place}/x" in warehouse.store.keys(place)
    other = warehouse.replica()
    await other.tables.drop(ORDERS, purge_files=True)
    assert warehouse.store.keys(f"{place}/") == [version_key(log, 2), f"{log}_floor/{2:020d}"]
    with refused("table-not-found"):
        await other.tables.drop(ORDERS, purge_files=True)


async def test_a_drop_without_purge_is_not_purged_later(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    await commit(replica, add_line("x"))
    await replica.tables.drop(ORDERS)
    warehouse.world.advance(DAY)
    before = warehouse.store.keys(warehouse.log(view))
    with refused("table-not-found"):
        await replica.tables.drop(ORDERS, purge_files=True)
    assert warehouse.store.keys(warehouse.log(view)) == before


async def _unavailable(key: str) -> None:
    raise StoreUnavailable("the store does not answer", key=key)


async def test_a_dropped_table_that_was_not_purged_is_left_alone(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    table = replica.open_tables.opened()[0]
    await replica.tables.drop(ORDERS)
    for _ in range(3):
        assert not replica.cleanup.due(table)
        warehouse.world.advance(DAY)


async def test_other_tables_are_not_touched(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, location="memory://w/data/t1")
    other = TableName("sales", "other")
    await create(replica, "sales.other", location="memory://w/data/t10")
    await commit(replica, add_line("x"), to=other)
    warehouse.world.advance(DAY)
    await replica.tables.drop(ORDERS, purge_files=True)
    assert await files(warehouse.replica(), other) == ["x"]


async def test_a_store_that_fails_while_the_rest_is_looked_for_is_told_as_such(warehouse: Warehouse) -> None:
    class Failing(HookedStore):
        async def before(self, op: str, key: str) -> None:
            if op == "get" and key.startswith("_catalog/") and key.endswith(f"{0:020d}.json"):
                raise StoreUnavailable(f"injected: {key}", key=key)

    await create(warehouse.replica())
    await warehouse.replica().tables.drop(ORDERS, purge_files=True)
    with refused("storage-unavailable"):
        await replica_on(warehouse, Failing(warehouse.store)).tables.drop(ORDERS, purge_files=True)
