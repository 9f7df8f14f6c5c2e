"""Packing what commits brought, and the bound on the memory of open tables."""

from __future__ import annotations

from unittest import mock

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.predicates import Compare
from tarnlog_server.codec import scan_rows
from tarnlog_server.usecases import packing
from tests.usecases.replicas import Warehouse, add_line, commit, create, files, remove_line


async def test_packed_files_are_the_same_files_in_less_memory(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    for part in range(3):
        lines = [
            add_line(f"p{part}-{number:03d}", minValues={"id": str(number)}, maxValues={"id": str(number + 1)})
            for number in range(700)
        ]
        await commit(replica, *lines)
    await commit(replica, remove_line("p1-005"), readVersion=3)
    live = replica.open_tables.opened()[0].live
    before, listed = live.head.files.nbytes, list(live.head.rows())
    assert not packing.is_due(live.head.files)
    with mock.patch.object(packing, "WORTH_IT", 1000):
        assert packing.is_due(live.head.files)
        assert await packing.pack(live) == 2099
        assert not packing.is_due(live.head.files)
    assert live.head.files.nbytes < before / 4
    assert [add for _, add in live.head.rows()] == [add for _, add in listed]
    assert scan_rows.prune(live.head, Compare("eq", "id", 5)).after_skipping == 5
    await commit(replica, add_line("new"), remove_line("p0-000"), remove_line("p2-699"), readVersion=4)
    assert len(await files(replica)) == 2098


async def test_text_that_no_column_can_hold_stays_unpacked(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("a"))
    live = replica.open_tables.opened()[0].live
    with (
        mock.patch.object(packing, "entry_batch", side_effect=UnicodeEncodeError("utf-8", "\ud800", 0, 1, "lone")),
        pytest.raises(packing.Unpackable),
    ):
        await packing.pack(live)
    assert live.head.files.segment is None


async def test_tables_that_have_no_room_are_closed_by_use(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    names = [TableName("sales", f"t{number}") for number in range(4)]
    for name in names:
        await create(replica, str(name))
        await commit(replica, *(add_line(f"f{number}") for number in range(100)), to=name)
    tables = replica.open_tables
    stats = replica.cache_stats()["tables"]
    assert stats.size == 4
    assert isinstance(stats.bytes, int)
    assert stats.evictions == 0
    tables.memory.max_bytes = int(stats.bytes * 0.6)
    await files(replica, names[0])
    await tables.make_room()
    assert {str(table.live.name) for table in tables.opened()} == {"sales.t0", "sales.t3"}
    after = replica.cache_stats()["tables"]
    assert (after.size, after.evictions) == (2, 2)
    assert len(await files(replica, names[1])) == 100, "a closed table opens again"
    tables.memory.max_bytes = 1
    await tables.make_room()
    assert [str(table.live.name) for table in tables.opened()] == ["sales.t1"], "the one in use stays"
    again = replica.cache_stats()["tables"]
    assert again.misses > stats.misses
    assert again.hits > stats.hits
