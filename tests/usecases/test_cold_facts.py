"""Txns and skips of a table that is not open: read from its state and the versions after it, as an open one tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, refused, remove_line

PATHS = ["a", "b", "day=1/c d"]
APPS = ["stream", "other/ü"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.sampled_from(PATHS)),
        st.tuples(st.just("skip"), st.sampled_from(PATHS)),
        st.tuples(st.just("txn"), st.sampled_from(APPS)),
        st.tuples(st.just("state"), st.just("")),
        st.tuples(st.just("later"), st.just("")),
    ),
    min_size=1,
    max_size=14,
)


def cold(warehouse: Warehouse, *, from_files: int = 0) -> Coordinator:
    """A replica that has nothing open, and does not begin to open anything."""
    replica = warehouse.replica()
    replica.snapshots.cold.from_files = replica.skips.cold.from_files = from_files
    replica.open_tables.open_soon = lambda named: None  # type: ignore[method-assign]
    return replica


async def told(replica: Coordinator) -> dict[str, Any]:
    """Everything that is asked here, as one value."""
    found: dict[str, Any] = {}
    for app in (*APPS, "nobody"):
        try:
            found[app] = await replica.snapshots.txn(ORDERS, app, 0)
        except ProblemError as problem:
            found[app] = problem.slug
    found["skips"] = await replica.skips.all(ORDERS, 0)
    found["cooldowns"] = await replica.skips.cooldowns(ORDERS, 0)
    return found


async def played(warehouse: Warehouse, steps: list[tuple[str, str]]) -> Coordinator:
    """A table with that history: a file is added and removed by turns, a txn counts on."""
    replica = warehouse.replica()
    await create(replica, properties={"checkpoint.interval": "1000"})
    live: set[str] = set()
    counts = dict.fromkeys(APPS, 0)
    for kind, what in steps:
        version = (await replica.open_tables.get(ORDERS)).live.head.version
        if kind == "file":
            await commit(replica, remove_line(what) if what in live else add_line(what), readVersion=version)
            live ^= {what}
        elif kind == "skip" and what in live:
            await replica.skips.record(ORDERS, RecordSkip(path=what, reason="r", operation="o", cooldown_hours=1))
        elif kind == "txn":
            counts[what] += 1
            await commit(replica, {"txn": {"appId": what, "version": counts[what]}}, readVersion=version)
        elif kind == "state":
            await replica.checkpoints.checkpoint(ORDERS, None)
        elif kind == "later":
            warehouse.world.advance(1800)
    return replica


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_cold_and_open_tables_tell_the_same(steps: list[tuple[str, str]]) -> None:
    async def run() -> None:
        warehouse = Warehouse()
        writer = await played(warehouse, steps)
        replica = cold(warehouse)
        assert await told(replica) == await told(writer)
        has_state = ("state", "") in steps
        assert (replica.open_tables.opened() == []) is has_state, "only a table without a state has to be opened"
        await warehouse.close()

    asyncio.run(run())


@pytest.fixture
async def stored() -> Any:
    """A state, and after it a version that clears a skip and one that counts on."""
    warehouse = Warehouse()
    steps = [("file", "a"), ("file", "b"), ("skip", "a"), ("skip", "b"), ("txn", "stream"), ("state", "")]
    writer = await played(warehouse, [*steps, ("file", "a"), ("txn", "stream")])
    yield warehouse, writer
    await warehouse.close()


async def test_no_file_is_decoded_and_the_table_is_opened_behind(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, _ = stored
    replica = warehouse.replica()
    replica.snapshots.cold.from_files = 0
    soon: list[object] = []
    replica.open_tables.open_soon = soon.append  # type: ignore[method-assign, assignment]
    warehouse.store.gets.clear()
    assert (await replica.snapshots.txn(ORDERS, "stream", None)).version == 2
    assert [key for key in warehouse.store.gets if key.endswith((".avro", "ids.bin"))] == []
    assert [key for key in warehouse.store.gets if key.endswith("/_manifest.json")] != []
    assert len(soon) == 1


async def test_an_open_table_and_a_small_one_are_asked_in_memory(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, writer = stored
    warehouse.store.gets.clear()
    writer.snapshots.cold.from_files = 0
    assert (await writer.snapshots.txn(ORDERS, "stream", None)).version == 2
    assert warehouse.store.gets == []
    small = cold(warehouse, from_files=3)
    assert [skip.path for skip in await small.skips.all(ORDERS, None)] == ["b"]
    assert len(small.open_tables.opened()) == 1


async def test_what_is_damaged_is_passed_over(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, writer = stored
    expected = await told(writer)
    [manifest] = [key for key in warehouse.store.keys("") if key.endswith("/_manifest.json")]
    warehouse.store.overwrite(manifest, b"nothing that was written")
    replica = cold(warehouse)
    assert await told(replica) == expected
    assert len(replica.open_tables.opened()) == 1


async def test_a_dropped_table_is_gone(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, writer = stored
    await writer.tables.drop(ORDERS)
    with refused("table-not-found"):
        await cold(warehouse).snapshots.txn(ORDERS, "stream", 0)
    with refused("table-not-found"):
        await cold(warehouse).skips.all(ORDERS, 0)
