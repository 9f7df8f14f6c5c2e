"""The index behind commits and in front of storage: what it answers is what storage answers, whatever happens to it."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tarnlog.protocol.ids import TableName
from tarnlog_server.core import index_plan
from tarnlog_server.core.index_plan import agrees
from tarnlog_server.core.index_rows import IndexedTable, TableFacts
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.history import CommitView
from tarnlog_server.usecases.index_guard import GuardSettings
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, refused, together, version_key
from tests.usecases.unreliable_index import UnreliableIndex

SMALL = CommitterSettings(window=Window(versions=4, weight=100_000, snapshots=2, recent_ids=4))
"""Little in memory, so that the past has to be looked up."""
QUICK = GuardSettings(read_seconds=0.02, write_seconds=0.05, first_pause_seconds=0.2, longest_pause_seconds=5)


class Heard(Telemetry):
    def __init__(self) -> None:
        self.lookups: list[tuple[str, bool]] = []
        self.wrong = 0

    def index_lookup(self, kind: str, hit: bool) -> None:
        self.lookups.append((kind, hit))

    def index_wrong(self) -> None:
        self.wrong += 1


class Place:
    """A warehouse with an index that can go wrong."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.index = UnreliableIndex()
        self.heard = Heard()

    def replica(self, **settings: Any) -> Coordinator:
        given = {"settings": SMALL, "telemetry": self.heard, "index": self.index, "index_guard": QUICK, **settings}
        return self.warehouse.replica(**given)

    def plain(self) -> Coordinator:
        """One that knows no index: what it says is the truth."""
        return self.warehouse.replica(settings=SMALL)

    @property
    def rows(self) -> Any:
        (rows,) = self.index.rows.values()
        return rows

    def sound(self) -> bool:
        rows = self.rows
        counted = (
            len(rows.versions),
            min(rows.versions),
            max(rows.versions),
            sum(r.checksum for r in rows.versions.values()),
        )
        return agrees(rows.table, counted)


@pytest_asyncio.fixture
async def place(warehouse: Warehouse) -> AsyncIterator[Place]:
    yield Place(warehouse)


async def flush(replica: Coordinator) -> None:
    assert replica.ingest is not None
    await replica.ingest.flush()


async def history(replica: Coordinator, **at: Any) -> list[CommitView]:
    found: list[CommitView] = []
    cursor = None
    while True:
        page = await replica.history.commits(
            ORDERS, at.get("first"), at.get("last"), at.get("order", "desc"), at.get("limit", 7), cursor
        )
        found += page.commits
        if page.next is None:
            return found
        cursor = page.next


async def filled(replica: Coordinator, versions: int = 20, *, flushed: bool = True) -> None:
    """A table with a past. It is flushed as it grows, so that all of it is in the index and little in memory."""
    await create(replica)
    for number in range(versions):
        replica.world.advance(1)  # type: ignore[attr-defined]
        await together(replica, f"a{number}", f"b{number}")
        if flushed and replica.ingest is not None:
            await flush(replica)


async def test_what_is_committed_gets_into_the_index(place: Place) -> None:
    replica = place.replica(settings=None)
    await filled(replica, flushed=False)
    assert place.index.calls == [], "a commit asks nothing of the index"
    await flush(replica)
    head = (await replica.open_tables.get(ORDERS)).live.head
    assert (place.rows.first, place.rows.last) == (0, head.version)
    assert place.rows.facts.num_files == 40
    assert place.sound()
    assert replica.ingest is not None
    assert replica.ingest.status().tables == 0


async def test_history_from_the_index_is_that_of_storage_and_costs_no_reads(place: Place) -> None:
    replica = place.replica()
    await filled(replica)
    await flush(replica)
    place.warehouse.store.gets.clear()
    for order in ("asc", "desc"):
        for limit in (3, 100):
            found = await history(replica, order=order, limit=limit)
            assert found == await history(place.plain(), order=order, limit=limit)
    assert ("history", True) in place.heard.lookups
    place.warehouse.store.gets.clear()
    await history(replica)
    assert [key for key in place.warehouse.store.gets if key.endswith(".json") and "_transaction_log" in key] == []


async def test_a_time_of_long_ago_is_found_in_the_index(place: Place) -> None:
    writer = place.replica()
    await filled(writer)
    await flush(writer)
    await writer.checkpoints.checkpoint(ORDERS, None)
    await commit(writer, add_line("last"))
    reader, plain = place.replica(), place.plain()
    await reader.open_tables.get(ORDERS)
    await flush(reader)
    place.heard.lookups.clear()
    for entry in await history(plain):
        for moment in (entry.timestamp, entry.timestamp + 500):
            told = await reader.snapshots.snapshot(ORDERS, None, moment, None)
            assert told.version == (await plain.snapshots.snapshot(ORDERS, None, moment, None)).version
    assert ("timestamp", True) in place.heard.lookups


async def test_a_commit_of_long_ago_is_found_in_the_index(place: Place) -> None:
    replica = place.replica()
    await create(replica)
    first = await commit(replica, add_line("first"))
    for number in range(20):
        await commit(replica, add_line(f"more-{number}"))
        await flush(replica)
    told = await replica.commits.status(ORDERS, first.commit_id)
    assert (told.version, told.seq, told.timestamp) == (first.version, first.seq, first.timestamp)  # type: ignore[union-attr]
    assert ("outcome", True) in place.heard.lookups


async def test_after_a_restart_the_index_is_compared_with_the_log_and_goes_on(place: Place) -> None:
    first = place.replica()
    await filled(first)
    await flush(first)
    await first.checkpoints.checkpoint(ORDERS, None)
    before = place.rows.table
    second = place.replica()
    await second.open_tables.get(ORDERS)
    place.warehouse.store.gets.clear()
    await flush(second)
    assert len(place.warehouse.store.gets) == 1, "attaching compares one version"
    assert place.rows.table == before
    assert await history(second) == await history(place.plain())
    await commit(second, add_line("more"))
    await flush(second)
    assert place.rows.last == before.last + 1
    assert place.sound()


async def test_a_gap_that_another_process_left_is_filled_from_storage(place: Place) -> None:
    first = place.replica()
    await filled(first, 3)
    await flush(first)
    plain = place.plain()
    for number in range(12):
        await commit(plain, add_line(f"unseen-{number}"))
    await plain.checkpoints.checkpoint(ORDERS, None)
    later = place.replica()
    await commit(later, add_line("seen"))
    await flush(later)
    assert (place.rows.first, place.rows.last) == (0, 16)
    assert place.sound()
    assert await history(later) == await history(place.plain())


async def test_a_gap_that_is_too_wide_begins_the_index_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_plan.next_put, "__defaults__", (5,))
    first = place.replica()
    await filled(first, 3)
    await flush(first)
    plain = place.plain()
    for number in range(12):
        await commit(plain, add_line(f"unseen-{number}"))
    await plain.checkpoints.checkpoint(ORDERS, None)
    later = place.replica()
    await commit(later, add_line("seen"))
    await flush(later)
    assert (place.rows.first, place.rows.last) == (16, 16)
    assert await history(later) == await history(place.plain())


async def test_commits_and_reads_go_on_while_it_is_down_and_it_catches_up(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 10)
    await flush(replica)
    place.index.down = True
    for number in range(10):
        await commit(replica, add_line(f"meanwhile-{number}"))
    assert await history(replica) == await history(place.plain())
    assert _state(replica) == "degraded"
    before = len(place.index.calls)
    assert await history(replica) == await history(place.plain())
    assert len(place.index.calls) == before, "whoever reads does not try again"
    place.index.down = False
    await flush(replica)
    assert _state(replica) == "ready"
    assert place.rows.last == 20
    assert place.sound()


async def test_a_table_that_is_closed_while_the_index_is_away_takes_no_memory(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 3)
    place.index.down = True
    await commit(replica, add_line("meanwhile"))
    writing = asyncio.create_task(flush(replica))
    for _ in range(100):
        await asyncio.sleep(0)
    assert _state(replica) == "degraded"
    closed = weakref.ref((await replica.open_tables.get(ORDERS)).live)
    replica.open_tables.max_open = 1
    await create(replica, "sales.other")
    assert [str(table.named.name) for table in replica.open_tables.opened()] == ["sales.other"]
    for _ in range(100):  # tasks of the committer that end
        await asyncio.sleep(0)
    gc.collect()
    assert closed() is None
    place.index.down = False
    await writing
    await replica.open_tables.get(ORDERS)
    await flush(replica)
    assert sorted((rows.table.facts.name, rows.last) for rows in place.index.rows.values()) == [
        ("sales.orders", 4),
        ("sales.other", 0),
    ]


async def test_an_index_that_hangs_costs_one_short_wait(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 10)
    await flush(replica)
    place.index.hangs = True
    assert await history(replica) == await history(place.plain())
    await commit(replica, add_line("meanwhile"))
    assert len([kind for kind, hit in place.heard.lookups if not hit]) >= 1
    place.index.hangs = False
    await flush(replica)
    assert place.rows.last == 11


@pytest.mark.parametrize("call", ["put", "table", "count", "history", "prepare", "forget"])
@pytest.mark.parametrize("how", ["fail_next", "lose_next"])
async def test_a_call_that_fails_or_whose_answer_is_lost_changes_nothing_in_the_end(
    place: Place, call: str, how: str
) -> None:
    replica = place.replica(settings=None)
    await filled(replica, 5, flushed=False)
    getattr(place.index, how).add(call)
    await flush(replica)
    again = place.replica()
    await again.open_tables.get(ORDERS)
    getattr(place.index, how).add(call)
    await flush(again)
    assert (place.rows.first, place.rows.last) == (0, 5)
    assert place.sound()


async def test_an_index_that_was_emptied_heals(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 10)
    await flush(replica)
    place.index.rows.clear()
    assert await history(replica) == await history(place.plain())
    await commit(replica, add_line("after"))
    await flush(replica)
    assert place.rows.last == 11
    assert place.sound()
    assert await history(replica) == await history(place.plain())


def _state(replica: Coordinator) -> str:
    assert replica.ingest is not None
    return replica.ingest.guard.state


def _altered(rows: Any, version: int, **fields: Any) -> None:
    rows.versions[version] = msgspec.structs.replace(rows.versions[version], **fields)


LIES: dict[str, Callable[[Any], object]] = {
    "other commits": lambda rows: _altered(rows, 3, commits=rows.versions[4].commits),
    "another time": lambda rows: _altered(rows, 3, timestamp=rows.versions[3].timestamp + 1),
    "a row of another version": lambda rows: rows.versions.__setitem__(
        3, msgspec.structs.replace(rows.versions[4], version=3)
    ),
    "a row is gone": lambda rows: rows.versions.pop(3),
    "all rows are gone": lambda rows: rows.versions.clear(),
}


@pytest.mark.parametrize("lie", LIES)
async def test_rows_altered_by_hand_are_noticed_and_made_again(place: Place, lie: str) -> None:
    replica = place.replica()
    await filled(replica, 10)
    await flush(replica)
    LIES[lie](place.rows)
    assert await history(replica) == await history(place.plain())
    await flush(replica)
    assert place.heard.wrong == 1
    assert place.sound()
    assert await history(replica) == await history(place.plain())
    assert place.heard.wrong == 1


@pytest.mark.parametrize("lie", LIES)
async def test_a_restart_notices_it_too(place: Place, lie: str) -> None:
    first = place.replica()
    await filled(first, 10)
    await flush(first)
    LIES[lie](place.rows)
    second = place.replica()
    await second.open_tables.get(ORDERS)
    await flush(second)
    assert await history(second) == await history(place.plain())
    await flush(second)
    assert place.heard.wrong >= 1
    assert place.sound()


async def test_an_altered_row_with_a_new_checksum_is_noticed_by_the_content_hash(place: Place) -> None:
    first = place.replica()
    await filled(first, 10)
    await flush(first)
    location = place.rows.facts.location
    row = place.rows.versions[3]
    other = msgspec.structs.replace(row, commits="[]")
    from tarnlog_server.codec.index_rows import checksum_of

    forged = checksum_of(location, "version", 3, other.timestamp, "[]")
    place.rows.versions[3] = msgspec.structs.replace(other, checksum=forged)
    second = place.replica()
    await second.open_tables.get(ORDERS)
    await flush(second)
    assert place.heard.wrong == 1
    assert place.sound()
    assert await history(second) == await history(place.plain())


async def test_rows_of_another_log_at_the_same_place_are_not_believed(place: Place, warehouse: Warehouse) -> None:
    other = Place(Warehouse())
    replica = other.replica()
    await filled(replica, 10)
    await commit(replica, add_line("only there"))
    await flush(replica)
    mine = place.replica()
    view = await create(mine)
    await commit(mine, add_line("here"))
    rows = other.rows
    place.index.rows[view.location] = rows
    rows.facts = msgspec.structs.replace(rows.facts, location=view.location)
    await flush(mine)
    assert place.heard.wrong == 1
    assert place.rows.last == 1
    assert await history(mine) == await history(place.plain())
    await other.warehouse.close()


async def test_versions_that_storage_lost_are_not_told_by_the_index(place: Place) -> None:
    """A warehouse that was restored from an older copy: what the index holds beyond its log is of another past."""
    first = place.replica()
    await filled(first, 10)
    log = place.warehouse.log(await first.tables.describe(ORDERS))
    lost = (await history(first, first=8, last=8))[0].commit_id
    assert lost is not None
    for version in range(7, 11):
        await place.warehouse.store.delete(version_key(log, version))
    second = place.replica()
    await second.open_tables.get(ORDERS)
    await flush(second)
    for number in range(9):
        await commit(second, add_line(f"another-{number}"))
    await flush(second)
    assert place.sound()
    assert await history(second) == await history(place.plain())
    with refused("commit-not-found"):
        await second.commits.status(ORDERS, lost)


async def test_a_table_that_is_dropped_is_forgotten(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 3)
    await flush(replica)
    await replica.tables.drop(ORDERS)
    await flush(replica)
    assert place.index.rows == {}


async def test_rebuild_reads_everything_there_is(place: Place) -> None:
    plain = place.plain()
    await filled(plain, 40)
    await plain.checkpoints.checkpoint(ORDERS, None)
    replica = place.replica()
    await replica.open_tables.get(ORDERS)
    await flush(replica)
    assert place.rows.first > 0
    told: list[tuple[int, int | None, str]] = []
    made = await replica.rebuilding.rebuild(ORDERS, lambda *progress: told.append(progress))
    assert (made.first_version, made.last_version, made.versions) == (0, 40, 41)
    assert told[0] == (0, 41, "versions")
    assert told[-1] == (41, 41, "versions")
    assert place.sound()
    await flush(replica)
    place.warehouse.store.gets.clear()
    assert await history(replica) == await history(plain)
    await commit(replica, add_line("after"))
    await flush(replica)
    assert (place.rows.first, place.rows.last) == (0, 41)


async def test_a_rebuild_after_something_was_wrong_stays(place: Place) -> None:
    replica = place.replica()
    await filled(replica, 10)
    LIES["other commits"](place.rows)
    assert await history(replica) == await history(place.plain())
    assert place.heard.wrong == 1
    await replica.rebuilding.rebuild(ORDERS)
    await flush(replica)
    assert (place.rows.first, place.rows.last) == (0, 10)
    assert place.sound()
    assert place.heard.wrong == 1


async def test_rebuild_says_when_there_is_no_index(place: Place) -> None:
    plain = place.plain()
    await create(plain)
    with refused("index-unavailable", "TARNLOG_DATABASE_URL"):
        await plain.rebuilding.rebuild(ORDERS)
    replica = place.replica()
    await replica.open_tables.get(ORDERS)
    place.index.down = True
    with refused("index-unavailable"):
        await replica.rebuilding.rebuild(ORDERS)
    place.index.down = False
    await flush(replica)
    assert place.sound()


async def test_two_replicas_share_one_index(place: Place) -> None:
    one, two = place.replica(), place.replica()
    await create(one)
    for number in range(15):
        await commit(one if number % 3 else two, add_line(f"f{number}"))
        if number % 2:
            await flush(two)
    await flush(one)
    await files(two)
    await flush(two)
    assert (place.rows.first, place.rows.last) == (0, 15)
    assert place.sound()
    truth = await history(place.plain())
    assert await history(one) == truth
    assert await history(two) == truth


async def test_what_another_replica_forgot_is_no_lie(place: Place) -> None:
    one, two = place.replica(), place.replica()
    await filled(one, 10)
    await files(two)
    await flush(two)
    await one.rebuilding.rebuild(ORDERS)
    place.index.rows.clear()
    assert await history(two) == await history(place.plain())
    await flush(two)
    assert place.heard.wrong == 0
    assert place.sound()


class Interrupted(UnreliableIndex):
    """Something happens while a table is looked up."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def table(self, location: str) -> IndexedTable | None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().table(location)


async def test_a_table_that_is_closed_while_it_is_put_takes_no_other_with_it(place: Place) -> None:
    place.index = Interrupted()
    replica = place.replica()
    other = TableName("sales", "other")
    await create(replica, str(other))
    view = await create(replica)
    await commit(replica, add_line("a"))
    broken = version_key(place.warehouse.log(view), 2)

    async def damage() -> None:
        await place.warehouse.store.put(broken, b"damaged")
        with refused("log-corrupt"):
            await files(replica)

    place.index.meanwhile = damage
    await flush(replica)
    assert [rows.facts.name for rows in place.index.rows.values()] == [str(other)]
    await place.warehouse.store.delete(broken)
    replica.world.advance(60)  # type: ignore[attr-defined]
    assert await files(replica) == ["a"]
    await flush(replica)
    assert {rows.facts.name: rows.last for rows in place.index.rows.values()} == {str(other): 0, str(ORDERS): 1}


async def test_whatever_happens_history_is_the_truth(place: Place, long_run: bool) -> None:
    seed = int(os.environ.get("TARNLOG_TEST_SEED") or time.time_ns() % 2**32)
    print(f"TARNLOG_TEST_SEED={seed}")
    rng = random.Random(seed)
    replicas = [place.replica(), place.replica()]
    await create(replicas[0])
    for number in range(400 if long_run else 80):
        replica = rng.choice(replicas)
        what = rng.random()
        if what < 0.4:
            await together(replica, f"f{number}", f"g{number}")
        elif what < 0.6:
            place.index.down = False
            await flush(replica)
        elif what < 0.65:
            place.index.rows.clear()
        elif what < 0.72 and place.index.rows:
            rows = place.rows
            version = rng.choice(sorted(rows.versions) or [0])
            if rng.random() < 0.5:
                rows.versions.pop(version, None)
            elif version in rows.versions:
                _altered(rows, version, commits="[]")
        elif what < 0.77:
            place.index.down = True
        elif what < 0.82:
            await replica.checkpoints.checkpoint(ORDERS, None)
        elif what < 0.87:
            replicas[rng.randrange(2)] = place.replica()
        else:
            await files(replica)
            assert await history(replica) == await history(place.plain())
    place.index.down = False
    # A row that is missing where memory answers is noticed by whoever attaches next: hence a new one at the end.
    for replica in [*replicas, place.replica()]:
        await files(replica)
        await flush(replica)
        assert await history(replica) == await history(place.plain())
        await flush(replica)
    assert place.sound()


def test_an_empty_table_row_counts_nothing() -> None:
    empty = IndexedTable(TableFacts("l", "a.b", "i", 0, 0, 0, 0, None), 0, -1, 0)
    assert agrees(empty, (0, 0, -1, 0))
