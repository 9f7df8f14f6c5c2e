"""The in-process caches: what they save, when they forget, and that nobody is told something stale by them."""

from __future__ import annotations

import pytest

from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases import caches
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    set_properties,
    version_key,
)

SMALL = CommitterSettings(window=Window(versions=1, snapshots=1))
NAMES = {"protocol", "metadata", "versions", "files", "versionsList"}


async def old_table(warehouse: Warehouse, **settings: int) -> tuple[Coordinator, str]:
    """A table of seven versions on a replica that keeps only the newest in mind; and its log's prefix."""
    writer = warehouse.replica()
    view = await create(writer)
    for number in range(6):
        await commit(writer, add_line(f"f{number}"))
    replica = warehouse.replica(settings=SMALL, **settings)
    await replica.tables.describe(ORDERS)
    warehouse.store.gets.clear()
    return replica, warehouse.log(view)


def counts(replica: Coordinator, name: str) -> tuple[int, int]:
    stats = replica.caches.stats()[name]
    return stats.hits, stats.misses


async def test_every_cache_is_named_and_starts_cold(warehouse: Warehouse) -> None:
    replica = warehouse.replica(cache_ttl_seconds=7, cache_max_versions=9)
    stats = replica.caches.stats()
    assert set(stats) == NAMES
    for one in stats.values():
        assert (one.hits, one.misses, one.hit_rate, one.size, one.ttl_seconds) == (0, 0, 0.0, 0, 7)
    assert stats["versions"].max_size == 9


async def test_old_versions_are_read_once(warehouse: Warehouse) -> None:
    replica, log = await old_table(warehouse)
    first = await replica.history.version(ORDERS, 2)
    assert counts(replica, "versions") == (0, 1)
    for _ in range(3):
        assert await replica.history.version(ORDERS, 2) == first
    assert counts(replica, "versions") == (3, 1)
    assert replica.caches.stats()["versions"].hit_rate == 0.75
    assert warehouse.store.gets == [version_key(log, 2)]


async def test_old_snapshots_are_replayed_once(warehouse: Warehouse) -> None:
    replica, _ = await old_table(warehouse)
    assert await files(replica, version=3, max_staleness=None) == ["f0", "f1", "f2"]
    reads = len(warehouse.store.gets)
    assert reads == 5, "the hint that is not there, and the versions"
    assert await files(replica, version=3, max_staleness=None) == ["f0", "f1", "f2"]
    assert len(warehouse.store.gets) == reads
    assert counts(replica, "files") == (1, 1)


async def test_entries_live_as_long_as_the_ttl(warehouse: Warehouse) -> None:
    replica, log = await old_table(warehouse, cache_ttl_seconds=50)
    await replica.history.version(ORDERS, 2)
    warehouse.world.advance(49)
    await replica.history.version(ORDERS, 2)
    assert warehouse.store.gets == [version_key(log, 2)]
    warehouse.world.advance(2)
    await replica.history.version(ORDERS, 2)
    assert warehouse.store.gets == [version_key(log, 2)] * 2


async def test_no_more_versions_than_the_bound(warehouse: Warehouse) -> None:
    replica, log = await old_table(warehouse, cache_max_versions=2)
    for version in (1, 2, 3):
        await replica.history.version(ORDERS, version)
    assert replica.caches.stats()["versions"].size == 2
    warehouse.store.gets.clear()
    await replica.history.version(ORDERS, 3)
    await replica.history.version(ORDERS, 1)
    assert warehouse.store.gets == [version_key(log, 1)], "the oldest went"


async def test_a_large_entry_takes_the_room_of_many_and_is_kept_all_the_same(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "ACTIONS_A_PLACE", 10)
    monkeypatch.setattr(caches, "FILES_A_PLACE", 1)
    replica = warehouse.replica(settings=SMALL, cache_max_versions=4)
    await create(replica)
    for size in (1, 1, 25, 500, 1, 1, 1):
        await commit(replica, *(add_line(f"f{warehouse.world.uuid7()}") for _ in range(size)))
    sizes = []
    for version in (1, 2, 3, 4):
        await replica.history.version(ORDERS, version)
        sizes.append(replica.caches.stats()["versions"].size)
    assert sizes == [1, 2, 2, 1], "three places for the third, all of them for the fourth"
    for version in (1, 2, 4):
        assert len(await files(replica, version=version, max_staleness=None)) in (1, 2, 527)
    assert replica.caches.stats()["files"].size == 1
    reads = len(warehouse.store.gets)
    assert len(await files(replica, version=4, max_staleness=None)) == 527
    assert len(warehouse.store.gets) == reads


async def test_rendered_metadata_is_kept_until_it_changes(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    for _ in range(3):
        await replica.snapshots.snapshot(ORDERS, None, None, None)
        await commit(replica, add_line(f"f{warehouse.world.monotonic()}"))
    hits, misses = counts(replica, "metadata")
    assert (hits, misses) == (2, 1), "appends do not change it"
    await replica.tables.alter(ORDERS, set_properties(a="1"))
    after = await replica.snapshots.snapshot(ORDERS, None, None, None)
    assert after.meta_data is not None
    assert after.meta_data["configuration"] == {"a": "1"}
    assert counts(replica, "metadata") == (2, 2)
    before = await replica.snapshots.snapshot(ORDERS, 1, None, None)
    assert before.meta_data is not None
    assert before.meta_data["configuration"] == {}, "an old version shows its own"


async def test_the_range_of_versions_follows_every_commit(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    for number in range(4):
        await commit(replica, add_line(f"f{number}"))
        page = await replica.history.changes(ORDERS, None, None, 100, None)
        assert [one.version for one in page.changes] == list(range(number + 2))
    assert replica.caches.stats()["versionsList"].misses >= 1


async def test_invalidation_of_one_table_and_of_all(warehouse: Warehouse) -> None:
    replica, log = await old_table(warehouse)
    await create(replica, "other.table")
    location = (await replica.tables.describe(ORDERS)).location
    await replica.history.version(ORDERS, 2)
    await files(replica, version=2, max_staleness=None)
    dropped = replica.caches.invalidate("memory://w/somewhere/else")
    assert set(dropped) == NAMES
    assert set(dropped.values()) == {0}
    dropped = replica.caches.invalidate(location)
    assert (dropped["versions"], dropped["files"], dropped["versionsList"]) == (1, 1, 1)
    assert dropped["protocol"] == 1
    warehouse.store.gets.clear()
    await replica.history.version(ORDERS, 2)
    assert warehouse.store.gets == [version_key(log, 2)]
    assert sum(replica.caches.invalidate().values()) >= 2
    assert all(one.size == 0 for one in replica.caches.stats().values())


@pytest.mark.parametrize("staleness", [0, 5, None])
async def test_latest_is_as_fresh_as_was_asked_for(warehouse: Warehouse, staleness: float | None) -> None:
    writer, reader = warehouse.replica(), warehouse.replica()
    await create(writer)
    await files(reader)
    await commit(writer, add_line("x"))
    allowed = 60 if staleness is None else staleness
    seen = await files(reader, max_staleness=staleness)
    assert seen == ([] if allowed else ["x"])
    warehouse.world.advance(allowed + 1)
    assert await files(reader, max_staleness=staleness) == ["x"]


async def test_a_fresh_head_costs_no_request(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await files(replica)
    warehouse.store.gets.clear()
    warehouse.store.lists.clear()
    for _ in range(20):
        await files(replica, max_staleness=30)
        await replica.snapshots.snapshot(ORDERS, None, None, 30)
    assert (warehouse.store.gets, warehouse.store.lists) == ([], [])


async def test_a_dropped_table_is_not_served_from_a_cache(warehouse: Warehouse) -> None:
    one, other = warehouse.replica(), warehouse.replica()
    await create(one)
    await files(other)
    await one.tables.drop(ORDERS)
    with refused("table-not-found"):
        await files(one, max_staleness=None)
    with refused("table-not-found"):
        await files(other, max_staleness=0)


async def test_a_table_says_how_long_its_entries_are_kept(warehouse: Warehouse) -> None:
    replica, log = await old_table(warehouse)
    await replica.tables.alter(ORDERS, set_properties(cache__expirationSeconds="10"))
    for seconds, hits in ((0, 0), (9, 1), (2, 1), (9, 2)):
        warehouse.world.advance(seconds)
        await replica.history.version(ORDERS, 2)
        assert counts(replica, "versions")[0] == hits, seconds
    assert warehouse.store.gets.count(version_key(log, 2)) == 2
    await replica.tables.alter(ORDERS, set_properties(cache__expirationSeconds="1000"))
    await replica.history.version(ORDERS, 3)
    warehouse.world.advance(900)
    await replica.history.version(ORDERS, 3)
    assert counts(replica, "versions")[0] == 3, "longer than the service's 300 seconds"


async def test_a_table_says_how_many_of_its_versions_are_kept(warehouse: Warehouse) -> None:
    replica, _ = await old_table(warehouse)
    await create(replica, "sales.other")
    await replica.tables.alter(ORDERS, set_properties(cache__maxVersions="2"))
    for version in (1, 2, 3, 3, 2, 1):
        await replica.history.version(ORDERS, version)
    assert replica.caches.stats()["versions"].size == 2
    assert counts(replica, "versions")[0] == 2
    await replica.tables.alter(ORDERS, set_properties(cache__maxVersions="0"))
    replica.caches.invalidate()
    for _ in range(2):
        await replica.history.version(ORDERS, 1)
    assert replica.caches.stats()["versions"].size == 0


def test_the_bound_of_one_table_takes_nothing_from_another() -> None:
    cache: caches.CountedCache[int] = caches.CountedCache("x", 100, 10, lambda: 0.0, Telemetry())
    for version in range(5):
        cache.put(("a", version), version)
        cache.put(("b", version), version, most=2)
    assert [cache.get(("a", version)) for version in range(5)] == [0, 1, 2, 3, 4]
    assert [cache.get(("b", version)) for version in range(5)] == [None, None, None, 3, 4]
