"""The order in which states store files, from columns and from actions; and the pace of long work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.codec.state_avro import ManifestEncoder, encode_manifest
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases import avro_state, state_entries
from tarnlog_server.usecases.pace import LONGEST_PAUSE, PAUSE_FACTOR, Pace
from tarnlog_server.usecases.state_order import ListedFiles, in_order
from tests.codec.states import FILES
from tests.usecases.replicas import ORDERS, FakeWorld, Warehouse, add_line, commit, create, remove_line

T = TypeVar("T")
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
    ],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_files_come_by_partition_and_path_whatever_they_are_kept_in(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int, packed: bool
) -> None:
    monkeypatch.setattr(state_entries, "COLUMNS_FROM", 0)
    monkeypatch.setattr(avro_state, "FEW", -1)  # else small states would not be decoded
    pytest.importorskip("datafusion")
    rng = random.Random(seed)
    replica = warehouse.replica()
    await create(replica, schema=SCHEMA, partition_columns=("n",))
    paths = [f"p{number}" for number in rng.sample(range(1000), 40)]
    values = {path: rng.choice([None, "2", "10", "-3"]) for path in paths}
    for start in range(0, 30, 10):
        lines = [add_line(path, partitionValues={"n": values[path]}) for path in paths[start : start + 10]]
        await commit(replica, *lines)
    if packed:
        await replica.checkpoints.checkpoint(ORDERS, "avro")
        replica = warehouse.replica(columns=DataFusionColumns())
    await commit(replica, *(add_line(path, partitionValues={"n": values[path]}) for path in paths[30:]))
    head = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version
    await commit(replica, *(remove_line(path) for path in rng.sample(paths, 7)), readVersion=head)
    live = replica.open_tables.opened()[0].live
    found = await in_order(live.head, live.pace())
    numbers = {None: -100, "2": 2, "10": 10, "-3": -3}
    expected = sorted(files_of(live.head), key=lambda one: (numbers[one.add.partition_values["n"]], one.add.path))
    assert list(found) == expected
    assert list(found.files(5, 9)) == expected[5:9]
    listed = ListedFiles(files_of(live.head), live.head.metadata)
    assert list(listed.files(0, len(listed))) == expected
    by_path = await in_order(live.head, live.pace(), by_partition=False)
    assert list(by_path) == sorted(expected, key=lambda one: one.add.path)


def test_how_files_are_handed_over_does_not_change_a_manifest() -> None:
    whole = encode_manifest(FILES)
    encoder = ManifestEncoder()
    for file in FILES:
        encoder.take([file])
    assert encoder.finish() == whole


class SlowWorld(FakeWorld):
    """Every slice takes some time; the pauses are noted."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.pauses: list[float] = []

    async def run_blocking(self, work: Callable[[], T]) -> T:
        self.advance(self.seconds)
        return work()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


async def test_slices_pause_while_versions_are_added_and_only_then() -> None:
    world, version = SlowWorld(0.01), [0]
    pace = Pace(world, lambda: version[0])
    assert await pace.run(lambda: "done") == "done"
    assert world.pauses == []
    version[0] += 1
    await pace.run(lambda: None)
    assert world.pauses == [pytest.approx(PAUSE_FACTOR * 0.01, rel=0.01)]
    world.advance(10)
    await pace.run(lambda: None)
    assert len(world.pauses) == 1
    world.seconds, version[0] = 5.0, 2
    await pace.run(lambda: None)
    assert world.pauses[-1] == LONGEST_PAUSE


def files_of(snapshot: Snapshot) -> Iterator[StateFile]:
    """The live files of a snapshot, as a state stores them."""
    for row, add in snapshot.rows():
        yield StateFile(add, snapshot.files.added_at(row), snapshot.files.added_time(row))
