"""Cleaning up a log: what goes, what stays, and that everything a table must still know is known afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog.protocol.commits import Conflicted
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tarnlog_server.usecases.cleanup import EVERY_SECONDS, FIRST_WITHIN_SECONDS, CleanupView
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    register,
    remove_line,
    send,
    set_properties,
    version_key,
)
from tests.usecases.test_states import FORMATS, look

HOUR = 3600.0
DAY = 24 * HOUR
SHORT = {"logRetention.duration": "2d", "state.retention.hours": "1", "state.retention.versions": "1"}
"""Properties under which a few days are enough to see everything go."""


async def clean(replica: Coordinator, *, dry_run: bool = False) -> CleanupView:
    return await replica.cleanup.cleanup(ORDERS, dry_run=dry_run)


def version_files(warehouse: Warehouse, log: str) -> list[int]:
    keys = (key.removeprefix(log) for key in warehouse.store.keys(log))
    return [int(name[:20]) for name in keys if len(name) == 25 and name.endswith(".json")]


def states(warehouse: Warehouse, log: str) -> list[int]:
    keys = warehouse.store.keys(f"{log}state-v")
    return sorted({int(key.removeprefix(f"{log}state-v")[:20]) for key in keys})


async def a_week(warehouse: Warehouse, replica: Coordinator, **properties: str) -> str:
    """Seven commits a day apart, a state after each; gives the log."""
    log = warehouse.log(await create(replica, properties={**SHORT, **properties}))
    for day in range(7):
        warehouse.world.advance(DAY)
        head = await commit(replica, add_line(f"f{day}"), {"txn": {"appId": "a", "version": day}}, readVersion=day)
        assert head.version == day + 1
        await replica.checkpoints.checkpoint(ORDERS)
    return log


@pytest.mark.parametrize("format_", FORMATS)
async def test_versions_go_a_day_after_the_floor_passed_them(warehouse: Warehouse, format_: str) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica, **{"state.format": format_})
    before = {version: await look(replica, version) for version in range(8)}
    first = await clean(replica)
    # Version 5 is two days old and no older: it must stay readable, and everything below it need not.
    assert (first.status, first.versions_deleted, first.floor) == ("success", 0, 5)
    assert version_files(warehouse, log) == list(range(8)), "nothing goes on the word of a floor of the same run"
    with refused("version-expired") as caught:
        await look(warehouse.replica(), 4)
    assert caught.value.fields["oldestVersion"] == 5
    warehouse.world.advance(DAY - 1)
    assert (await clean(replica)).versions_deleted == 0, "the floor is younger than a day"
    warehouse.world.advance(2)
    second = await clean(replica)
    assert (second.versions_deleted, second.checkpoint_version) == (5, 7)
    assert version_files(warehouse, log) == [5, 6, 7]
    for replica_ in (replica, warehouse.replica()):
        for version in range(8):
            if version >= second.floor:
                assert await look(replica_, version) == before[version]
            else:
                with refused("version-expired"):
                    await look(replica_, version)


async def test_states_and_manifests_go_by_their_own_ages(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica)
    assert states(warehouse, log) == list(range(1, 8))
    done = await clean(replica)
    assert (done.states_deleted, states(warehouse, log)) == (5, [5, 7]), "the next floor's, and the newest"
    used = set(warehouse.store.keys(f"{log}manifests/"))
    await replica.checkpoints.compact(ORDERS)
    warehouse.world.advance(2 * DAY)
    await commit(replica, add_line("late"))
    await replica.checkpoints.compact(ORDERS)
    done = await clean(replica)
    assert done.manifests_deleted > 0
    assert states(warehouse, log)[-1] == 8
    left = set(warehouse.store.keys(f"{log}manifests/"))
    assert left < used | left
    assert len(await files(warehouse.replica())) == 8
    assert len(await files(warehouse.replica(), version=done.floor)) == len(await files(replica, version=done.floor))


@pytest.mark.parametrize("format_", ["json", "parquet"])
async def test_old_checkpoints_go_once_a_newer_one_is_sound(warehouse: Warehouse, format_: str) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica, **{"state.format": format_})
    newest = f"{log}{7:020d}.checkpoint.json" if format_ == "json" else f"{log}_checkpoints/{7:020d}.checkpoint.json"
    good = warehouse.store.raw(newest)
    warehouse.world.advance(3 * HOUR)
    warehouse.store.overwrite(newest, good[:-20])
    assert (await clean(replica, dry_run=True)).checkpoints_deleted == 5, "those before the newest that is sound"
    warehouse.store.overwrite(newest, good)
    assert (await clean(replica)).checkpoints_deleted == 6
    left = [key for key in warehouse.store.keys(log) if "checkpoint." in key or "ids.bin" in key]
    assert [key for key in left if "state-v" not in key and f"{7:020d}" not in key] == []
    assert len((await look(warehouse.replica()))["files"]) == 7


async def test_a_multi_part_checkpoint_goes_whole(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica, **{"state.format": "json", "checkpoint.actionsPerPart": "2"})
    assert [key for key in warehouse.store.keys(log) if f"{6:020d}.checkpoint." in key][2:]
    await clean(replica)
    assert [key for key in warehouse.store.keys(log) if f"{6:020d}.checkpoint." in key] == []
    assert len((await look(warehouse.replica()))["files"]) == 7


async def test_what_a_dry_run_says_is_what_happens(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica)
    await clean(replica)
    warehouse.world.advance(DAY)
    await replica.checkpoints.compact(ORDERS)
    warehouse.world.advance(2 * HOUR)
    before = {key: warehouse.store.raw(key) for key in warehouse.store.keys(log)}
    said = await clean(replica, dry_run=True)
    assert {key: warehouse.store.raw(key) for key in warehouse.store.keys(log)} == before
    assert said.status == "dry-run"
    assert said.versions_deleted > 0
    done = await clean(replica)
    for name in ("versions_deleted", "checkpoints_deleted", "states_deleted", "manifests_deleted"):
        assert getattr(said, name) == getattr(done, name), name


async def test_a_table_that_keeps_everything(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica, **{"cleanup.enabled": "false"})
    before = warehouse.store.keys(log)
    for _ in range(3):
        done = await clean(replica)
        warehouse.world.advance(2 * DAY)
    assert (done.status, done.floor, warehouse.store.keys(log)) == ("disabled", 0, before)
    assert not replica.cleanup.due(replica.open_tables.opened()[0])


@pytest.mark.parametrize("harm", ["document", "manifest", "ids", "version", "gone"])
async def test_a_damaged_anchor_deletes_nothing(warehouse: Warehouse, harm: str) -> None:
    replica = warehouse.replica()
    log = await a_week(warehouse, replica)
    floor = (await clean(replica)).floor
    warehouse.world.advance(DAY)
    await replica.checkpoints.checkpoint(ORDERS)
    manifest = await replica.open_tables.opened()[0].live.states.manifest(floor)
    key = {
        "document": f"{log}state-v{floor:020d}/_manifest.json",
        "manifest": f"{log}{manifest.manifests[0].path}",
        "ids": f"{log}state-v{floor:020d}/ids.bin",
        "version": version_key(log, floor),
        "gone": f"{log}state-v{floor:020d}/_manifest.json",
    }[harm]
    good = warehouse.store.raw(key)
    if harm == "gone":
        await warehouse.store.delete(key)
    else:
        warehouse.store.overwrite(key, good[:-1] + bytes([good[-1] ^ 1]))
    before = warehouse.store.keys(log)
    said = await clean(replica, dry_run=True)
    assert (said.status, warehouse.store.keys(log)) == ("anchor-damaged", before)
    done = await clean(replica)
    assert (done.status, done.versions_deleted, done.states_deleted) == ("anchor-damaged", 0, 0)
    assert "nothing was deleted" in done.message
    assert set(before) <= set(warehouse.store.keys(log))
    again = await clean(replica)
    if harm == "version":
        assert again.status == "anchor-damaged", "a version file cannot be made again"
        assert version_key(log, floor) in again.message
        warehouse.store.overwrite(key, good)
        again = await clean(replica)
    assert (again.status, again.versions_deleted) == ("success", floor)


async def test_everything_is_still_known_afterwards(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica, properties={**SHORT, "deletedFileRetention.duration": "30d"}))
    await commit(replica, add_line("old"), add_line("skipped"), {"txn": {"appId": "a", "version": 4}}, readVersion=0)
    skip = RecordSkip(path="skipped", reason="broken", operation="merge", cooldown_hours=10_000)
    await replica.skips.record(ORDERS, skip)
    await commit(replica, remove_line("old"), readVersion=1)
    for day in range(6):
        warehouse.world.advance(DAY)
        await commit(replica, add_line(f"f{day}"))
    recent_id = str(warehouse.world.uuid7())
    recent = await commit(replica, add_line("recent"), commitId=recent_id)
    expected = await look(replica)
    times = [(await replica.snapshots.snapshot(ORDERS, v, None, 0)).timestamp for v in range(recent.version + 1)]
    await clean(replica)
    warehouse.world.advance(DAY)
    done = await clean(replica)
    assert version_files(warehouse, log)[0] > 3
    # Only states of floors are left to begin with: what they forgot would be forgotten for good.
    assert states(warehouse, log) == [done.floor - 1, done.floor]
    late = warehouse.replica()
    assert await look(late) == expected
    again = await commit(late, add_line("recent"), commitId=recent_id)
    assert (again.version, again.replayed) == (recent.version, True)
    assert isinstance(await send(late, {"txn": {"appId": "a", "version": 4}}, readVersion=recent.version), Conflicted)
    assert [one.path for one in await late.skips.all(ORDERS, 0)] == ["skipped"]
    removed = late.open_tables.opened()[0].live.head.tombstones
    assert [remove.path for _, (remove, _) in removed.items()] == ["old"]
    for version in range(done.floor, recent.version + 1):
        seen = await late.snapshots.snapshot(ORDERS, None, times[version], 0)
        assert (seen.version, seen.timestamp) == (version, times[version])
    with refused("version-expired"):
        await late.snapshots.snapshot(ORDERS, None, times[done.floor] - 1, 0)


async def test_history_changes_and_feeds_end_at_the_floor(warehouse: Warehouse) -> None:
    replica, behind = warehouse.replica(), warehouse.replica()
    await a_week(warehouse, replica)
    assert len((await behind.history.commits(ORDERS, None, None, "asc", 100, None)).commits) == 8
    first = (await clean(replica)).floor
    warehouse.world.advance(DAY)
    done = await clean(replica)
    assert done.versions_deleted == first
    floor = done.floor
    for one in (replica, behind, warehouse.replica()):
        for asked in (
            one.history.commits(ORDERS, floor - 1, None, "asc", 100, None),
            one.history.changes(ORDERS, floor - 1, None, 100, None),
            one.history.version(ORDERS, floor - 1),
            one.history.follow(ORDERS, floor - 2),
        ):
            with refused("version-expired") as caught:
                await asked
            assert caught.value.fields["oldestVersion"] == floor
        page = await one.history.commits(ORDERS, None, None, "asc", 100, None)
        assert [commit.version for commit in page.commits] == list(range(floor, 8))
        feed = await one.history.follow(ORDERS, floor - 1)
        shown = await anext(feed)
        assert shown is not None
        assert shown.version == floor


async def test_a_reader_that_believes_in_an_old_floor_is_told(warehouse: Warehouse) -> None:
    """Its caches say that version 1 is there: the missing object makes it look again."""
    replica = warehouse.replica()
    reader = warehouse.replica(cache_ttl_seconds=10_000_000)
    log = warehouse.log(await create(replica, properties=SHORT))
    for day in range(5):
        await commit(replica, add_line(f"f{day}"))
        warehouse.world.advance(DAY)
    await replica.checkpoints.checkpoint(ORDERS)
    await commit(replica, add_line("last"))
    assert len((await reader.history.changes(ORDERS, 5, None, 10, None)).changes) == 2
    await clean(replica)
    warehouse.world.advance(DAY)
    await clean(replica)
    assert version_files(warehouse, log)[0] > 1
    for ask in (
        lambda: reader.history.version(ORDERS, 1),
        lambda: reader.snapshots.snapshot(ORDERS, 1, None, None),
    ):
        with refused("version-expired"):
            await ask()


@pytest.mark.parametrize("blind", [True, False])
async def test_a_replica_that_slept_through_a_cleanup(warehouse: Warehouse, blind: bool) -> None:
    replica, sleeper = warehouse.replica(), warehouse.replica()
    log = warehouse.log(await create(replica, properties=SHORT))
    await commit(sleeper, add_line("a"))
    for day in range(5):
        warehouse.world.advance(DAY)
        await commit(replica, add_line(f"f{day}"))
    await clean(replica)
    warehouse.world.advance(DAY)
    await clean(replica)
    assert version_files(warehouse, log)[0] > 2
    outcome: Any
    if blind:
        outcome = await commit(sleeper, add_line("late"))
        assert outcome.version == 7
        assert len(await files(replica)) == 7
    else:
        outcome = await send(sleeper, remove_line("a"), readVersion=1)
        assert isinstance(outcome, Conflicted)
        assert outcome.rule == "expired"


async def test_a_replica_that_slept_writes_nothing_where_it_finds_no_state(warehouse: Warehouse) -> None:
    """A floor without a state is broken: the slot after what it knew is free, and must stay so."""
    replica, sleeper = warehouse.replica(), warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(sleeper, add_line("a"))
    for number in range(5):
        await commit(replica, add_line(f"f{number}"))
    warehouse.world.advance(DAY)
    await warehouse.store.put(f"{log}_floor/{5:020d}", b"")
    for version in range(5):
        await warehouse.store.delete(version_key(log, version))
    before = warehouse.store.keys(log)
    with refused("log-corrupt"):
        await send(sleeper, add_line("late"))
    assert warehouse.store.keys(log) == before


async def test_a_plan_from_before_the_floor_is_expired_everywhere(warehouse: Warehouse) -> None:
    """Also on a replica that is up to date but has not heard of the floor."""
    replica = warehouse.replica()
    await a_week(warehouse, replica)
    other = warehouse.replica()
    await look(other)
    await clean(replica)
    warehouse.world.advance(DAY)
    await clean(replica)
    outcome = await send(other, add_line("x"), readVersion=1, reads={"wholeTable": True})
    assert isinstance(outcome, Conflicted)
    assert outcome.rule == "expired"


@pytest.mark.parametrize("metadata_changed", [False, True])
async def test_a_plan_from_before_a_young_floor_is_still_checked(warehouse: Warehouse, metadata_changed: bool) -> None:
    """Its winners can be read, and a replica that has not heard of the floor checks them: no answer may differ."""
    replica = warehouse.replica()
    await a_week(warehouse, replica)
    if metadata_changed:
        await replica.tables.alter(ORDERS, set_properties(owner="ops"))
        await replica.checkpoints.checkpoint(ORDERS)
    assert (await clean(replica)).floor == 5
    for one in (replica, warehouse.replica()):
        lost = await send(one, add_line("x"), readVersion=1, reads={"wholeTable": True}, isolation="serializable")
        assert isinstance(lost, Conflicted)
        assert (lost.rule, lost.winners[0].version) == ("append", 2)
        await commit(one, add_line(str(warehouse.world.uuid7())), readVersion=1, reads={"appIds": ["b"]})
    warehouse.world.advance(DAY)
    assert (await clean(replica)).versions_deleted == 5
    for version in (1, 4) if metadata_changed else (1, 3):
        late = await send(
            warehouse.replica(), add_line("late"), readVersion=version, reads={"appIds": ["b"]}, isolation="snapshot"
        )
        assert isinstance(late, Conflicted)
        assert late.rule == "expired", "what followed it is gone"


async def test_a_state_built_on_manifests_that_a_cleanup_took(warehouse: Warehouse) -> None:
    """A replica whose last state is old writes the next one on it, while others had it cleaned away."""
    replica, other = warehouse.replica(), warehouse.replica()
    log = warehouse.log(await create(replica, properties=SHORT))
    await commit(replica, *(add_line(f"f{number}") for number in range(20)))
    await replica.checkpoints.checkpoint(ORDERS)
    for day in range(4):
        warehouse.world.advance(DAY)
        await commit(other, add_line(f"g{day}"))
        await other.checkpoints.compact(ORDERS)
        await clean(other)
    assert 1 not in states(warehouse, log)
    await commit(replica, add_line("last"))
    await replica.checkpoints.checkpoint(ORDERS)
    manifest = await replica.open_tables.opened()[0].live.states.manifest(6)
    assert all(warehouse.store.raw(f"{log}{info.path}") for info in manifest.manifests)
    reader = warehouse.replica()
    assert len(await files(reader)) == 25
    base = reader.open_tables.opened()[0].live.base
    assert base is not None
    assert base.ref.version == 6


async def test_a_read_only_table_is_left_alone(warehouse: Warehouse) -> None:
    from tests.usecases.test_register import EVENTS, PLACE, write_foreign

    await write_foreign(warehouse)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    with refused("table-read-only"):
        await replica.cleanup.cleanup(EVENTS)
    assert not replica.cleanup.due(replica.open_tables.opened()[0])


async def test_it_is_due_now_and_then(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    table = replica.open_tables.opened()[0]
    assert not replica.cleanup.due(table), "not at once: many replicas may start together"
    warehouse.world.advance(FIRST_WITHIN_SECONDS)
    assert replica.cleanup.due(table)
    assert await replica.cleanup.keep(table)
    assert not replica.cleanup.due(table)
    warehouse.world.advance(EVERY_SECONDS)
    assert replica.cleanup.due(table)
    await clean(replica)
    assert not replica.cleanup.due(table), "one on demand counts"
    await replica.tables.alter(ORDERS, set_properties(cleanup__enabled="false"))
    warehouse.world.advance(EVERY_SECONDS)
    assert not replica.cleanup.due(table)


async def test_old_floors_do_not_pile_up(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica, properties=SHORT))
    for _ in range(12):
        warehouse.world.advance(DAY)
        await commit(replica, add_line(f"f{warehouse.world.now_ms()}"))
        done = await clean(replica)
    floors = warehouse.store.keys(f"{log}_floor/")
    assert 1 <= len(floors) <= 2
    assert floors[-1].endswith(f"{done.floor:020d}")
    assert done.floor >= 8


async def test_what_went_is_counted(warehouse: Warehouse) -> None:
    telemetry = PrometheusTelemetry()
    replica = warehouse.replica(telemetry=telemetry)
    await a_week(warehouse, replica)
    await clean(replica)
    warehouse.world.advance(DAY)
    await clean(replica, dry_run=True)
    done = await clean(replica)
    told = telemetry.exposition().decode()
    assert f'tarnlog_log_objects_deleted_total{{kind="versions"}} {float(done.versions_deleted)}' in told
    assert 'tarnlog_log_objects_deleted_total{kind="states"}' in told
    assert 'tarnlog_cleanups_total{status="success"} 2.0' in told
