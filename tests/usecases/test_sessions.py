"""Write sessions: what may be covered, for how long, and that they lie in storage for every replica."""

from __future__ import annotations

import json

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.tables import MAX_SESSION_SECONDS
from tarnlog_server.usecases import sessions as module
from tests.usecases.replicas import ORDERS, Warehouse, create, refused, register


async def test_a_session_lies_in_storage_and_every_replica_knows_it(warehouse: Warehouse) -> None:
    one, other = warehouse.replica(), warehouse.replica()
    log = warehouse.log(await create(one))
    begun = await one.sessions.begin(ORDERS, "day=1/", 60)
    now = warehouse.world.now_ms()
    assert (begun.prefix, begun.expires_at) == ("day=1/", now + 60_000)
    assert json.loads(warehouse.store.raw(f"{log}_sessions/{begun.id}.json")) == {
        "id": begun.id,
        "prefix": "day=1/",
        "expiresAt": now + 60_000,
        "createdAt": now,
    }
    assert (await other.sessions.list(ORDERS)).sessions == (begun,)
    await other.sessions.end(ORDERS, begun.id)
    assert (await one.sessions.list(ORDERS)).sessions == ()
    with refused("session-not-found"):
        await one.sessions.end(ORDERS, begun.id)


async def test_extending(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    begun = await replica.sessions.begin(ORDERS, "", 100)
    warehouse.world.advance(50)
    longer = await replica.sessions.extend(ORDERS, begun.id, 100)
    assert longer.expires_at == begun.expires_at + 50_000
    same = await replica.sessions.extend(ORDERS, begun.id, 1)
    assert same.expires_at == longer.expires_at, "extending never shortens"
    warehouse.world.advance(101)
    assert (await replica.sessions.list(ORDERS)).sessions == ()
    with refused("session-expired"):
        await replica.sessions.extend(ORDERS, begun.id, 100)


@pytest.mark.parametrize("number", ["", "x", "../../0", "018CC251-F400-7000-8000-000000000003", "a/b"])
async def test_an_id_that_is_none(warehouse: Warehouse, number: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    before = warehouse.store.keys()
    with refused("session-not-found"):
        await replica.sessions.extend(ORDERS, number, 10)
    with refused("session-not-found"):
        await replica.sessions.end(ORDERS, number)
    assert warehouse.store.keys() == before


GOOD = ["", "day=1/", "day=1/part-", "part", "x%20y/", "a/b/c/", "_tmp/"]
BAD = [
    "/",
    "/day",
    "..",
    "../",
    "a/../b",
    "a/..",
    "s3://bucket/",
    "file:",
    "_transaction_log",
    "_transaction_log/",
    "_Transaction_Log/x",
    "./_transaction_log/",
    "%5Ftransaction_log/",
    "_catalog/",
    "a\\b",
    "a\x00",
    "%zz",
    "%2e%2e/",
    "a" * 2000,
]


@pytest.mark.parametrize("prefix", GOOD)
async def test_prefixes_that_are_fine(warehouse: Warehouse, prefix: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    assert (await replica.sessions.begin(ORDERS, prefix, 10)).prefix == prefix


@pytest.mark.parametrize("prefix", BAD)
async def test_prefixes_that_are_not(warehouse: Warehouse, prefix: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    before = warehouse.store.keys()
    with refused("request-invalid", "/prefix"):
        await replica.sessions.begin(ORDERS, prefix, 10)
    assert warehouse.store.keys() == before


async def test_what_expired_long_ago_is_swept_and_nothing_else(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await warehouse.store.put(f"{log}_sessions/readme.txt", b"mine")
    old = await replica.sessions.begin(ORDERS, "", MAX_SESSION_SECONDS)
    warehouse.world.advance(MAX_SESSION_SECONDS + 10)
    young = await replica.sessions.begin(ORDERS, "", 1)
    assert warehouse.store.keys(f"{log}_sessions/{old.id}")
    warehouse.world.advance(24 * 3600)
    new = await replica.sessions.begin(ORDERS, "", 1)
    left = {key.removeprefix(f"{log}_sessions/") for key in warehouse.store.keys(f"{log}_sessions/")}
    assert left == {"readme.txt", f"{young.id}.json", f"{new.id}.json"}


async def test_there_is_a_limit(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    replica = warehouse.replica()
    await create(replica)
    first = await replica.sessions.begin(ORDERS, "", 10)
    await replica.sessions.begin(ORDERS, "", 10)
    with refused("too-many-waiting"):
        await replica.sessions.begin(ORDERS, "", 10)
    await replica.sessions.end(ORDERS, first.id)
    await replica.sessions.begin(ORDERS, "", 10)


async def test_those_that_expired_make_room(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that were killed, one after the other, do not lock out those that come."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    for _ in range(2):
        await replica.sessions.begin(ORDERS, "", 10)
    lasting = await replica.sessions.begin(ORDERS, "", 3600)
    warehouse.world.advance(11)
    new = await replica.sessions.begin(ORDERS, "", 3600)
    left = {key.removeprefix(f"{log}_sessions/") for key in warehouse.store.keys(f"{log}_sessions/")}
    assert left == {f"{lasting.id}.json", f"{new.id}.json"}


async def test_a_damaged_session_is_told_and_can_be_ended(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    begun = await replica.sessions.begin(ORDERS, "", 10)
    warehouse.store.overwrite(f"{log}_sessions/{begun.id}.json", b'{"id": 7')
    with refused("log-corrupt", begun.id):
        await replica.sessions.list(ORDERS)
    with refused("log-corrupt"):
        await replica.sessions.extend(ORDERS, begun.id, 10)
    await replica.sessions.end(ORDERS, begun.id)
    assert (await replica.sessions.list(ORDERS)).sessions == ()


async def test_a_read_only_table_has_none(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    for key in warehouse.store.keys(log):
        await warehouse.store.put("copy/_transaction_log/" + key.removeprefix(log), warehouse.store.raw(key))
    await register(replica, "sales.copy", "memory://w/copy")
    with refused("table-read-only"):
        await replica.sessions.begin(TableName("sales", "copy"), "", 10)


async def test_a_session_never_goes_to_a_table_that_was_dropped_meanwhile(warehouse: Warehouse) -> None:
    """Another replica may know the old table for a while: a promise to a writer must not be made there."""
    one, other = warehouse.replica(), warehouse.replica()
    old = warehouse.log(await create(one))
    begun = await other.sessions.begin(ORDERS, "", 60)
    await one.tables.drop(ORDERS)
    with refused("table-not-found"):
        await other.sessions.begin(ORDERS, "", 60)
    new = warehouse.log(await create(one))
    with refused("session-not-found"):
        await other.sessions.extend(ORDERS, begun.id, 600)
    fresh = await other.sessions.begin(ORDERS, "", 60)
    assert warehouse.store.keys(f"{new}_sessions/") == [f"{new}_sessions/{fresh.id}.json"]
    assert warehouse.store.keys(f"{old}_sessions/") == [f"{old}_sessions/{begun.id}.json"]
