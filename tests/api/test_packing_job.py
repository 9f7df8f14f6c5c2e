"""The background job that keeps tables small: it packs what is due, leaves what cannot be packed, and makes room."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator
from unittest import mock

import pyarrow as pa

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.jobs import keep_packed as keeping
from tarnlog_server.usecases import packing
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, remove_line

OTHER = TableName("sales", "other")


@contextlib.asynccontextmanager
async def running(replica: Coordinator, worth_it: int = 10) -> AsyncIterator[None]:
    with mock.patch.object(packing, "WORTH_IT", worth_it):
        job = asyncio.create_task(keeping.keep_packed(replica))
        try:
            yield
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)


async def test_tables_are_packed_and_closed_by_themselves() -> None:
    warehouse = Warehouse()
    replica = warehouse.replica()
    for name in ("sales.orders", "sales.other"):
        await create(replica, name)
    await commit(replica, *(add_line(f"f{number}") for number in range(20)))
    await commit(replica, add_line("few"), to=OTHER)
    orders, other = replica.open_tables.opened()
    async with running(replica):
        while orders.live.head.files.segment is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert orders.live.head.num_files == 20
        assert other.live.head.files.segment is None, "a few files are not worth it"
        replica.open_tables.memory.max_bytes = 1
        while len(replica.open_tables.opened()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert [table.live.name for table in replica.open_tables.opened()] == [OTHER]
    await warehouse.close()


def _taken() -> int:
    gc.collect()
    return int(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())


async def test_many_small_tables_are_packed_when_they_are_quiet_and_accounted_as_measured() -> None:
    """Half of them opened from a state, half with all of their commits in the window of conflicts."""
    warehouse = Warehouse()
    writer, replica = warehouse.replica(), warehouse.replica()
    names = [TableName("sales", f"t{number}") for number in range(24)]
    for place, name in enumerate(names):
        await create(writer, str(name))
        for part in range(4):
            lines = [
                add_line(f"part-{part}-{number:04d}-{'x' * 32}.parquet", minValues={"id": "1"}, maxValues={"id": "2"})
                for number in range(50)
            ]
            await commit(writer, *lines, to=name)
        if place % 2:
            await writer.checkpoints.checkpoint(name)
    warm = warehouse.replica()
    for name in names[:2]:
        await packing.pack((await warm.open_tables.get(name)).live)
    tracemalloc.start()
    try:
        before = _taken()
        for name in names:
            await replica.open_tables.get(name)
        opened = _taken() - before
        told = sum(table.nbytes for table in replica.open_tables.opened())
        assert told / 2 < opened < told * 2
        for name in names:
            await replica.checkpoints.checkpoint(name)
        async with running(replica, worth_it=packing.WORTH_IT):
            tables = replica.open_tables.opened()
            for _ in range(5000):
                if all(table.live.head.files.segment is not None for table in tables):
                    break
                await asyncio.sleep(0)
        assert all(table.live.head.files.segment is not None for table in tables)
        del tables
        packed = _taken() - before
        told = sum(table.nbytes for table in replica.open_tables.opened())
        assert told / 2 < packed < told * 2
        assert packed < opened / 2
    finally:
        tracemalloc.stop()
    for name in names:
        assert len(await files(replica, name)) == 200
    outcome = await commit(
        replica, add_line("later"), remove_line("part-0-0000-" + "x" * 32 + ".parquet"), to=names[0], readVersion=1
    )
    assert outcome.version == 5
    await warehouse.close()


async def test_plans_and_snapshots_that_nobody_asks_for_again_are_let_go() -> None:
    """A closed table would stay in memory with them."""
    warehouse = Warehouse()
    replica = warehouse.replica()
    await create(replica)
    await create(replica, "sales.other")
    await commit(replica, add_line("f0"), add_line("f1"))
    page = await replica.plans.page(ORDERS, PlanRequest(limit=1), None)
    assert page.next is not None
    replica.caches.files.put(("place", 1), (await replica.open_tables.get(ORDERS)).live.head)
    replica.open_tables.max_open = 1
    await replica.open_tables.get(OTHER)

    def held() -> list[object]:
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, FileLog) and one.live_count == 2]

    async with running(replica):
        for _ in range(1000):  # each look of the job takes two seconds of its clock
            await asyncio.sleep(0)
    assert held() == []
    await warehouse.close()


async def test_what_cannot_be_packed_is_tried_once() -> None:
    warehouse = Warehouse()
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, *(add_line(f"f{number}") for number in range(20)))
    looked = asyncio.Event()
    looks = 0

    async def make_room() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            looked.set()

    with (
        mock.patch.object(keeping, "pack", side_effect=packing.Unpackable("lone surrogate")) as tried,
        mock.patch.object(replica.open_tables, "make_room", make_room),
    ):
        async with running(replica):
            await looked.wait()
    assert tried.call_count == 1
    await warehouse.close()
