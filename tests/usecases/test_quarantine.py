"""A damaged log: its table alone is closed, the object is named, and the table opens again once that is restored."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases.live_table import QUARANTINE_SECONDS
from tests.usecases.cleaning import HOUR, Modelled
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    send,
    version_key,
)

OTHER = TableName("other", "table")
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "last byte": lambda data: data[:-1],
    "one bit": lambda data: data[:100] + bytes([data[100] ^ 4]) + data[101:],
    "garbage": lambda data: b"\x00\xff" * 50,
    "cut gzip": lambda data: b"\x01\x01" + gzip.compress(data)[:-6],
    "not an action": lambda data: b"[]\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("version", [0, 2])
async def test_only_the_damaged_table_is_closed(warehouse: Warehouse, damage: str, version: int) -> None:
    writer = warehouse.replica()
    view = await create(writer)
    await create(writer, "other.table")
    await commit(writer, add_line("a"))
    await commit(writer, add_line("b"))
    await commit(writer, add_line("z"), to=OTHER)
    key = version_key(warehouse.log(view), version)
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, DAMAGE[damage](good))

    replica = warehouse.replica()
    for _ in range(2):
        with refused("log-corrupt", key) as caught:
            await replica.tables.describe(ORDERS)
        assert caught.value.fields["object"] == key
        assert "restore" in caught.value.detail
    with refused("log-corrupt", key):
        await send(replica, add_line("c"))
    assert await files(replica, OTHER) == ["z"]
    assert isinstance(await send(replica, add_line("y"), to=OTHER), Committed)
    assert [ref.name for ref in (await replica.tables.list(None, 10, None)).tables] == ["other.table", "sales.orders"]

    warehouse.store.overwrite(key, good)
    warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert await files(replica) == ["a", "b"]
    assert (await commit(replica, add_line("c"))).version == 3


async def test_a_damaged_log_is_not_read_again_for_every_request(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    view = await create(writer)
    for number in range(5):
        await commit(writer, add_line(f"f{number}"))
    warehouse.store.overwrite(version_key(warehouse.log(view), 3), b"")
    replica = warehouse.replica()
    with refused("log-corrupt"):
        await files(replica)
    warehouse.store.gets.clear()
    for _ in range(10):
        with refused("log-corrupt"):
            await files(replica)
    assert len(warehouse.store.gets) <= 6, "at most one more look while the quarantine holds"


async def test_a_new_version_that_is_damaged_closes_an_open_table(warehouse: Warehouse) -> None:
    writer, reader = warehouse.replica(), warehouse.replica()
    view = await create(writer)
    assert await files(reader) == []
    await commit(writer, add_line("a"))
    key = version_key(warehouse.log(view), 1)
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, good[:-10])
    with refused("log-corrupt", key):
        await files(reader)
    outcome: object
    try:
        outcome = await send(reader, add_line("b"))
    except ProblemError as problem:
        outcome = Rejected(commit_id=None, problem=problem.document())
    assert isinstance(outcome, Rejected)
    assert outcome.problem["type"].endswith("log-corrupt")
    assert await files(writer) == ["a"], "a replica that has read it goes on"
    warehouse.store.overwrite(key, good)
    warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert await files(reader) == ["a"]
    assert (await commit(reader, add_line("b"))).version == 2


async def test_a_writer_that_loses_its_slot_to_a_damaged_object_says_so(warehouse: Warehouse) -> None:
    writer, other = warehouse.replica(), warehouse.replica()
    view = await create(writer)
    await files(other)
    await commit(writer, add_line("a"))
    key = version_key(warehouse.log(view), 1)
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, b"")
    outcome = await send(other, add_line("b"))
    assert isinstance(outcome, Rejected)
    assert outcome.problem["object"] == key
    warehouse.store.overwrite(key, good)
    warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert (await commit(other, add_line("b"))).version == 2
    assert await files(writer) == ["a", "b"]


async def test_a_damaged_catalog_entry_is_named(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    await create(writer)
    await create(writer, "other.table")
    key = "_catalog/sales/orders/00000000000000000000.json"
    warehouse.store.overwrite(key, b"{")
    replica = warehouse.replica()
    with refused("log-corrupt", key):
        await replica.tables.describe(ORDERS)
    assert (await replica.tables.describe(OTHER)).name == "other.table"


async def test_a_damaged_catalog_entry_stops_only_its_own_name(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, "sales.good")
    await create(replica, "sales.bad")
    entry = f"_catalog/sales/bad/{0:020d}.json"
    right = warehouse.store.raw(entry)
    warehouse.store.overwrite(entry, b'{"id":')
    other = warehouse.replica()
    assert [one.name for one in (await other.tables.list(None, 10, None)).tables] == ["sales.good"]
    await create(other, "sales.new")
    with refused("log-corrupt") as caught:
        await other.tables.describe(TableName("sales", "bad"))
    assert caught.value.fields["object"] == entry
    warehouse.store.overwrite(entry, right)
    assert (await other.tables.describe(TableName("sales", "bad"))).name == "sales.bad"


async def floored(warehouse: Warehouse) -> Modelled:
    """A table whose versions below a floor are gone, so that states alone lead to the rest."""
    replica = warehouse.replica()
    table = Modelled(warehouse, random.Random(3))
    await table.create(replica)
    for _ in range(4):
        for _ in range(3):
            await table.commit(replica)
        await replica.checkpoints.checkpoint(ORDERS)
        warehouse.world.advance(25 * HOUR)
        await replica.cleanup.cleanup(ORDERS)
    assert table.floor() not in (0, table.head)
    assert min(table.version_files()) > 0
    return table


@pytest.mark.parametrize("part", ["ids.bin", "_manifest.json"])
async def test_a_floor_without_its_state_is_named_and_not_taken_for_a_fault_that_passes(
    warehouse: Warehouse, part: str
) -> None:
    table = await floored(warehouse)
    state = f"{table.log}state-v{table.floor():020d}/"
    for version in table.state_dirs():
        if version <= table.floor():
            warehouse.store.overwrite(f"{table.log}state-v{version:020d}/{part}", b"")
    replica = warehouse.replica()
    for _ in range(2):
        with refused("log-corrupt", f"versions below {table.floor()} were cleaned up") as caught:
            await files(replica, version=table.floor())
        assert caught.value.fields["object"] == f"{state}_manifest.json"
    with refused("log-corrupt", "were cleaned up"):
        await replica.vacuum.vacuum(ORDERS, dry_run=False)
    assert set(await files(replica)) == set(table.files)
    for key in warehouse.store.keys(f"{table.log}state-v"):
        warehouse.store.overwrite(key, b"")
    with refused("log-corrupt", f"versions below {table.floor()} were cleaned up") as caught:
        await files(warehouse.replica())
    assert caught.value.fields["object"] == f"{state}_manifest.json"
