"""Catalog entries that are not what they should be: each is named, for its own table alone, and blocks no other."""

from __future__ import annotations

import pytest

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import TableName
from tests.usecases.replicas import ORDERS, Warehouse, add_line, create, files, refused, register, send

OTHER = TableName("other", "table")
BROKEN = {
    "no location": b'{"id":"x"}',
    "empty location": b'{"id":"x","location":""}',
    "empty id": b'{"id":"","location":"sales/orders-1"}',
    "a number for an id": b'{"id":5,"location":"sales/orders-1"}',
    "a number for a location": b'{"id":"x","location":5}',
    "a text for dropped": b'{"id":"x","dropped":"yes"}',
    "no object": b"[]",
    "null": b"null",
    "no JSON": b"\x00\x01",
    "empty": b"",
    "deep": b"[" * 100_000,
    "climbs": b'{"id":"x","location":"../elsewhere"}',
    "climbs inside": b'{"id":"x","location":"a/../../b"}',
    "absolute": b'{"id":"x","location":"/etc"}',
    "the catalog": b'{"id":"x","location":"_catalog"}',
    "below the catalog": b'{"id":"x","location":"_catalog/sales"}',
    "a control character": b'{"id":"x","location":"a\\u0000b"}',
    "a URI without a place": b'{"id":"x","location":"s3://"}',
    "a slash at the end": b'{"id":"x","location":"sales/"}',
}


def entry_key(name: TableName, number: int = 0) -> str:
    return f"_catalog/{name.namespace}/{name.name}/{number:020d}.json"


@pytest.mark.parametrize("data", BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("number", [0, 1])
async def test_a_broken_entry_is_named_and_stops_only_its_own_name(
    warehouse: Warehouse, data: bytes, number: int
) -> None:
    writer = warehouse.replica()
    await create(writer)
    await create(writer, "other.table")
    key = entry_key(ORDERS, number)
    warehouse.store.overwrite(key, data)
    replica = warehouse.replica()
    for _ in range(2):
        with refused("log-corrupt", "restore it") as caught:
            await replica.tables.describe(ORDERS)
        assert caught.value.fields["object"] == key
        with refused("log-corrupt"):
            await send(replica, add_line("a"))
        with refused("log-corrupt"):
            await create(replica)
        with refused("log-corrupt"):
            await replica.verifying.verify(ORDERS)
    assert (await create(replica, "sales.new")).name == "sales.new"
    assert (await create(replica, "sales.elsewhere", location="memory://w/lake/t")).name == "sales.elsewhere"
    await replica.tables.drop(TableName("sales", "elsewhere"))
    assert (await register(replica, "sales.again", "memory://w/lake/t", stopped=True)).name == "sales.again"
    assert isinstance(await send(replica, add_line("b"), to=OTHER), Committed)
    listed = [ref.name for ref in (await replica.tables.list(None, 10, None)).tables]
    assert listed == ["other.table", "sales.again", "sales.new"]
    warehouse.world.advance(61)
    assert (await replica.tables.describe(OTHER)).name == "other.table"


@pytest.mark.parametrize("location", ["s3://other-bucket/t", "memory://w2/t", "file:///etc"])
async def test_an_entry_outside_of_the_roots_says_where_it_leads(warehouse: Warehouse, location: str) -> None:
    writer = warehouse.replica()
    await create(writer)
    await create(writer, "other.table")
    warehouse.store.overwrite(entry_key(ORDERS), b'{"id":"x","location":"%s"}' % location.encode())
    replica = warehouse.replica()
    with refused("location-not-allowed", location) as caught:
        await replica.tables.describe(ORDERS)
    assert "TARNLOG_LOCATIONS" in caught.value.detail
    with refused("location-not-allowed", location):
        await send(replica, add_line("a"))
    assert (await create(replica, "sales.new")).name == "sales.new"
    assert isinstance(await send(replica, add_line("b"), to=OTHER), Committed)


async def test_an_entry_that_leads_to_no_log_is_damage_and_not_a_free_name(warehouse: Warehouse) -> None:
    writer = warehouse.replica()
    log = warehouse.log(await create(writer))
    await create(writer, "other.table")
    for key in warehouse.store.keys(log):
        await warehouse.store.delete(key)
    replica = warehouse.replica()
    for _ in range(2):
        with refused("log-corrupt") as caught:
            await files(replica)
        assert caught.value.fields["object"] == f"{log}{0:020d}.json"
        with refused("log-corrupt"):
            await create(replica)
    audited = await replica.verifying.verify(ORDERS)
    assert not {check.name: check.ok for check in audited.checks}["log-contiguous"]
    assert (await create(replica, "sales.new")).name == "sales.new"
