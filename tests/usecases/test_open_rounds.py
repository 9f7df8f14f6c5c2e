"""How many round trips to the store an open takes, one after another: on a far store they are all of its time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tarnlog_server.adapters.delayed_store import DelayedStore
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.meanwhile import Meanwhile
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, remove_line

T = TypeVar("T")
TURNS = 100
"""Turns of the event loop after which nothing is left to do but to wait for the store."""
NAMING = 2
"""A listing of the catalog and the entry that it shows."""


class Rounds:
    """Every call that waits is answered at the same moment; how often that was is how deep the calls depended."""

    def __init__(self) -> None:
        self.count = 0
        self.calls = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self, _: float) -> None:
        self.calls += 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        await answer

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        while True:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if task.done():
                return task.result()
            assert self._waiting, "it waits for something else than the store"
            waiting, self._waiting = self._waiting, []
            self.count += 1
            for answer in waiting:
                if not answer.done():
                    answer.set_result(None)


def far_replica(warehouse: Warehouse, rounds: Rounds) -> Coordinator:
    store = DelayedStore(warehouse.store, 1.0, rounds.wait)
    return Coordinator(Roots(Root("memory://w", store)), warehouse.world)


async def with_state(warehouse: Warehouse, form: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    for number in range(8):
        gone = [remove_line(f"a{number - 3}")] if number > 3 else []
        await commit(replica, add_line(f"a{number}"), *gone, readVersion=number)
    await replica.checkpoints.checkpoint(ORDERS, form)


async def opened(warehouse: Warehouse) -> tuple[Rounds, list[str]]:
    rounds = Rounds()
    replica = far_replica(warehouse, rounds)
    page = await rounds.run(replica.snapshots.files(ORDERS, None, None, None, 100, None))
    assert replica.open_tables.opened()[0].live.base is not None, "it was not opened from a state"
    return rounds, sorted(file.path for file in page.files)


@pytest.mark.parametrize("form,objects", [("avro", 3), ("json", 2), ("parquet", 3)])
async def test_a_state_takes_two_round_trips_after_the_hint(warehouse: Warehouse, form: str, objects: int) -> None:
    await with_state(warehouse, form)
    rounds, paths = await opened(warehouse)
    assert paths == ["a0", "a5", "a6", "a7"]
    assert rounds.count == NAMING + 1 + 2
    # The hint, the state with its ids, its version, a listing of what follows, and the floor: nothing is read twice.
    assert rounds.calls == NAMING + 1 + objects + 3


@pytest.mark.parametrize("form", ["avro", "json", "parquet"])
async def test_versions_after_the_state_take_one_more(warehouse: Warehouse, form: str) -> None:
    await with_state(warehouse, form)
    for number in range(3):
        await commit(warehouse.replica(), add_line(f"b{number}"))
    rounds, paths = await opened(warehouse)
    assert paths == ["a0", "a5", "a6", "a7", "b0", "b1", "b2"]
    # A listing of what follows; newer states and the floor; and all that follows at once.
    assert rounds.count == NAMING + 1 + 3


async def test_a_newer_state_than_the_hint_is_opened_from(warehouse: Warehouse) -> None:
    await with_state(warehouse, "avro")
    (hint,) = [key for key in warehouse.store.keys("") if key.endswith("/_last_checkpoint")]
    old = warehouse.store.raw(hint)
    replica = warehouse.replica()
    await commit(replica, add_line("b"))
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    await commit(replica, add_line("c"))
    warehouse.store.overwrite(hint, old)
    fresh = warehouse.replica()
    assert (await fresh.snapshots.snapshot(ORDERS, None, None, None)).num_files == 6
    base = fresh.open_tables.opened()[0].live.base
    assert base is not None
    assert base.ref.version == 9


async def test_what_is_not_waited_for_is_given_up_and_its_failure_is_nobodys() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    async def fails() -> None:
        raise ValueError("nobody waits for this")

    async def seven() -> int:
        return 7

    async with Meanwhile(forever()), Meanwhile(fails()), Meanwhile(seven()) as number:
        await asyncio.sleep(0)
        assert await number == 7
    assert ended == ["forever"]
    with pytest.raises(ValueError, match="nobody"):
        async with Meanwhile(fails()) as failing:
            await failing


async def test_what_is_near_is_done_when_it_is_asked_for_and_not_at_all_when_it_is_not() -> None:
    done: list[str] = []

    async def work(name: str) -> str:
        done.append(name)
        return name

    async with Meanwhile(work("asked"), near=True) as asked, Meanwhile(work("never"), near=True):
        await asyncio.sleep(0)
        assert not done
        assert await asked == "asked"
    assert done == ["asked"]
