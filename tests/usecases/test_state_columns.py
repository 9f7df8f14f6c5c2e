"""A table opened from columns: whatever happened and happens to it, it reads as one opened entry by entry."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa
import pytest

from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.core.state_plan import Reason
from tarnlog_server.usecases import avro_state, checkpoints, state_entries
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, remove_line, send
from tests.usecases.test_states import look, random_commit

pytest.importorskip("datafusion")


@pytest.fixture(autouse=True)
def every_state_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_entries, "COLUMNS_FROM", 0)
    monkeypatch.setattr(avro_state, "FEW", -1)  # else small states would not be decoded


class Counting(DataFusionColumns):
    """Knows whether it was asked at all."""

    def __init__(self) -> None:
        self.read = 0

    def read_avro(self, data: bytes) -> list[pa.RecordBatch]:
        self.read += 1
        return super().read_avro(data)


class Clueless(Counting):
    """Understands nothing."""

    def read_avro(self, data: bytes) -> list[pa.RecordBatch]:
        self.read += 1
        raise ValueError("never seen such a thing")


class Rearranging(Counting):
    """Gives columns of another kind."""

    def read_avro(self, data: bytes) -> list[pa.RecordBatch]:
        return [batch.rename_columns([f"x{n}" for n in range(batch.num_columns)]) for batch in super().read_avro(data)]


@pytest.mark.parametrize("seed", range(8))
async def test_columns_and_entries_cannot_be_told_apart(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    writer = warehouse.replica()
    await create(writer)
    live: set[str] = set()
    gone: set[str] = set()
    reader = Counting()
    for _ in range(4):
        for _ in range(rng.randrange(1, 12)):
            await random_commit(writer, rng, live, gone)
        await writer.checkpoints.checkpoint(ORDERS, "avro")
        for _ in range(rng.randrange(3)):
            await random_commit(writer, rng, live, gone)
        plain, packed = warehouse.replica(), warehouse.replica(columns=reader)
        assert await look(packed) == await look(plain) == await look(writer), f"seed {seed}"
        writer = packed  # the next changes, and the next state, stand on columns
    assert reader.read > 0


@pytest.mark.parametrize("kind", [Clueless, Rearranging])
async def test_a_reader_that_fails_costs_time_and_nothing_else(warehouse: Warehouse, kind: type[Counting]) -> None:
    writer = warehouse.replica()
    await create(writer)
    for number in range(5):
        await commit(writer, add_line(f"f{number}"))
    await writer.checkpoints.checkpoint(ORDERS, "avro")
    reader = kind()
    replica = warehouse.replica(columns=reader)
    assert await files(replica) == [f"f{number}" for number in range(5)]
    assert reader.read == 1
    assert replica.open_tables.opened()[0].live.base is not None


async def test_a_damaged_manifest_is_noticed_and_survived(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    view = await create(writer)
    for number in range(3):
        await commit(writer, add_line(f"f{number}"))
    await writer.checkpoints.checkpoint(ORDERS, "avro")
    (key,) = warehouse.store.keys(warehouse.log(view) + "manifests/")
    data = bytearray(warehouse.store.raw(key))
    data[len(data) // 2] ^= 1
    warehouse.store.overwrite(key, bytes(data))
    replica = warehouse.replica(columns=Counting())
    assert await files(replica) == ["f0", "f1", "f2"]
    assert replica.open_tables.opened()[0].live.base is None


async def test_live_paths_are_known_to_commits_on_columns(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    await create(writer)
    await commit(writer, add_line("a"), add_line("b"))
    await writer.checkpoints.checkpoint(ORDERS, "avro")
    replica = warehouse.replica(columns=Counting())
    head = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version
    again = await send(replica, add_line("a"))
    assert "already a live file" in str(again)
    await commit(replica, remove_line("a"), readVersion=head)
    missing = await send(replica, remove_line("a"), readVersion=head)
    assert "delete-delete" in str(missing)
    await commit(replica, add_line("a", size=77))
    assert sorted(await files(replica)) == ["a", "b"]
    assert (await replica.snapshots.snapshot(ORDERS, None, None, 0)).total_bytes == 87


async def test_no_more_manifests_are_read_at_once_than_the_table_allows(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    await create(writer, properties={"state.read.parallelism": "2", "state.entriesPerManifest": "1"})
    await commit(writer, *(add_line(f"f{number}") for number in range(7)))
    await writer.checkpoints.compact(ORDERS)
    replica = warehouse.replica()
    most = await _most_at_once(warehouse, replica)
    assert most == 2
    assert len(await files(replica)) == 7


async def _most_at_once(warehouse: Warehouse, replica: Coordinator) -> int:
    """How many manifests are on their way at the same time while a table is opened."""
    under_way = most = 0
    plain = warehouse.store.get

    async def watched(key: str, start: int = 0, length: int | None = None) -> bytes:
        nonlocal under_way, most
        if "/manifests/" not in key:
            return await plain(key, start, length)
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await asyncio.sleep(0)
        under_way -= 1
        return await plain(key, start, length)

    warehouse.store.get = watched  # type: ignore[method-assign]
    await replica.snapshots.snapshot(ORDERS, None, None, 0)
    warehouse.store.get = plain  # type: ignore[method-assign]
    return most


async def test_a_state_is_due_by_the_size_of_what_follows_the_last_one(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "TYPICAL_ACTION_BYTES", 2**20)
    replica = warehouse.replica()
    await create(replica, properties={"checkpoint.interval": "1000"})
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    table = replica.open_tables.opened()[0]
    await commit(replica, *(add_line(f"a{number}") for number in range(31)))
    assert replica.checkpoints.due(table) is None
    await commit(replica, add_line("b"))
    assert replica.checkpoints.due(table) is Reason.SIZE
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    assert replica.checkpoints.due(table) is None
    await commit(replica, add_line("c"))
    warehouse.world.advance(3601)
    assert replica.checkpoints.due(table) is Reason.AGE


async def test_opening_from_a_state_at_the_head_lists_what_follows_once(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    log = warehouse.log(await create(writer))
    await commit(writer, add_line("a"))
    await writer.checkpoints.checkpoint(ORDERS, "avro")
    warehouse.store.lists.clear()
    await warehouse.replica().snapshots.snapshot(ORDERS, None, None, None)
    # That the next version is missing proves nothing about those behind it, so they are listed; states are not.
    assert [prefix for prefix in warehouse.store.lists if prefix in (f"{log}0", f"{log}state-v")] == [f"{log}0"]
    await commit(writer, add_line("b"))
    reader = warehouse.replica()
    assert await files(reader) == ["a", "b"]
