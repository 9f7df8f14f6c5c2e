"""Looking back: every page of the history, changes without a gap, and the table as it was at a version or a time."""

from __future__ import annotations

import asyncio
import base64
import itertools
from typing import Any, Literal

import msgspec
import pytest

from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.usecases import history
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.history import ChangeView, CommitView
from tests.usecases.replicas import (
    ORDERS,
    START_MS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    remove_line,
    together,
)

SMALL = CommitterSettings(window=Window(versions=3, snapshots=3))
"""A replica that forgets quickly, so that most of the past is read from storage again."""


async def busy_table(warehouse: Warehouse) -> Coordinator:
    """Ten versions; some hold several commits."""
    replica = warehouse.replica()
    await create(replica)
    for number in range(1, 10):
        warehouse.world.advance(10)
        await together(replica, *(f"f{number}.{n}" for n in range(1 + number % 4)))
        if number % 3 == 0:
            await commit(replica, remove_line(f"f{number}.0"), readVersion=number, operation="DELETE")
    return replica


Order = Literal["asc", "desc"]


async def pages(replicas: list[Coordinator], order: Order, limit: int, **bounds: Any) -> list[CommitView]:
    """Every page, each from another replica."""
    found: list[CommitView] = []
    cursor = None
    for turn in range(1000):
        replica = replicas[turn % len(replicas)]
        page = await replica.history.commits(
            ORDERS, bounds.get("first"), bounds.get("last"), order, limit, cursor, bounds.get("staleness")
        )
        assert len(page.commits) == limit or page.next is None
        found += page.commits
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("paging never ends")


async def test_any_page_size_and_order_gives_the_whole_history(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    others = [replica, warehouse.replica(settings=SMALL)]
    whole = list((await replica.history.commits(ORDERS, None, None, "asc", 10_000, None)).commits)
    places = [(one.version, one.seq) for one in whole]
    assert places == sorted(places)
    assert len({one.commit_id for one in whole}) == len(whole) > max(version for version, _ in places) + 1
    assert {one.version for one in whole} == set(range(replica.open_tables.opened()[0].live.head.version + 1))
    for limit in range(1, len(whole) + 2):
        assert await pages(others, "asc", limit) == whole
        assert await pages(others, "desc", limit) == whole[::-1]
    for first, last in ((2, 5), (0, 0), (3, None), (None, 4), (5, 100)):
        part = [one for one in whole if (first or 0) <= one.version <= (10**6 if last is None else last)]
        assert await pages(others, "asc", 2, first=first, last=last) == part
        assert await pages(others, "desc", 2, first=first, last=last) == part[::-1]
    assert await pages(others, "asc", 2, first=100) == []


async def test_a_history_that_grows_while_it_is_paged(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    whole = list((await replica.history.commits(ORDERS, None, None, "desc", 10_000, None)).commits)
    page = await replica.history.commits(ORDERS, None, None, "desc", 3, None)
    found = list(page.commits)
    while page.next is not None:
        await together(replica, f"late.{len(found)}")
        page = await replica.history.commits(ORDERS, None, None, "desc", 3, page.next)
        found += page.commits
    assert found == whole, "what came later is not mixed in"


async def test_a_page_can_be_continued_on_a_replica_that_is_behind(warehouse: Warehouse) -> None:
    behind = warehouse.replica()
    ahead = warehouse.replica()
    await create(ahead)
    await behind.tables.describe(ORDERS)
    for number in range(5):
        await commit(ahead, add_line(f"f{number}"))
    page = await ahead.history.commits(ORDERS, None, None, "asc", 2, None)
    assert page.next is not None
    rest = await behind.history.commits(ORDERS, None, None, "asc", 100, page.next)
    assert [one.version for one in (*page.commits, *rest.commits)] == list(range(6))
    changes = await ahead.history.changes(ORDERS, None, None, 2, None)
    assert changes.next is not None
    more = await behind.history.changes(ORDERS, None, None, 100, changes.next)
    assert [one.version for one in (*changes.changes, *more.changes)] == list(range(6))


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "!!!", "é", "e30", "a" * 5000),
        *({"v": -1, "s": 0, "e": 0, "o": "asc"}, {"v": 0, "s": 0, "e": 2**63, "o": "asc"}, {"v": "0"}, [], 7),
    ],
)
async def test_a_cursor_that_is_none_is_refused(warehouse: Warehouse, cursor: Any) -> None:
    replica = warehouse.replica()
    await create(replica)
    text = cursor if isinstance(cursor, str) else base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
    with refused("request-invalid"):
        await replica.history.commits(ORDERS, None, None, "asc", 10, text)
    with refused("request-invalid"):
        await replica.history.changes(ORDERS, None, None, 10, text)
    with refused("request-invalid"):
        await replica.snapshots.files(ORDERS, None, None, None, 10, text)


async def test_pages_of_a_table_and_of_its_successor_are_never_one_listing(warehouse: Warehouse) -> None:
    replica, other = warehouse.replica(), warehouse.replica()
    await create(replica)
    await commit(replica, *(add_line(f"old{n}") for n in range(5)))
    await files(other)
    listing = await replica.snapshots.files(ORDERS, None, None, None, 2, None)
    history = await replica.history.commits(ORDERS, None, None, "asc", 1, None)
    changes = await replica.history.changes(ORDERS, None, None, 1, None)
    assert all(page.next is not None for page in (listing, history, changes))
    await replica.tables.drop(ORDERS)
    await create(replica)
    await commit(replica, *(add_line(f"new{n}") for n in range(5)))
    for reader in (replica, other):
        with refused("request-invalid", "start again"):
            await reader.snapshots.files(ORDERS, None, None, 0, 2, listing.next)
        with refused("request-invalid", "start again"):
            await reader.history.commits(ORDERS, None, None, "asc", 1, history.next, 0)
    with refused("request-invalid", "start again"):
        await replica.history.changes(ORDERS, None, None, 1, changes.next)


@pytest.mark.parametrize(
    "cursor",
    [
        {"v": 0, "s": 0, "e": 2**63 - 1, "o": "asc"},
        {"v": 2**63 - 1, "s": 0, "e": 0, "o": "desc"},
        {"v": 2**62, "s": 7, "e": 2**63 - 1, "o": "asc"},
    ],
)
async def test_a_forged_cursor_beyond_the_log_ends_where_the_log_ends(
    warehouse: Warehouse, cursor: dict[str, Any]
) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    await commit(replica, add_line("x"))
    text = base64.urlsafe_b64encode(msgspec.json.encode({**cursor, "t": view.id})).decode()
    page = await replica.history.commits(ORDERS, None, None, "asc", 100, text)
    assert page.next is None
    assert {one.version for one in page.commits} <= {0, 1}


async def test_changes_have_no_gap(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    others = [replica, warehouse.replica(settings=SMALL)]
    head = replica.open_tables.opened()[0].live.head.version
    whole = (await replica.history.changes(ORDERS, 0, None, 10_000, None)).changes
    assert [one.version for one in whole] == list(range(head + 1))
    live: dict[str, None] = {}
    for change in whole:
        for removed in change.removes:
            del live[removed.path]
        live.update(dict.fromkeys(added.path for added in change.adds))
    assert list(live) == await files(replica)
    for limit in range(1, head + 3):
        found: list[ChangeView] = []
        cursor = None
        while True:
            page = await others[limit % 2].history.changes(ORDERS, 0, None, limit, cursor)
            found += page.changes
            cursor = page.next
            if cursor is None:
                break
        assert tuple(found) == whole
    both_ends = await replica.history.changes(ORDERS, 2, 4, 100, None)
    assert [one.version for one in both_ends.changes] == [2, 3, 4]
    assert (await replica.history.changes(ORDERS, head + 1, None, 10, None)).changes == ()


async def test_a_page_of_large_changes_ends_early(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_PAGE_ACTIONS", 10)
    replica = warehouse.replica()
    await create(replica)
    for size in (4, 4, 3, 30, 1, *([1] * 40)):
        await commit(replica, *(add_line(f"f{warehouse.world.uuid7()}") for _ in range(size)))
    found: list[list[int]] = []
    cursor = None
    while not found or cursor is not None:
        page = await replica.history.changes(ORDERS, None, None, 10_000, cursor)
        found.append([one.version for one in page.changes])
        cursor = page.next
    assert found[:4] == [[0, 1, 2], [3], [4], list(range(5, 15))], "version 0 holds two actions, and 4 more than fit"
    assert [version for versions in found for version in versions] == list(range(46))


async def test_following_gives_every_version_once(warehouse: Warehouse) -> None:
    writer, reader = warehouse.replica(), warehouse.replica()
    await create(writer)
    seen: list[int] = []

    async def read() -> None:
        changes = await reader.history.follow(ORDERS, -1)
        seen.extend([change.version async for change in changes if change is not None])

    following = asyncio.create_task(read())
    for number in range(5):
        await commit(writer, add_line(f"f{number}"))
        await commit(reader, add_line(f"g{number}"))
        await asyncio.sleep(0)
    await writer.tables.drop(ORDERS)
    table = reader.open_tables.opened()[0]
    await table.live.refresh(0)
    await asyncio.wait_for(following, 5)
    assert seen == list(range(12)), "and it ends with the drop"


async def test_following_from_a_version_that_is_not_there(warehouse: Warehouse) -> None:
    writer, reader = warehouse.replica(), warehouse.replica()
    await create(writer)
    await reader.snapshots.snapshot(ORDERS, None, None, 0)
    await commit(writer, add_line("a"))
    await reader.history.follow(ORDERS, 1)  # it was only new to this replica
    with refused("version-not-found"):
        await reader.history.follow(ORDERS, 2)


# time travel --------------------------------------------------------------------------------------------------------
async def test_the_table_as_it_was(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    small = warehouse.replica(settings=SMALL)
    head = replica.open_tables.opened()[0].live.head
    changes = (await replica.history.changes(ORDERS, 0, None, 10_000, None)).changes
    live: dict[str, None] = {}
    for change in changes:
        for removed in change.removes:
            del live[removed.path]
        live.update(dict.fromkeys(added.path for added in change.adds))
        for reader in (replica, small):
            assert await files(reader, version=change.version) == list(live)
            assert await files(reader, timestamp=change.timestamp) == list(live)
            snapshot = await reader.snapshots.snapshot(ORDERS, change.version, None, None)
            assert (snapshot.num_files, snapshot.num_records) == (len(live), 2 * len(live))
            assert snapshot.total_bytes == 10 * len(live)
    stamps = [change.timestamp for change in changes]
    assert stamps == sorted(set(stamps)), "strictly growing"
    for early, late in itertools.pairwise(changes):
        found = await small.snapshots.snapshot(ORDERS, None, late.timestamp - 1, None)
        assert found.version == early.version
    assert (await replica.snapshots.snapshot(ORDERS, None, 2**62, None)).version == head.version


async def test_before_the_beginning_and_after_the_end(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    with refused("version-expired") as caught:
        await replica.snapshots.snapshot(ORDERS, None, START_MS - 1, None)
    assert caught.value.code.status == 410
    with refused("version-not-found") as caught:
        await replica.snapshots.snapshot(ORDERS, 1000, None, None)
    assert caught.value.fields["newestVersion"] == replica.open_tables.opened()[0].live.head.version
    with refused("request-invalid"):
        await replica.snapshots.snapshot(ORDERS, 1, 1, None)
    with refused("version-not-found"):
        await replica.history.version(ORDERS, 1000)
    one = await replica.history.version(ORDERS, 1)
    assert (one.version, len(one.commits), len(one.actions)) == (1, 2, 2)


async def test_a_version_that_another_replica_just_wrote_is_found(warehouse: Warehouse) -> None:
    writer, reader = warehouse.replica(), warehouse.replica()
    await create(writer)
    await reader.tables.describe(ORDERS)
    done = await commit(writer, add_line("x"))
    assert await files(reader, version=done.version, max_staleness=None) == ["x"]
    assert (await reader.history.version(ORDERS, done.version)).version == 1


async def test_below_the_floor_nothing_exists(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    table = replica.open_tables.opened()[0]
    page = await replica.history.commits(ORDERS, None, None, "asc", 1, None)
    await warehouse.store.put(table.live.log.paths.floor(4), b"")
    warehouse.world.advance(301)  # the replica looks for the floor again
    fresh = replica
    for act in (
        lambda: fresh.history.commits(ORDERS, None, None, "asc", 1, page.next),
        lambda: fresh.snapshots.snapshot(ORDERS, 3, None, None),
        lambda: fresh.history.version(ORDERS, 3),
        lambda: fresh.history.commits(ORDERS, 3, None, "asc", 10, None),
        lambda: fresh.history.changes(ORDERS, 3, None, 10, None),
        lambda: fresh.history.follow(ORDERS, 2),
    ):
        with refused("version-expired") as caught:
            await act()
        assert caught.value.fields["oldestVersion"] == 4
    assert (await fresh.history.changes(ORDERS, None, None, 1, None)).changes[0].version == 4
    assert (await fresh.snapshots.snapshot(ORDERS, 4, None, None)).version == 4


async def test_files_are_paged_at_one_version_over_replicas(warehouse: Warehouse) -> None:
    replica = await busy_table(warehouse)
    readers = [replica, warehouse.replica(settings=SMALL)]
    head = replica.open_tables.opened()[0].live.head.version
    for version in (2, 5, head):
        whole = await files(replica, version=version)
        for limit in (1, 2, 3, 7, 100):
            found: list[str] = []
            cursor, turn = None, 0
            while True:
                page = await readers[turn % 2].snapshots.files(ORDERS, version, None, None, limit, cursor)
                found += [file.path for file in page.files]
                assert page.version == version
                cursor, turn = page.next, turn + 1
                if cursor is None:
                    break
                await together(replica, f"more.{version}.{limit}.{turn}")
            assert found == whole
