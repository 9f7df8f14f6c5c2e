"""The background job that keeps tables small: it packs what is due, leaves what cannot be packed, and makes room."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from unittest import mock

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.jobs import keep_packed as keeping
from tarnlog_server.usecases import packing
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create

OTHER = TableName("sales", "other")


@contextlib.asynccontextmanager
async def running(replica: Coordinator) -> AsyncIterator[None]:
    with mock.patch.object(packing, "WORTH_IT", 10):
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
