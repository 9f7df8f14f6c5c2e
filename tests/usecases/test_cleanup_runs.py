"""Cleanups that stop between any two storage calls, run twice at once, or meet any history: nothing kept is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tarnlog_server.ports.object_store import ObjectStore
from tarnlog_server.usecases.coordinator import Coordinator
from tests.conftest import LONG
from tests.usecases.cleaning import (
    DAY,
    HOUR,
    DawdlingStore,
    FailingStore,
    HookedStore,
    Modelled,
    Stopped,
    StoppingStore,
    replica_on,
)
from tests.usecases.replicas import ORDERS, Warehouse, set_properties
from tests.usecases.test_states import FORMATS

FLOOR_CACHED_SECONDS = 301
"""For so long a replica may show what another one's floor has just passed: nothing of it is deleted for a day."""


async def aged(warehouse: Warehouse, format_: str) -> Modelled:
    """A table with a ripe floor and something of every kind that may go."""
    replica = warehouse.replica()
    table = Modelled(warehouse, random.Random(5))
    await table.create(replica, **{"state.format": format_})
    for day in range(6):
        for _ in range(2):
            await table.commit(replica)
        await replica.checkpoints.checkpoint(ORDERS, format_ if day != 3 else "json")
        warehouse.world.advance(DAY)
    await replica.cleanup.cleanup(ORDERS)
    for _ in range(3):
        await table.commit(replica)
        await replica.checkpoints.compact(ORDERS)
        await replica.checkpoints.checkpoint(ORDERS, format_)
        warehouse.world.advance(8 * HOUR)
    return table


def frozen(warehouse: Warehouse) -> tuple[Any, ...]:
    store = warehouse.store
    return dict(store._objects), list(store._keys), warehouse.world._ms, warehouse.world._rng.getstate()


def thaw(warehouse: Warehouse, was: tuple[Any, ...]) -> None:
    store = warehouse.store
    store._objects, store._keys = dict(was[0]), list(was[1])
    warehouse.world._ms = was[2]
    warehouse.world._rng.setstate(was[3])


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_cleanup_may_stop_between_any_two_storage_calls(warehouse: Warehouse, format_: str) -> None:
    table = await aged(warehouse, format_)
    was = frozen(warehouse)
    whole = await warehouse.replica().cleanup.cleanup(ORDERS)
    assert min(whole.versions_deleted, whole.states_deleted, whole.manifests_deleted) > 0
    assert whole.checkpoints_deleted > 0 or format_ == "avro"
    expected = (table.version_files(), table.state_dirs(), table.floor())
    assert expected[2] == whole.floor
    stopped = calls = 0
    while True:
        thaw(warehouse, was)
        dying = replica_on(warehouse, StoppingStore(warehouse.store, calls))
        try:
            await dying.cleanup.cleanup(ORDERS)
            break
        except Stopped:
            stopped += 1
        assert await table.faults(warehouse.replica()) == [], f"stopped before call {calls}"
        await warehouse.replica().cleanup.cleanup(ORDERS)
        assert (table.version_files(), table.state_dirs(), table.floor()) == expected, f"stopped before call {calls}"
        assert await table.faults(warehouse.replica()) == [], f"stopped before call {calls}, cleaned up again"
        calls += 1
    assert stopped > 40


class Interrupting(HookedStore):
    """Lets something else happen, whole, right before one of its calls."""

    def __init__(self, inner: ObjectStore, at: int, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self.happened = False
        self._at = at
        self._happens = happens

    async def before(self, op: str, key: str) -> None:
        if self.calls == self._at and not self.happened:
            self.happened = True
            await self._happens()
        await super().before(op, key)


@pytest.mark.parametrize("with_states", [True, False])
async def test_a_table_may_be_opened_at_any_moment_of_a_cleanup(warehouse: Warehouse, with_states: bool) -> None:
    """Above all, a floor and the state it stands on may come between two looks of whoever opens the table."""
    replica = warehouse.replica()
    table = Modelled(warehouse, random.Random(3))
    await table.create(replica)
    for _ in range(8):
        await table.commit(replica)
        if with_states:
            await replica.checkpoints.checkpoint(ORDERS)
    warehouse.world.advance(3 * DAY)
    for _ in range(3):
        await table.commit(replica)
    was = frozen(warehouse)
    calls = 0
    while True:
        thaw(warehouse, was)
        store = Interrupting(warehouse.store, calls, lambda: warehouse.replica().cleanup.cleanup(ORDERS))
        reader = replica_on(warehouse, store)
        for version in (None, table.head - 1, table.head):
            seen = await reader.snapshots.snapshot(ORDERS, version, None, 0)
            assert seen.num_files == len(table.past[seen.version][0]), f"a cleanup before call {calls}"
        if not store.happened:
            break
        warehouse.world.advance(FLOOR_CACHED_SECONDS)
        assert await table.faults(reader) == [], f"a cleanup before call {calls}"
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("seed", range(300 if LONG else 40))
async def test_two_replicas_clean_up_while_others_write(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    table = await aged(warehouse, rng.choice(FORMATS))
    one, two, three = (replica_on(warehouse, DawdlingStore(warehouse.store, rng)) for _ in range(3))

    async def write() -> None:
        for _ in range(6):
            await table.commit(three)
            if rng.random() < 0.7:
                await three.checkpoints.checkpoint(ORDERS, rng.choice(FORMATS))

    async def states(replica: Coordinator) -> None:
        for _ in range(3):
            await replica.checkpoints.checkpoint(ORDERS)

    for _ in range(2):
        await asyncio.gather(
            one.cleanup.cleanup(ORDERS), two.cleanup.cleanup(ORDERS), write(), states(rng.choice((one, two)))
        )
        warehouse.world.advance(FLOOR_CACHED_SECONDS)
        for replica in (one, two, three, warehouse.replica()):
            assert await table.faults(replica) == [], f"seed {seed}"
        warehouse.world.advance(rng.choice((HOUR, DAY)))


@pytest.mark.parametrize("policy", ["continue", "fail"])
async def test_what_one_failed_deletion_does_to_the_rest(warehouse: Warehouse, policy: str) -> None:
    table = await aged(warehouse, "avro")
    store = FailingStore(warehouse.store, f"{1:020d}.json")
    replica = replica_on(warehouse, store)
    await replica.tables.alter(ORDERS, set_properties(cleanup__failurePolicy=policy))
    table.past.append(table.past[-1])
    before = table.version_files()
    done = await replica.cleanup.cleanup(ORDERS)
    went = sorted(set(before) - set(table.version_files()))
    assert done.versions_deleted == len(went)
    if policy == "fail":
        assert done.status == "failed"
        assert f"{1:020d}.json could not be deleted" in done.message
        assert "cleanup.failurePolicy is fail: nothing was deleted after that" in done.message
        assert went == [0], "only what came before the failure"
        assert (done.states_deleted, len(table.state_dirs()) > 3) == (0, True), "states were not reached"
    else:
        assert (done.status, done.states_deleted > 0) == ("partial", True)
        assert "1 deletions failed" in done.message
        assert went[:2] == [0, 2], "the others went"
    assert 1 in table.version_files()
    assert await table.faults(warehouse.replica()) == []
    store.part = "nothing"
    warehouse.world.advance(DAY)  # until the floor is ripe that the first one may have published
    assert (await replica.cleanup.cleanup(ORDERS)).status == "success"
    assert 1 not in table.version_files()


async def test_a_store_that_deletes_nothing_is_not_asked_for_ever(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    table = Modelled(warehouse, random.Random(1))
    await table.create(replica)
    for _ in range(60):
        await table.commit(replica)
    warehouse.world.advance(3 * DAY)
    await replica.cleanup.cleanup(ORDERS)
    warehouse.world.advance(DAY)
    store = FailingStore(warehouse.store, "/")
    done = await replica_on(warehouse, store).cleanup.cleanup(ORDERS)
    assert (done.status, done.versions_deleted) == ("partial", 0)
    assert "the store does not delete" in done.message
    assert store.calls < 60
