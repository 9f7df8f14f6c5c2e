"""Bounded work: lanes do not take each other's places, parts go some at a time, and slow objects are given up."""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import Callable

import pytest

from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.core.state_plan import Reason
from tarnlog_server.ports.object_store import ObjectInfo, OutcomeUnknown, StoreUnavailable
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.lanes import LanedStore, Lanes, LaneSizes, PartsInFlight, some_at_a_time
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.state_read import Kind, StateRef
from tarnlog_server.usecases.table_log import PARALLEL_READS, TableLog
from tests.usecases.replicas import ORDERS, FakeWorld, Warehouse, add_line, commit, create, files


def what_is(key: str) -> str:
    name = key.rsplit("/", 1)[-1]
    if "/manifests/" in key or (".checkpoint." in name and not name.endswith((".checkpoint.json", ".ids"))):
        return "part"
    return "version" if len(name) == 25 and name[:20].isdigit() else "other"


class Gate(MemoryStore):
    """A store in memory that lets others run in each call, counts who is inside, and holds back what it is told to."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__("w", now_ms=world.now_ms)
        self.inside: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.held: Callable[[str, str], bool] = lambda op, key: False
        self.open = asyncio.Event()
        self.open.set()

    def all_keys(self) -> builtins.list[str]:
        return [*self._keys]

    async def _pass(self, op: str, key: str) -> None:
        kind = f"{op} {what_is(key)}"
        self.inside[kind] = self.inside.get(kind, 0) + 1
        self.most[kind] = max(self.most.get(kind, 0), self.inside[kind])
        try:
            for _ in range(20):
                await asyncio.sleep(0)
            if self.held(op, key):
                await self.open.wait()
        finally:
            self.inside[kind] -= 1

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self._pass("get", key)
        return await super().get(key, start, length)

    async def put(self, key: str, data: bytes) -> None:
        await self._pass("put", key)
        await super().put(key, data)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        await self._pass("list", prefix)
        return await super().list(prefix, start_after, limit)


async def until(reached: Callable[[], bool]) -> None:
    while not reached():  # noqa: ASYNC110 - what is waited for is a count, which tells nobody
        await asyncio.sleep(0)


def replica_on(store: Gate, world: FakeWorld, **lanes: int) -> Coordinator:
    return Coordinator(Roots(Root("memory://w", store)), world, lanes=LaneSizes(**lanes))


async def filled(replica: Coordinator, count: int = 40, **properties: str) -> None:
    await create(replica, properties=properties)
    rng = random.Random(7)
    # Long names that do not compress: a few hundred of them fill several Parquet files of the smallest size.
    await commit(replica, *(add_line(f"f{n:03d}-{rng.randbytes(400).hex()}") for n in range(count)))


SMALL_PARTS = {
    "json": {"state.format": "json", "checkpoint.actionsPerPart": "4"},
    "parquet": {"state.format": "parquet", "checkpoint.maxFileSize": "65536"},
    "avro": {"state.format": "avro", "state.entriesPerManifest": "4"},
}
FILES = {"json": 40, "parquet": 400, "avro": 40}


@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("format", ["json", "parquet", "avro"])
async def test_as_many_parts_as_the_table_says_are_written_and_read_at_once(format: str, places: int) -> None:  # noqa: A002
    world = FakeWorld()
    store = Gate(world)
    replica = replica_on(store, world)
    limits = {"checkpoint.parallelism": str(places), "state.read.parallelism": str(places)}
    await filled(replica, FILES[format], **SMALL_PARTS[format], **limits)
    store.most.clear()
    written = await replica.checkpoints.checkpoint(ORDERS)
    if format != "avro":
        assert written.is_multi_part
    assert store.most["put part"] == places
    store.most.clear()
    other = replica_on(store, world)
    assert await files(other) == await files(replica)
    assert (await other.checkpoints.describe(ORDERS)).version == written.checkpoint_version
    assert store.most["get part"] == places
    await replica.close(0)
    await other.close(0)


@pytest.mark.parametrize("properties,most", [({}, PARALLEL_READS), ({"checkpoint.parallelism": "3"}, 3)])
async def test_versions_after_a_state_are_read_as_many_at_once_as_the_table_says(
    properties: dict[str, str], most: int
) -> None:
    world = FakeWorld()
    store = Gate(world)
    replica = replica_on(store, world)
    await filled(replica, 1, **properties)
    await replica.checkpoints.checkpoint(ORDERS)
    for number in range(PARALLEL_READS * 2):
        await commit(replica, add_line(f"later{number}"))
    store.most.clear()
    other = replica_on(store, world)
    assert sorted(await files(other)) == sorted(await files(replica))
    assert store.most["get version"] == most
    await replica.close(0)
    await other.close(0)


@pytest.mark.parametrize("format", ["json", "parquet"])
async def test_a_part_that_does_not_arrive_is_given_up_after_the_time_the_table_gives_it(format: str) -> None:  # noqa: A002
    world = FakeWorld()
    store = Gate(world)
    replica = replica_on(store, world)
    limit = {"checkpoint.read.timeoutSeconds": "1"}
    await filled(replica, FILES[format], **SMALL_PARTS[format], **limit)
    await replica.checkpoints.checkpoint(ORDERS)
    live = (await replica.open_tables.get(ORDERS)).live
    ref = StateRef(live.head.version, Kind.JSON if format == "json" else Kind.PARQUET)
    last = max(key for key in store.all_keys() if what_is(key) == "part")
    store.held = lambda op, key: op == "get" and key == last
    store.open.clear()
    with pytest.raises(StoreUnavailable, match=r"checkpoint\.read\.timeoutSeconds = 1"):
        await live.states.read(ref)
    store.open.set()
    assert len(list((await live.states.read(ref)).state.files)) == FILES[format]
    await replica.close(0)


async def test_a_checkpoint_whose_writes_hang_keeps_neither_reads_nor_lists_nor_commits_waiting() -> None:
    world = FakeWorld()
    store = Gate(world)
    replica = replica_on(store, world, listing=1, reading=1, checkpointing=2)
    await filled(replica, 40, **SMALL_PARTS["json"], **{"checkpoint.parallelism": "8"})
    store.most.clear()
    store.held = lambda op, key: op == "put" and what_is(key) == "part"
    store.open.clear()
    writing = asyncio.create_task(replica.checkpoints.checkpoint(ORDERS))
    async with asyncio.timeout(30):
        await until(lambda: store.inside.get("put part", 0) == 2)
        assert len(await files(replica)) == 40
        await commit(replica, add_line("meanwhile"))
        await replica.cleanup.cleanup(ORDERS, dry_run=True)
        assert not writing.done()
        store.open.set()
        await writing
    assert store.most["put part"] == 2
    await replica.close(0)


async def test_reads_that_hang_do_not_keep_lists_and_commits_waiting() -> None:
    world = FakeWorld()
    inner = Gate(world)
    lanes = Lanes(LaneSizes(listing=1, reading=2, checkpointing=1))
    store = LanedStore(inner, lanes)
    for name in "abc":
        await store.put(f"k/{name}", b"1")
    inner.held = lambda op, key: op == "get"
    inner.open.clear()
    reads = [asyncio.create_task(store.get(f"k/{name}")) for name in "abc"]
    async with asyncio.timeout(30):
        await until(lambda: inner.inside.get("get other", 0) == 2)
        assert len(await store.list("k/")) == 3
        await store.put_if_absent("k/d", b"2")
        inner.open.set()
        assert await asyncio.gather(*reads) == [b"1", b"1", b"1"]
    assert inner.most["get other"] == 2


async def test_parts_in_flight_raise_the_first_failure_and_leave_nothing_running() -> None:
    ended: list[str] = []

    async def slow(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def fails() -> None:
        raise OutcomeUnknown("k", key="k")

    with pytest.raises(OutcomeUnknown):
        async with PartsInFlight(3) as parts:
            await parts.send(lambda: slow("a"))
            await parts.send(fails)
            await parts.send(lambda: slow("b"))
    assert sorted(ended) == ["a", "b"]


async def test_some_at_a_time_keeps_the_order_and_gives_up_the_rest_after_a_failure() -> None:
    async def give(value: int) -> int:
        for _ in range(10 - value):
            await asyncio.sleep(0)
        if value == 7:
            raise ValueError(value)
        return value

    assert await some_at_a_time(3, [lambda n=n: give(n) for n in range(6)]) == list(range(6))  # type: ignore[misc]
    assert await some_at_a_time(3, []) == []
    with pytest.raises(ValueError, match="7"):
        await some_at_a_time(2, [lambda n=n: give(n) for n in range(9)])  # type: ignore[misc]


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
async def test_the_floor_is_found_among_any_number_of_them(count: int) -> None:
    warehouse = Warehouse()
    paths = LogPaths("t")
    log = TableLog(warehouse.store, paths, warehouse.world)
    for number in range(1, count + 1):
        await warehouse.store.put(paths.floor(number), b"{}")
    assert await log.floor() == count


async def test_a_checkpoint_that_fails_in_the_middle_is_told_and_the_next_one_is_whole() -> None:
    world = FakeWorld()
    store = Gate(world)
    replica = replica_on(store, world)
    await filled(replica, 40, **SMALL_PARTS["json"])
    failing = True

    async def put(key: str, data: bytes) -> None:
        if failing and ".checkpoint." in key and key.endswith("00003.json"):
            raise StoreUnavailable("no", key=key)
        await MemoryStore.put(store, key, data)

    store.put = put  # type: ignore[method-assign]
    table = await replica.open_tables.get(ORDERS)
    assert not await replica.checkpoints.keep(table, Reason.INTERVAL)
    failing = False
    assert await replica.checkpoints.keep(table, Reason.INTERVAL)
    other = replica_on(store, world)
    assert len(await files(other)) == 40
    await replica.close(0)
    await other.close(0)
