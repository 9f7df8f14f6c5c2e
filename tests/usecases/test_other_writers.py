"""Other software writes versions too: odd times, new protocols, and listings that are made while it does."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pytest

from tarnlog.protocol.commits import Rejected
from tarnlog_server.ports.object_store import ObjectInfo
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


async def written(warehouse: Warehouse, key: str, *actions: dict[str, Any]) -> None:
    """A version by another writer."""
    await warehouse.store.put_if_absent(key, b"".join(json.dumps(action).encode() + b"\n" for action in actions))


# times --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("time", [2**63 - 1, 10**17, -5, 0, 5])
@pytest.mark.parametrize("put_id", [None, "another's"])
async def test_times_grow_whatever_others_write(warehouse: Warehouse, time: int, put_id: str | None) -> None:
    one, two = warehouse.replica(), warehouse.replica()
    view = await create(one)
    await commit(one, add_line("a"))
    await files(two)
    await written(
        warehouse,
        version_key(warehouse.log(view), 2),
        {"commitInfo": {"timestamp": time, "putId": put_id}},
        add_line("theirs"),
    )
    commit_id = str(warehouse.world.uuid7())
    done = await commit(one, add_line("b"), commitId=commit_id)
    assert done.version == 3
    for replica in (one, two, warehouse.replica()):
        assert (await commit(replica, add_line("b"), commitId=commit_id)).replayed
        page = await replica.history.commits(ORDERS, None, None, "asc", 10, None, 0)
        times = [view.timestamp for view in page.commits]
        assert times == sorted(set(times)), times
        assert times[-1] == done.timestamp < warehouse.world.now_ms() + 1000


# protocol and metaData ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reader", [4, 9])
async def test_a_protocol_that_was_raised_meanwhile(warehouse: Warehouse, reader: int) -> None:
    one, two = warehouse.replica(), warehouse.replica()
    view = await create(one)
    await commit(one, add_line("a"))
    await files(two)
    key = version_key(warehouse.log(view), 2)
    await written(warehouse, key, {"protocol": {"minReaderVersion": reader, "minWriterVersion": 9}})
    outcome = await send(one, add_line("b"))
    assert isinstance(outcome, Rejected)
    assert outcome.problem["type"].endswith("protocol-not-supported")
    assert len(warehouse.store.keys(warehouse.log(view))) == 3, "nothing was written after it"
    for replica in (one, two, warehouse.replica()):
        if reader == 4:
            assert await files(replica) == ["a"]
        else:
            with refused("protocol-not-supported", "reader version 9"):
                await files(replica)


async def test_partition_columns_that_another_writer_changed(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    metadata = {
        "id": view.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(view.schema),
        "partitionColumns": ["note"],
        "configuration": {},
    }
    await written(warehouse, version_key(warehouse.log(view), 1), {"metaData": metadata})
    outcome = await send(replica, add_line("a"))
    assert isinstance(outcome, Rejected)
    assert "note" in outcome.problem["detail"]
    assert await files(replica) == []


# listings -----------------------------------------------------------------------------------------------------------
async def test_a_listing_that_misses_a_version_made_meanwhile_is_no_damage(warehouse: Warehouse) -> None:
    writer, behind = warehouse.replica(), warehouse.replica()
    view = await create(writer)
    await files(behind)
    for name in "abc":
        await commit(writer, add_line(name))
    hidden = {version_key(warehouse.log(view), 1): 2}
    real = warehouse.store.list

    async def racing(prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        """Newer versions show before one that a directory's order put behind the reader."""
        found = await real(prefix, start_after, limit)
        missed = [info.key for info in found if hidden.get(info.key, 0) > 0]
        for key in missed:
            hidden[key] -= 1
        return [info for info in found if info.key not in missed]

    warehouse.store.list = racing  # type: ignore[method-assign]
    assert await files(behind) == ["a", "b", "c"]
    hidden[version_key(warehouse.log(view), 2)] = 2  # once while states are looked for, once for the versions
    fresh = warehouse.replica()
    assert await files(fresh, max_staleness=60) == ["a"], "what was there when the listing began"
    assert await files(fresh) == ["a", "b", "c"]
