"""Vacuum over a table in memory: what goes, what stays, and that doubt deletes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.object_store import ObjectInfo, StoreUnavailable
from tarnlog_server.usecases import vacuum_run
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.operations import ProgressView
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.tables import TableView
from tarnlog_server.usecases.vacuum import VacuumView
from tests.usecases.field_writers import FieldWriter, Generation, field_table
from tests.usecases.replicas import (
    ORDERS,
    CountingStore,
    FakeWorld,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    register,
    remove_line,
    set_properties,
    version_key,
)

EVENTS = TableName("raw", "events")
HOUR = 3600
DAY = 24 * HOUR
RETENTION = 2 * DAY
PROPERTIES = {"deletedFileRetention.duration": str(RETENTION * 1000)}


class Hooked(CountingStore):
    """A store that lets a test act, or fail, right before a call."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__("w", world)
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self.deletes: list[str] = []

    async def _hook(self, call: str, key: str) -> None:
        if self.before is not None:
            await self.before(call, key)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self._hook("get", key)
        return await super().get(key, start, length)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> Any:
        await self._hook("list", prefix)
        return await super().list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        await self._hook("delete", key)
        self.deletes.append(key)
        await super().delete(key)

    def infos(self, prefix: str) -> dict[str, ObjectInfo]:
        return {key: self._info(key) for key in self.keys(prefix)}


class Place:
    """A warehouse with one table and short ways to its folder."""

    def __init__(self) -> None:
        self.warehouse = Warehouse()
        self.world = self.warehouse.world
        self.store = self.warehouse.store = Hooked(self.world)
        self.replica = self.warehouse.replica()
        self.folder = ""
        self.log = ""

    async def start(self, **properties: str) -> Place:
        view: TableView = await create(self.replica, properties={**PROPERTIES, **properties})
        self.log = self.warehouse.log(view)
        self.folder = self.log.removesuffix("_transaction_log/")
        return self

    async def write(self, *paths: str) -> None:
        for path in paths:
            await self.store.put(self.folder + path, b"data")

    def data(self) -> set[str]:
        return {key.removeprefix(self.folder) for key in self.store.keys(self.folder) if not key.startswith(self.log)}

    def age(self, seconds: float = RETENTION + HOUR) -> None:
        self.world.advance(seconds)

    def reopened(self) -> Coordinator:
        self.replica = Coordinator(Roots(Root("memory://w", self.store)), self.world)
        self.warehouse.replicas.append(self.replica)
        return self.replica

    async def remove(self, *paths: str) -> None:
        head = (await self.replica.open_tables.get(ORDERS, 0)).live.head.version
        await commit(self.replica, *map(remove_line, paths), readVersion=head)

    async def vacuum(self, **how: Any) -> VacuumView:
        return await self.replica.vacuum.vacuum(ORDERS, **{"dry_run": False, **how})


@pytest.fixture
async def place() -> Any:
    made = await Place().start()
    yield made
    await made.warehouse.close()


async def test_orphans_go_and_nothing_else(place: Place) -> None:
    await place.write("a", "day=1/b", "orphan", "day=1/orphan", "_hidden/x", "day=1/.part.crc", "removed")
    await commit(place.replica, add_line("a"), add_line("day=1/b"), add_line("removed"))
    await place.remove("removed")
    place.age()
    await place.write("young")
    before = place.store.keys(place.log)
    would = await place.vacuum(dry_run=True)
    assert (would.orphaned_files_found, would.orphaned_files_deleted, would.dry_run) == (2, 0, True)
    assert (would.status, would.size_bytes_found, would.size_bytes_deleted) == ("dry-run", 8, 0)
    assert [one.path for one in would.examples] == ["day=1/orphan", "orphan"]
    assert place.store.deletes == []
    did = await place.vacuum()
    assert (did.status, did.orphaned_files_found, did.orphaned_files_deleted, did.size_bytes_deleted) == (
        "success",
        2,
        2,
        8,
    )
    assert (did.kept.referenced, did.kept.young, did.kept.in_session, did.kept.not_data) == (3, 1, 0, 2)
    assert did.retention_hours == RETENTION / HOUR
    assert place.data() == {"a", "day=1/b", "removed", "young", "_hidden/x", "day=1/.part.crc"}
    assert place.store.keys(place.log) == before
    again = await place.vacuum()
    assert (again.orphaned_files_found, again.message) == (0, "there was nothing to delete")


async def test_time_travel_keeps_its_files_until_the_floor_passes_them(place: Place) -> None:
    await place.write("old", "new")
    await commit(place.replica, add_line("old"))
    await place.remove("old")
    await commit(place.replica, add_line("new"))
    place.age(30 * DAY)
    assert (await place.vacuum()).orphaned_files_deleted == 0
    assert await files(place.replica, version=1) == ["old"]
    await place.replica.checkpoints.checkpoint(ORDERS)
    await place.store.put(f"{place.log}_floor/{3:020d}", b"")
    place.reopened()
    assert (await place.vacuum()).orphaned_files_deleted == 1
    assert place.data() == {"new"}


async def test_a_remove_that_is_not_expired_keeps_its_file_behind_the_floor(place: Place) -> None:
    await place.write("gone")
    await commit(place.replica, add_line("gone"))
    place.age(10 * DAY)
    await place.remove("gone")
    await place.replica.checkpoints.checkpoint(ORDERS)
    await place.store.put(f"{place.log}_floor/{2:020d}", b"")
    place.age(RETENTION - HOUR)
    place.reopened()
    assert (await place.vacuum()).kept.referenced == 1
    place.age(2 * HOUR)
    assert (await place.vacuum()).orphaned_files_deleted == 1


@pytest.mark.parametrize("state_format", [None, "json", "parquet", "avro"])
async def test_a_remove_of_another_writer_that_has_no_time_is_as_old_as_its_version(
    place: Place, state_format: str | None
) -> None:
    await place.write("a")
    await commit(place.replica, add_line("a"))
    place.age()
    lines = ({"commitInfo": {"timestamp": place.world.now_ms()}}, {"remove": {"path": "a", "dataChange": True}})
    await place.store.put(version_key(place.log, 2), b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    await files(place.replica, max_staleness=0)
    await commit(place.replica, add_line("b"))
    await place.replica.checkpoints.checkpoint(ORDERS, state_format)
    await place.store.put(f"{place.log}_floor/{3:020d}", b"")
    if state_format is not None:
        place.reopened()
    place.age(RETENTION - HOUR)
    assert (await place.vacuum()).orphaned_files_deleted == 0
    place.age(2 * HOUR)
    assert (await place.vacuum()).orphaned_files_deleted == 1
    assert place.data() == set()


async def test_a_path_that_was_added_again_stays(place: Place) -> None:
    await place.write("f")
    await commit(place.replica, add_line("f"))
    await place.remove("f")
    await commit(place.replica, add_line("f"))
    await place.replica.checkpoints.checkpoint(ORDERS)
    await place.store.put(f"{place.log}_floor/{3:020d}", b"")
    place.age(30 * DAY)
    place.reopened()
    assert (await place.vacuum()).orphaned_files_deleted == 0
    assert place.data() == {"f"}


async def test_sessions_cover_their_prefix_until_they_end(place: Place) -> None:
    await place.write("day=1/x", "day=2/x")
    place.age()
    session = await place.replica.sessions.begin(ORDERS, "day=1/", 60)
    did = await place.vacuum()
    assert (did.orphaned_files_deleted, did.kept.in_session) == (1, 1)
    assert place.data() == {"day=1/x"}
    await place.replica.sessions.end(ORDERS, session.id)
    await place.vacuum()
    assert place.data() == set()


async def test_names_are_compared_as_the_log_means_them(place: Place) -> None:
    await place.write("x y", "p=a%2Fb/f", "é")
    await commit(place.replica, add_line("x%20y"), add_line("p=a%252Fb/f"), add_line("%C3%A9"))
    place.age()
    assert (await place.vacuum()).orphaned_files_deleted == 0


async def test_nothing_outside_of_the_folder(place: Place) -> None:
    beside = place.folder.removesuffix("/") + "-other/x"
    await place.store.put(beside, b"1")
    await place.store.put("sales/x", b"1")
    place.age()
    assert (await place.vacuum()).orphaned_files_found == 0
    assert place.store.deletes == []


async def test_a_table_inside_of_the_folder_that_nobody_registered(place: Place) -> None:
    await place.write("sub/t/_transaction_log/00000000000000000000.json", "sub/t/day=1/f", "sub/t/F", "sub/f", "T")
    place.age()
    did = await place.vacuum()
    assert (did.orphaned_files_deleted, did.kept.other_table) == (2, 2)
    assert {"sub/t/day=1/f", "sub/t/F"} <= place.data()


async def test_pages_pass_over_the_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_run, "PAGE", 3)
    names = [f"{first}{number}" for first in "Aaz" for number in range(5)]
    await place.write(*names)
    await commit(place.replica, add_line("A0"), add_line("z4"))
    for number in range(20):
        await commit(place.replica, add_line(f"missing-{number}"))
    place.age()
    told: list[ProgressView] = []
    did = await place.vacuum(progress=lambda *told_: told.append(ProgressView(*told_)))
    assert did.orphaned_files_deleted == len(names) - 2
    assert place.data() == {"A0", "z4"}
    assert [one.done for one in told if one.unit == "versions"][-1] == 21
    assert told[-1].unit == "files"
    assert told[-1].done == len(names)


# Doubt deletes nothing


@pytest.mark.parametrize("damage", ["torn", "empty", "missing"])
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_damaged_version_deletes_nothing(place: Place, damage: str, version: int) -> None:
    await place.write("a", "b", "c", "orphan")
    for path in "abc":
        await commit(place.replica, add_line(path))
    await place.replica.checkpoints.checkpoint(ORDERS)
    await commit(place.replica, add_line("d"))
    place.age()
    key = version_key(place.log, version)
    if damage == "missing":
        await place.store.delete(key)
    else:
        place.store.overwrite(key, place.store.raw(key)[:40] if damage == "torn" else b"")
    place.reopened()
    place.store.deletes.clear()
    before = place.data()
    with refused("log-corrupt"):
        await place.vacuum()
    with refused("log-corrupt"):
        await place.vacuum(dry_run=True)
    assert place.data() == before
    assert place.store.deletes == []


async def test_a_damaged_session_deletes_nothing(place: Place) -> None:
    await place.write("orphan")
    place.age()
    session = await place.replica.sessions.begin(ORDERS, "", 60)
    place.store.overwrite(f"{place.log}_sessions/{session.id}.json", b"{")
    with refused("log-corrupt", session.id):
        await place.vacuum()
    assert place.data() == {"orphan"}
    await place.replica.sessions.end(ORDERS, session.id)
    assert (await place.vacuum()).orphaned_files_deleted == 1


async def test_a_floor_without_its_state_deletes_nothing(place: Place) -> None:
    await place.write("a", "orphan")
    await commit(place.replica, add_line("a"))
    await commit(place.replica, add_line("b"))
    await place.store.put(f"{place.log}_floor/{2:020d}", b"")
    await place.store.delete(version_key(place.log, 0))
    place.store.deletes.clear()
    place.age()
    with pytest.raises(ProblemError):
        await place.vacuum()
    assert place.store.deletes == []


async def taken_over(place: Place, generation: Generation) -> FieldWriter:
    """A table that other software wrote, with its files and one that nobody committed, all of them old."""
    writer = await field_table(place.store, "lake/events", generation)
    for name in [*(f"f{number}.split" for number in range(1, 12)), "orphan.split"]:
        await place.store.put(f"lake/events/{name}", b"data")
    place.age(30 * DAY)
    await register(place.replica, "raw.events", "memory://w/lake/events", stopped=True)
    return writer


@pytest.mark.parametrize("generation, travels", [("A", True), ("B", False), ("C", True)])
async def test_a_table_that_was_taken_over(place: Place, generation: Generation, travels: bool) -> None:
    """Its removes have no time, so its removed files stay for as long as a version that has them can be read."""
    writer = await taken_over(place, generation)
    await place.replica.vacuum.vacuum(EVENTS, dry_run=False)
    left = {key.removeprefix("lake/events/") for key in place.store.keys("lake/events/f")}
    removed = {"f1.split", "f5.split"}
    assert left == ({*writer.files} | removed if travels else {*writer.files})
    assert not place.store.keys("lake/events/orphan")


async def test_a_writer_that_did_not_stop_deletes_nothing(place: Place) -> None:
    writer = await taken_over(place, "B")
    await writer.commit("theirs.split")
    place.store.deletes.clear()
    for dry_run in (True, False):
        with refused("foreign-writer-detected"):
            await place.replica.vacuum.vacuum(EVENTS, dry_run=dry_run)
    assert place.store.deletes == []


async def test_not_knowing_whether_a_writer_is_left_deletes_nothing(place: Place) -> None:
    await taken_over(place, "B")
    place.store.deletes.clear()

    async def before(call: str, key: str) -> None:
        if call == "list" and key.endswith("/state-v"):
            raise StoreUnavailable("no answer", key=key)

    place.store.before = before
    with refused("storage-unavailable"):
        await place.replica.vacuum.vacuum(EVENTS, dry_run=False)
    place.store.before = None
    assert place.store.deletes == []


# While others work


def at_first_delete_page(place: Place, act: Callable[[], Awaitable[object]]) -> None:
    """Act between the first judgement of a page and the deleting: when sessions are read for the second time."""
    seen = 0

    async def before(call: str, key: str) -> None:
        nonlocal seen
        if call == "list" and key.endswith("_sessions/"):
            seen += 1
            if seen == 2:
                place.store.before = None
                await act()

    place.store.before = before


async def test_a_commit_of_an_old_file_meanwhile_keeps_it(place: Place) -> None:
    other = place.warehouse.replica()
    await place.write("late", "orphan")
    place.age()
    at_first_delete_page(place, lambda: commit(other, add_line("late")))
    did = await place.vacuum()
    assert (did.orphaned_files_deleted, did.kept.referenced) == (1, 1)
    assert place.data() == {"late"}


async def test_a_session_that_begins_meanwhile_counts(place: Place) -> None:
    other = place.warehouse.replica()
    await place.write("s/f", "orphan")
    place.age()
    at_first_delete_page(place, lambda: other.sessions.begin(ORDERS, "s/", 60))
    assert (await place.vacuum()).kept.in_session == 1
    assert place.data() == {"s/f"}


async def test_a_file_that_is_written_over_meanwhile_is_young(place: Place) -> None:
    await place.write("f", "orphan")
    place.age()
    at_first_delete_page(place, lambda: place.write("f"))
    assert (await place.vacuum()).kept.young == 1
    assert place.data() == {"f"}


async def test_two_replicas_at_once(place: Place) -> None:
    other = place.warehouse.replica()
    await place.write("a", *(f"o{number}" for number in range(40)))
    await commit(place.replica, add_line("a"))
    place.age()
    await asyncio.gather(place.vacuum(), other.vacuum.vacuum(ORDERS, dry_run=False))
    assert place.data() == {"a"}


async def test_a_drop_meanwhile_ends_it(place: Place) -> None:
    other = place.warehouse.replica()
    await place.write("f")
    place.age()
    at_first_delete_page(place, lambda: other.tables.drop(ORDERS))
    with refused("table-not-found"):
        await place.vacuum()
    assert place.data() == {"f"}


async def test_a_crash_before_any_call_then_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call it dies at, nothing protected is gone, and the next run does the rest."""
    monkeypatch.setattr(vacuum_run, "PAGE", 4)
    protected = {"a", "day=1/b"}
    orphans = {f"o{number}" for number in range(6)}
    await place.write(*protected)
    for path in protected:
        await commit(place.replica, add_line(path))
    await place.replica.checkpoints.checkpoint(ORDERS)
    crashes = 0
    while True:
        await place.write(*orphans)
        place.age()
        place.reopened()
        calls = 0

        async def die(call: str, key: str, allowed: int = crashes) -> None:
            nonlocal calls
            calls += 1
            if calls > allowed:
                raise StoreUnavailable("the process died", key=key)

        place.store.before = die
        died = False
        try:
            await place.vacuum()
        except Exception:
            died = True
        place.store.before = None
        assert protected <= place.data(), f"after {crashes} calls"
        place.reopened()
        await place.vacuum()
        assert place.data() == protected, f"after {crashes} calls"
        if not died:
            break
        crashes += 1
    assert crashes > 10


# What may be asked for


async def test_the_minimum_needs_an_override(place: Place) -> None:
    await place.write("f")
    place.age(2 * HOUR)
    for hours in (23.9, 0, -1):
        with refused("request-invalid", "/retentionHours"):
            await place.vacuum(retention_hours=hours)
    assert (await place.vacuum(retention_hours=24)).orphaned_files_found == 0
    did = await place.vacuum(retention_hours=1, override_minimum=True)
    assert (did.orphaned_files_deleted, did.retention_hours) == (1, 1.0)


async def test_a_short_setting_of_the_table_is_raised_to_the_minimum(place: Place) -> None:
    await place.replica.tables.alter(ORDERS, set_properties(deletedFileRetention__duration="3600000"))
    assert (await place.vacuum()).retention_hours == 24


async def test_a_read_only_table_is_left_alone(place: Place) -> None:
    for key in place.store.keys(place.log):
        await place.store.put("copy/_transaction_log/" + key.removeprefix(place.log), place.store.raw(key))
    view = await register(place.replica, "sales.copy", "memory://w/copy")
    await place.store.put("copy/f", b"1")
    place.age()
    with refused("table-read-only"):
        await place.replica.vacuum.vacuum(TableName.parse(view.name), dry_run=False)
    with refused("table-not-found"):
        await place.replica.vacuum.vacuum(TableName("sales", "none"))
