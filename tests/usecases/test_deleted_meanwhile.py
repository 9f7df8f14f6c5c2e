"""A replica reads versions that it missed while another one deletes them: nothing is damaged."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable

import pytest

from tarnlog.protocol.commits import Committed
from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.cleaning import DAY, HookedStore, replica_on
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, send


class ErasingStore(HookedStore):
    """Lets another replica erase before the first version is read: a listing before that named what is gone now."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.eraser: Coordinator | None = None

    async def before(self, op: str, key: str) -> None:
        await super().before(op, key)
        if op == "get" and "/_transaction_log/0" in key and self.eraser is not None:
            eraser, self.eraser = self.eraser, None
            await eraser.erasing.erase(ORDERS)


@pytest.mark.parametrize("known", [True, False], ids=["idle-for-days", "just-started"])
@pytest.mark.parametrize("writes", [True, False], ids=["commit", "read"])
async def test_versions_that_are_deleted_between_listing_and_reading(
    warehouse: Warehouse, known: bool, writes: bool
) -> None:
    one, store = warehouse.replica(), ErasingStore(warehouse.store)
    await create(one)
    behind = replica_on(warehouse, store)
    if known:
        assert await files(behind) == []
    wanted = [f"f{number}" for number in range(5)]
    for path in wanted:
        await commit(one, add_line(path))
    warehouse.world.advance(3 * DAY)
    store.eraser = one
    if writes:
        assert isinstance(await send(behind, add_line("later")), Committed)
        wanted.append("later")
    assert sorted(await files(behind)) == wanted
    assert store.eraser is None


class SlowStore(HookedStore):
    """After the next version that is created here, others do something before this replica learns of anything."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self._over = asyncio.Event()

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = await super().put_if_absent(key, data)
        if self.meanwhile is not None:
            await self.meanwhile()
            self.meanwhile = None
            self._over.set()
        return result

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        if self.meanwhile is not None:
            await self._over.wait()
        return await super().list(prefix, start_after, limit)


async def test_a_commit_that_is_erased_from_the_log_before_its_answer(warehouse: Warehouse) -> None:
    """Later versions exist and its own cannot be read any more; it was not written into a hole all the same."""
    one, store = warehouse.replica(), SlowStore(warehouse.store)
    await create(one)
    slow = replica_on(warehouse, store)
    await commit(slow, add_line("a"))
    warehouse.world.advance(20)

    async def erase() -> None:
        await one.erasing.erase(ORDERS)
        await commit(one, add_line("c"))

    store.meanwhile = erase
    outcome = await send(slow, add_line("b"))
    assert isinstance(outcome, Committed), outcome
    assert outcome.version == 2
    for replica in (slow, warehouse.replica()):
        assert sorted(await files(replica)) == ["a", "b", "c"]
