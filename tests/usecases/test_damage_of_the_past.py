"""Damage below the newest state belongs to the reads that meet it: the head is served, and commits go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog_server.core.snapshot_tracker import Window
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
    remove_line,
    send,
    version_key,
)

STATE, LAST = 8, 12
FORGETFUL = CommitterSettings(window=Window(versions=1, weight=1, snapshots=1, recent_ids=0))


async def _followed(replica: Coordinator, version: int) -> None:
    async for change in await replica.history.follow(ORDERS, version - 1):
        if change is not None and change.version == LAST:
            return


READS: dict[str, Callable[[Coordinator, int], Awaitable[Any]]] = {
    "one version": lambda replica, version: replica.history.version(ORDERS, version),
    "history": lambda replica, version: replica.history.commits(ORDERS, version, None, "asc", 100, None),
    "changes": lambda replica, version: replica.history.changes(ORDERS, version, None, 100, None),
    "files": lambda replica, version: files(replica, version=version),
    "snapshot": lambda replica, version: replica.snapshots.snapshot(ORDERS, version, None, 0),
    "events": _followed,
}
DAMAGE: dict[str, Callable[[Warehouse, str], Awaitable[None]]] = {}


def damage(name: str) -> Callable[..., Any]:
    def register(function: Callable[[Warehouse, str], Awaitable[None]]) -> None:
        DAMAGE[name] = function

    return register


@damage("missing")
async def _missing(warehouse: Warehouse, key: str) -> None:
    await warehouse.store.delete(key)


@damage("flipped")
async def _flipped(warehouse: Warehouse, key: str) -> None:
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, good[:200] + bytes([good[200] ^ 1]) + good[201:])


@damage("wrong slot")
async def _wrong_slot(warehouse: Warehouse, key: str) -> None:
    version = int(key.rsplit("/", 1)[1].removesuffix(".json"))
    warehouse.store.overwrite(key, warehouse.store.raw(version_key(key.rsplit("/", 1)[0] + "/", version + 1)))


async def table(warehouse: Warehouse, **settings: Any) -> tuple[Coordinator, str, list[str]]:
    """A table with one state, opened from it; the log; and the ids of its commits by version."""
    writer = warehouse.replica()
    log = warehouse.log(await create(writer, properties={"checkpoint.enabled": "false"}))
    ids = [""]
    for version in range(1, LAST + 1):
        ids.append(str(warehouse.world.uuid7()))
        warehouse.world.advance(1)
        await commit(writer, add_line(f"f{version}"), commitId=ids[-1])
        if version == STATE:
            await writer.checkpoints.checkpoint(ORDERS)
    replica = warehouse.replica(**settings)
    assert len(await files(replica)) == LAST
    return replica, log, ids


@pytest.mark.parametrize("how", ["missing", "flipped", "wrong slot"])
@pytest.mark.parametrize("read", READS)
async def test_a_reader_of_a_damaged_old_version_is_told_and_stops_nobody(
    warehouse: Warehouse, read: str, how: str
) -> None:
    replica, log, _ = await table(warehouse)
    key = version_key(log, 3)
    await DAMAGE[how](warehouse, key)
    for number in range(3):
        with refused("log-corrupt") as caught:
            await READS[read](replica, 3)
        assert caught.value.fields["object"] == key
        assert (await commit(replica, add_line(f"after-{read}-{number}"))).version == LAST + 1 + number
    assert len(await files(replica)) == LAST + 3
    restarted = warehouse.replica()
    assert len(await files(restarted)) == LAST + 3
    assert isinstance(await send(restarted, add_line("after a restart")), Committed)


@pytest.mark.parametrize("how", ["missing", "flipped"])
async def test_a_read_of_what_the_head_stands_on_closes_the_table(warehouse: Warehouse, how: str) -> None:
    replica, log, _ = await table(warehouse, settings=FORGETFUL)
    key = version_key(log, STATE + 2)
    await DAMAGE[how](warehouse, key)
    with refused("log-corrupt") as caught:
        await READS["one version"](replica, STATE + 2)
    assert caught.value.fields["object"] == key
    with refused("log-corrupt"):
        await send(replica, add_line("more"))


@pytest.mark.parametrize("how", ["missing", "flipped"])
async def test_an_id_whose_version_is_damaged_is_not_committed_again(warehouse: Warehouse, how: str) -> None:
    """The id is known to be in the log: only what it was is not."""
    replica, log, ids = await table(warehouse, settings=FORGETFUL)
    await DAMAGE[how](warehouse, version_key(log, 3))
    for number in range(2):
        with refused("log-corrupt") as caught:
            await send(replica, add_line("f3"), commitId=ids[3])
        assert caught.value.fields["object"] == version_key(log, 3)
        with refused("log-corrupt"):
            await replica.commits.status(ORDERS, ids[3])
        assert isinstance(await send(replica, add_line(f"other-{number}")), Committed)


@pytest.mark.parametrize("how", ["missing", "flipped"])
async def test_a_commit_planned_before_a_damaged_version_is_refused_alone(warehouse: Warehouse, how: str) -> None:
    replica, log, _ = await table(warehouse, settings=FORGETFUL)
    await DAMAGE[how](warehouse, version_key(log, 3))
    outcome = await send(replica, remove_line("f1"), readVersion=1)
    assert isinstance(outcome, Rejected)
    assert outcome.problem["object"] == version_key(log, 3)
    assert isinstance(await send(replica, add_line("beside")), Committed)


async def test_a_commit_planned_above_a_damaged_version_is_not_refused_with_one_planned_below(
    warehouse: Warehouse,
) -> None:
    replica, log, _ = await table(warehouse, settings=FORGETFUL)
    await DAMAGE["flipped"](warehouse, version_key(log, 3))
    below, above, blind = await asyncio.gather(
        send(replica, remove_line("f1"), readVersion=1),
        send(replica, remove_line("f5"), readVersion=6),
        send(replica, add_line("blind")),
    )
    assert isinstance(below, Rejected)
    assert below.problem["object"] == version_key(log, 3)
    assert isinstance(above, Committed), above
    assert isinstance(blind, Committed), blind


async def test_a_version_that_was_cleaned_up_meanwhile_has_expired(warehouse: Warehouse) -> None:
    replica, log, _ = await table(warehouse)
    await READS["one version"](replica, 5)
    await warehouse.store.put(f"{log}_floor/{STATE:020d}", b"")
    for version in range(STATE):
        await warehouse.store.delete(version_key(log, version))
    for name, read in READS.items():
        if name != "events":
            with refused("version-expired"):
                await read(replica, 3)
    assert isinstance(await send(replica, add_line("beside")), Committed)


@pytest.mark.parametrize("version", [0, 3])
async def test_a_log_that_lost_its_floor_names_the_missing_versions(warehouse: Warehouse, version: int) -> None:
    """Cleaned up, and then all floors were deleted: nothing says that the old versions may be missing."""
    replica, log, _ = await table(warehouse)
    for number in range(STATE):
        await warehouse.store.delete(version_key(log, number))
    for one in (replica, warehouse.replica()):
        for name in ("one version", "files", "changes"):
            with refused("log-corrupt") as caught:
                await READS[name](one, version)
            assert caught.value.fields["object"].startswith(log)
            assert int(caught.value.fields["object"].rsplit("/")[-1].removesuffix(".json")) < STATE
        assert isinstance(await send(one, add_line(f"beside-{id(one)}")), Committed)


async def test_a_floor_above_the_head_is_named(warehouse: Warehouse) -> None:
    replica, log, _ = await table(warehouse)
    floor = f"{log}_floor/{1000:020d}"
    await warehouse.store.put(floor, b"")
    warehouse.world.advance(301)  # what is known of the floor is too old by then
    # A replica that has the table open meets it when it reads the past; from then on both are told for everything.
    for one, version in ((warehouse.replica(), None), (replica, 3), (replica, None)):
        with refused("log-corrupt") as caught:
            await files(one, version=version)
        assert caught.value.fields["object"] == floor
    await warehouse.store.delete(floor)
    warehouse.world.advance(10)
    assert len(await files(replica)) == LAST
    assert len(await files(warehouse.replica())) == LAST


@pytest.mark.parametrize("how", ["missing", "flipped"])
async def test_a_state_that_another_replica_wrote_covers_damage_as_well(warehouse: Warehouse, how: str) -> None:
    replica = warehouse.replica(settings=FORGETFUL)
    log = warehouse.log(await create(replica, properties={"checkpoint.enabled": "false"}))
    for version in range(1, LAST + 1):
        await commit(replica, add_line(f"f{version}"))
    await warehouse.replica().checkpoints.checkpoint(ORDERS)
    await DAMAGE[how](warehouse, version_key(log, 3))
    for number in range(3):
        with refused("log-corrupt") as caught:
            await READS["one version"](replica, 3)
        assert caught.value.fields["object"] == version_key(log, 3)
        assert (await commit(replica, add_line(f"more-{number}"))).version == LAST + 1 + number


@pytest.mark.parametrize("how", ["missing", "flipped"])
async def test_a_replica_that_is_behind_damage_goes_on_from_a_state_that_covers_it(
    warehouse: Warehouse, how: str
) -> None:
    behind, ahead = warehouse.replica(), warehouse.replica()
    log = warehouse.log(await create(ahead, properties={"checkpoint.enabled": "false"}))
    assert await files(behind) == []
    for version in range(1, LAST + 1):
        await commit(ahead, add_line(f"f{version}"))
    await ahead.checkpoints.checkpoint(ORDERS)
    await DAMAGE[how](warehouse, version_key(log, 3))
    assert len(await files(behind)) == LAST
    assert (await commit(behind, add_line("more"))).version == LAST + 1


async def test_a_state_of_a_version_whose_file_is_lost_is_refused_by_name(warehouse: Warehouse) -> None:
    replica, log, _ = await table(warehouse)
    await DAMAGE["missing"](warehouse, version_key(log, LAST))
    with refused("log-corrupt") as caught:
        await replica.checkpoints.checkpoint(ORDERS)
    assert caught.value.fields["object"] == version_key(log, LAST)
