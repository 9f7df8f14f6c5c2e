"""Audits and repairs of tables that are cleaned, written and repaired by others at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.cleaning import DAY, SHORT
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, refused, remove_line
from tests.usecases.test_verify import failed


async def cleaned(warehouse: Warehouse) -> tuple[Coordinator, str, int]:
    """A table whose oldest versions are gone; its log, and its floor."""
    replica = warehouse.replica()
    view = await create(replica, properties=SHORT)
    place = view.location.removeprefix("memory://w/")
    for number in range(12):
        await warehouse.store.put(f"{place}/f{number}", b"x" * 10)
        await commit(replica, add_line(f"f{number}"))
        if number % 3 == 2:
            await replica.checkpoints.checkpoint(ORDERS)
        warehouse.world.advance(0.6 * DAY)
        await replica.cleanup.cleanup(ORDERS)
    floor = (await replica.cleanup.cleanup(ORDERS)).floor
    log = warehouse.log(view)
    assert floor > 2
    assert f"{log}{0:020d}.json" not in warehouse.store.keys(log)
    return replica, log, floor


async def test_a_table_that_was_cleaned_passes(warehouse: Warehouse) -> None:
    replica, _, floor = await cleaned(warehouse)
    view = await replica.verifying.verify(ORDERS)
    assert failed(view) == set(), view
    assert f"versions {floor} to 12" in view.checks[0].detail


async def test_a_damaged_floor_is_found_and_nothing_is_made_up(warehouse: Warehouse) -> None:
    """What its state was made from is gone, so only a copy can bring it back; the newest version does not need it."""
    replica, log, floor = await cleaned(warehouse)
    expected = sorted(await files(replica))
    for key in warehouse.store.keys(log):
        version = key.removeprefix(log).removeprefix("state-v")[:20]
        if version.isdigit() and int(version) < floor:
            await warehouse.store.delete(key)
    key = f"{log}state-v{floor:020d}/_manifest.json"
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, good[:50])
    fresh = warehouse.replica()
    assert "states-sound" in failed(await fresh.verifying.verify(ORDERS))
    fixed = await fresh.repairing.repair(ORDERS)
    assert fixed.status == "incomplete"
    assert "restore" in next(check.detail for check in fixed.checks if check.name == "left-to-do")
    assert warehouse.store.raw(key) == good[:50], "what the floor stands on stays where it is"
    assert sorted(await files(warehouse.replica())) == expected
    warehouse.store.overwrite(key, good)
    assert (await warehouse.replica().verifying.verify(ORDERS)).status == "success"


@pytest.mark.parametrize("seed", range(6))
async def test_an_audit_of_a_table_in_use_finds_nothing(warehouse: Warehouse, seed: int) -> None:
    """Commits, states and cleanups by two replicas while a third looks."""
    rng = random.Random(seed)
    writers = [warehouse.replica(), warehouse.replica()]
    view = await create(writers[0], properties=SHORT)
    place = view.location.removeprefix("memory://w/")
    done = False

    async def write(replica: Coordinator, who: int) -> None:
        for number in range(25):
            name = f"f{who}-{number}"
            await warehouse.store.put(f"{place}/{name}", b"x" * 10)
            sent = await commit(replica, add_line(name))
            warehouse.world.advance(rng.random() * 0.3 * DAY)
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.4:
                await replica.checkpoints.checkpoint(ORDERS, rng.choice(("avro", "avro", "json")))
            if rng.random() < 0.3:
                with contextlib.suppress(ProblemError):  # two at once may be in each other's way: one tries again
                    await replica.cleanup.cleanup(ORDERS)
            if rng.random() < 0.2:
                await commit(replica, remove_line(name), readVersion=sent.version)

    async def look() -> None:
        while not done:
            found = await warehouse.replica().verifying.verify(ORDERS)
            assert failed(found) == set(), f"seed {seed}: {found}"
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(write(replica, who) for who, replica in enumerate(writers)))
    done = True
    await looking
    assert failed(await warehouse.replica().verifying.verify(ORDERS)) == set(), f"seed {seed}"


async def test_two_replicas_repair_at_once(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    log = warehouse.log(view)
    for number in range(9):
        await commit(replica, add_line(f"f{number}"))
        if number % 3 == 2:
            await replica.checkpoints.checkpoint(ORDERS)
    for key in warehouse.store.keys(log):
        if key.endswith("_manifest.json"):
            warehouse.store.overwrite(key, b"")
    await asyncio.gather(*(warehouse.replica().repairing.repair(ORDERS) for _ in range(2)))
    fixed = await warehouse.replica().repairing.repair(ORDERS)
    assert (fixed.status, fixed.repaired) == ("success", ()), fixed
    assert len(await files(warehouse.replica())) == 9


async def test_two_replicas_that_write_one_state_leave_other_readers_one_truth(warehouse: Warehouse) -> None:
    one, two = warehouse.replica(), warehouse.replica()
    await create(one)
    for number in range(5):
        await commit(one, add_line(f"f{number}"))
    await files(two)
    await asyncio.gather(one.checkpoints.checkpoint(ORDERS), two.checkpoints.checkpoint(ORDERS))
    assert failed(await one.verifying.verify(ORDERS)) == {"data-files"}


async def test_a_dropped_table_is_not_there(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await replica.tables.drop(ORDERS)
    with refused("table-not-found"):
        await replica.verifying.verify(ORDERS)
