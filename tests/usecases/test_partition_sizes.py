"""How files spread over partition values, against counting them one by one; and how seldom that is done."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.usecases import avro_state, partition_sizes, state_entries
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.partition_sizes import PartitionSizes, PartitionsView
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, refused, remove_line

SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "day", "region")],
}
VALUES = ["a", "b", "<b>", "", "ü", None]


async def counted(replica: Coordinator, column: str) -> dict[str | None, tuple[int, int]]:
    """The dumb way: every file is looked at."""
    files: Counter[str | None] = Counter()
    sizes: Counter[str | None] = Counter()
    page = await replica.snapshots.files(ORDERS, None, None, 0, 10_000, None)
    for file in page.files:
        value = file.partition_values.get(column)
        files[value] += 1
        sizes[value] += file.size
    return {value: (files[value], sizes[value]) for value in files}


def shown(view: PartitionsView | None) -> dict[str | None, tuple[int, int]]:
    assert view is not None
    assert (view.other_values, view.other_files, view.other_bytes) == (0, 0, 0)
    return {share.value: (share.files, share.bytes) for share in view.shares}


@pytest.mark.parametrize("seed", range(5))
async def test_packed_files_and_recent_ones_are_all_counted(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(state_entries, "COLUMNS_FROM", 0)
    monkeypatch.setattr(avro_state, "FEW", -1)  # else small states would not be decoded
    rng = random.Random(f"partition sizes {seed}")

    def add(number: int) -> dict[str, object]:
        values = {"day": rng.choice(VALUES), "region": rng.choice(VALUES)}
        return add_line(f"f{number}", partitionValues=values, size=rng.choice([0, 7, 2**62]))

    first = warehouse.replica()
    await create(first, schema=SCHEMA, partition_columns=("day", "region"))
    await commit(first, *(add(number) for number in range(60)))
    await first.checkpoints.checkpoint(ORDERS)
    replica = warehouse.replica(columns=DataFusionColumns())
    gone = [remove_line(f"f{number}") for number in rng.sample(range(60), 20)]
    await commit(replica, *gone, readVersion=1)
    await commit(replica, *(add(number) for number in range(100, 120)))
    live = (await replica.open_tables.get(ORDERS)).live
    assert isinstance(live.head.files.segment, FileColumns)
    sizes = PartitionSizes(replica.open_tables)
    assert shown(await sizes.of(ORDERS, "region", 10)) == await counted(replica, "region")
    assert shown(await sizes.of(ORDERS, None, 10)) == await counted(replica, "day")


async def test_the_largest_come_first_and_the_others_together(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA, partition_columns=("day",))
    lines = [add_line(f"f{n}", partitionValues={"day": f"d{n}"}, size=100 * n) for n in range(6)]
    await commit(replica, *lines)
    view = await PartitionSizes(replica.open_tables).of(ORDERS, "day", 2)
    assert view is not None
    assert [(share.value, share.bytes) for share in view.shares] == [("d5", 500), ("d4", 400)]
    assert (view.other_values, view.other_files, view.other_bytes) == (4, 4, 600)


async def test_tables_without_partitions_and_columns_that_are_none(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA)
    sizes = PartitionSizes(replica.open_tables)
    assert await sizes.of(ORDERS, None, 5) is None
    with refused("request-invalid", "known: none"):
        await sizes.of(ORDERS, "day", 5)


async def test_a_dear_picture_is_kept_however_busy_the_table_is(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    real = partition_sizes._view

    def slow(*given: object) -> PartitionsView:
        made.append(1)
        warehouse.world.advance(2.0)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_sizes, "_view", slow)
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA, partition_columns=("day",))
    sizes = PartitionSizes(replica.open_tables)
    for number in range(5):
        await commit(replica, add_line(f"f{number}", partitionValues={"day": "x"}))
        view = await sizes.of(ORDERS, None, 5)
        assert view is not None
        assert view.version == 1
    assert len(made) == 1
    warehouse.world.advance(41.0)
    view = await sizes.of(ORDERS, None, 5)
    assert view is not None
    assert (view.version, len(made)) == (5, 2)
    warehouse.world.advance(1000.0)
    await sizes.of(ORDERS, None, 5)
    assert len(made) == 2, "nothing changed meanwhile"
