"""Pages of one plan, whatever happens to the table and to replicas between them: every file once, none twice."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.codec.told_files import FEW
from tarnlog_server.usecases import avro_state, partial_scan, state_entries
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.packing import pack
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, remove_line

BETWEEN = ["pack", "cold", "reopen", "replay", "avro", "json", "parquet", "commit", "remove", "compact"]


def fresh(warehouse: Warehouse) -> Coordinator:
    return warehouse.replica(columns=DataFusionColumns())


async def remove(replica: Coordinator, path: str) -> None:
    version = (await replica.open_tables.get(ORDERS)).live.head.version
    await commit(replica, remove_line(path), readVersion=version)


async def filled(replica: Coordinator, rng: random.Random) -> None:
    """Some versions of files whose names are in no order, with removals and states in between."""
    await create(replica)
    for version in range(rng.randint(1, 4)):
        names = [f"f{rng.randrange(10**6):06}-{version}" for _ in range(rng.randint(3, 9))]
        lines = [
            add_line(name, minValues={"id": str(at % 7)}, maxValues={"id": str(at % 7 + 2)})
            for at, name in enumerate(names)
        ]
        await commit(replica, *lines)
        if rng.random() < 0.3:
            await replica.checkpoints.checkpoint(ORDERS, rng.choice(["avro", "json", "parquet"]))
        if rng.random() < 0.3:
            await remove(replica, rng.choice(names))


async def moved(warehouse: Warehouse, replica: Coordinator, what: str, rng: random.Random) -> Coordinator:
    """Something happens; the replica that is asked for the next page, which remembers no plan."""
    if what == "pack":
        await pack((await replica.open_tables.get(ORDERS)).live)
    elif what in ("avro", "json", "parquet"):
        await replica.checkpoints.checkpoint(ORDERS, what)
    elif what == "compact":
        await replica.checkpoints.compact(ORDERS)
    elif what == "commit":
        await commit(replica, add_line(f"new-{rng.random()}", minValues={"id": "5"}, maxValues={"id": "5"}))
    elif what == "remove" and (there := await files(replica)):
        await remove(replica, rng.choice(there))
    if what in ("pack", "commit", "remove", "compact"):
        replica.plans._kept.clear()
        return replica
    later = warehouse.replica() if what == "replay" else fresh(warehouse)
    if what == "cold":
        later.plans.cold.from_files = 1
    return later


@pytest.mark.parametrize("seed", range(25))
async def test_every_file_comes_once(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    replica = fresh(warehouse)
    await filled(replica, rng)
    asked = PlanRequest(filter=rng.choice([None, "id >= 4"]), limit=3, explain=rng.random() < 0.2)
    with (
        mock.patch.object(state_entries, "COLUMNS_FROM", rng.choice([1, 1000])),
        mock.patch.object(avro_state, "FEW", rng.choice([-1, FEW])),
        mock.patch.object(partial_scan, "MOST_SHARE", 1),
    ):
        whole = await replica.plans.page(ORDERS, PlanRequest(filter=asked.filter), None)
        told: list[str] = []
        page = await replica.plans.page(ORDERS, asked, None)
        while True:
            told += [file.path for file in page.files]
            if page.next is None:
                break
            replica = await moved(warehouse, replica, rng.choice(BETWEEN), rng)
            again = PlanRequest(filter=asked.filter, limit=3, explain=asked.explain, cursor=page.next)
            page = await replica.plans.page(ORDERS, again, None)
    assert told == [file.path for file in whole.files]
