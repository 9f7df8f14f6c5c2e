"""A replica reads versions that it missed while another one deletes them: nothing is damaged."""

from __future__ import annotations

import pytest

from tarnlog.protocol.commits import Committed
from tarnlog_server.ports.object_store import ObjectStore
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
