"""Tables of other software, of every kind: read as they are, taken over, and watched for writers that did not stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog.protocol.ids import TableName
from tarnlog_server.codec.state_manifest import decode_state_manifest
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.field_writers import MAPPING, FieldWriter, Generation, field_table
from tests.usecases.replicas import (
    Warehouse,
    add_line,
    commit,
    files,
    refused,
    register,
    remove_line,
    send,
    set_properties,
    version_key,
)

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "indextables-0.5.4"
PLACE = "memory://w/lake/events"
TABLE = "lake/events"
LOG = f"{TABLE}/_transaction_log/"
EVENTS = TableName("raw", "events")
KINDS: list[tuple[Generation, dict[str, Any]]] = [
    ("A", {}),
    ("A", {"protocol": 2}),
    ("B", {}),
    ("B", {"metadata": True}),
    ("B", {"registry_prefix": "docMappingSchema."}),
    ("C", {}),
    ("C", {"metadata": True, "protocol": 3}),
]
kinds = pytest.mark.parametrize("generation, how", KINDS, ids=[f"{g}-{'-'.join(h)}" for g, h in KINDS])


def everything(warehouse: Warehouse) -> dict[str, bytes]:
    return {key: warehouse.store.raw(key) for key in warehouse.store.keys(LOG)}


async def shown(replica: Coordinator) -> list[str]:
    return sorted(await files(replica, EVENTS))


async def adopted(warehouse: Warehouse, generation: Generation, **how: Any) -> tuple[FieldWriter, Coordinator]:
    writer = await field_table(warehouse.store, TABLE, generation, **how)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE, stopped=True)
    return writer, replica


# reading ------------------------------------------------------------------------------------------------------------
@kinds
async def test_a_table_of_any_kind_is_read_and_left_as_it_is(
    warehouse: Warehouse, generation: Generation, how: dict[str, Any]
) -> None:
    writer = await field_table(warehouse.store, TABLE, generation, **how)
    before = everything(warehouse)
    replica = warehouse.replica()
    view = await register(replica, "raw.events", PLACE)
    assert (view.version, view.id, view.read_only, view.num_files) == (11, "field-id", True, len(writer.files))
    assert view.properties["docMappingSchema.h1"] == MAPPING
    assert await shown(replica) == sorted(writer.files)
    assert (await replica.snapshots.snapshot(EVENTS, 11, None, None)).version == 11
    with refused("table-read-only"):
        await send(replica, add_line("x"), to=EVENTS)
    with refused("table-read-only"):
        await replica.checkpoints.checkpoint(EVENTS)
    assert everything(warehouse) == before


@kinds
async def test_reads_follow_a_writer_that_goes_on(
    warehouse: Warehouse, generation: Generation, how: dict[str, Any]
) -> None:
    writer = await field_table(warehouse.store, TABLE, generation, **how)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    for number in range(25):
        await writer.commit(f"new{number}.split", removes=("f11.split",) if number == 3 else ())
        assert await shown(replica) == sorted(writer.files), f"after version {writer.version}"
        assert (await replica.tables.describe(EVENTS, 0)).version == writer.version


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_versions_that_are_only_in_states_have_no_history(warehouse: Warehouse, order: Any) -> None:
    await field_table(warehouse.store, TABLE, "B")
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    assert (await replica.history.commits(EVENTS, None, None, order, 10, None)).commits == ()
    assert (await replica.history.changes(EVENTS, None, None, 10, None)).changes == ()
    for version in (0, 5, 11):
        with refused("version-expired"):
            await replica.history.version(EVENTS, version)
    with refused("version-expired"):
        await replica.snapshots.snapshot(EVENTS, 10, None, None)
    with refused("version-not-found"):
        await replica.snapshots.snapshot(EVENTS, 12, None, None)


async def test_a_table_that_changed_its_generation_twice(warehouse: Warehouse) -> None:
    """Version files, then states alone, then both again: the last files stand on the state before them."""
    writer = await field_table(warehouse.store, TABLE, "A")
    writer.generation = "B"
    await writer.state(tuple(writer.files))
    for number in range(3):
        await writer.commit(f"b{number}.split")
    writer.generation = "C"
    for number in range(3):
        await writer.commit(f"c{number}.split", others=({"txn": {"appId": "job", "version": number}},))
    replica = warehouse.replica()
    view = await register(replica, "raw.events", PLACE)
    assert view.version == writer.version == 17
    assert await shown(replica) == sorted(writer.files)
    assert (await replica.snapshots.txn(EVENTS, "job", None)).version == 2, "the files tell what their states do not"
    await register(replica, "raw.events", PLACE, stopped=True)
    reopened = warehouse.replica()
    assert await shown(reopened) == sorted(writer.files)
    assert (await reopened.snapshots.txn(EVENTS, "job", None)).version == 2
    past = await files(reopened, EVENTS, version=16)
    assert sorted(past) == sorted(set(writer.files) - {"c2.split"})


async def test_where_files_go_back_to_the_start_a_state_that_omits_a_commit_does_no_harm(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, TABLE, "C")
    await writer.commit("omitted.split")
    writer._manifests.pop()
    await writer.commit("last.split")
    for stopped in (False, True):
        replica = warehouse.replica()
        await register(replica, "raw.events", PLACE, stopped=stopped)
        assert "omitted.split" in await shown(replica)
    assert "omitted.split" in await shown(warehouse.replica())


async def test_stray_states_below_the_newest_are_not_looked_at(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, TABLE, "B")
    for version in range(1, 9):
        await warehouse.store.delete(writer.log.state_manifest_avro(version))
    await warehouse.store.put(writer.log.state_manifest_avro(4), b"stray")
    replica = warehouse.replica()
    assert (await register(replica, "raw.events", PLACE, stopped=True)).version == 12
    assert await shown(warehouse.replica()) == sorted(writer.files)


@pytest.mark.parametrize("metadata_at", [3, None])
async def test_metadata_is_looked_for_in_older_states_then_in_version_0(
    warehouse: Warehouse, metadata_at: int | None
) -> None:
    writer = FieldWriter(warehouse.store, TABLE, "B")
    await writer.create()
    for number in range(1, 6):
        writer._metadata = number == metadata_at
        await writer.commit(f"f{number}.split")
    if metadata_at is not None:
        await warehouse.store.delete(version_key(LOG, 0))
    view = await register(warehouse.replica(), "raw.events", PLACE)
    assert (view.version, view.id, view.properties["made.by"]) == (5, "field-id", "field")


@pytest.mark.skipif(not REAL.is_dir(), reason="the real tables are not beside this checkout")
@pytest.mark.parametrize(
    "table, version, count",
    [
        ("02_five_appends", 5, 10),
        ("04_partitioned", 1, 3),
        ("06_schema_dedup", 12, 24),
        ("14_after_merge", 5, 1),
        ("17_truncated_log", 9, 16),
    ],
)
async def test_real_tables(warehouse: Warehouse, table: str, version: int, count: int) -> None:
    root = REAL / table
    for path in sorted(root.rglob("*")):
        if path.is_file():
            await warehouse.store.put(f"{TABLE}/{path.relative_to(root)}", path.read_bytes())
    before = everything(warehouse)
    replica = warehouse.replica()
    view = await register(replica, "raw.events", PLACE)
    assert (view.version, view.num_files) == (version, count)
    seen = await replica.snapshots.files(EVENTS, None, None, 0, 100, None)
    assert everything(warehouse) == before
    await register(replica, "raw.events", PLACE, stopped=True)
    ours = add_line("ours", partitionValues=dict(seen.files[0].partition_values))
    assert (await commit(replica, ours, to=EVENTS)).version == version + 2
    again = await warehouse.replica().snapshots.files(EVENTS, None, None, 0, 100, None)
    theirs = {add.path: add for add in again.files if add.path != "ours"}
    assert theirs == {add.path: add for add in seen.files}
    hint = "_last_checkpoint"
    after = everything(warehouse)
    assert {key: after[key] for key in before if hint not in key} == {
        key: before[key] for key in before if hint not in key
    }


# taking over --------------------------------------------------------------------------------------------------------
@kinds
async def test_a_table_of_any_kind_is_taken_over(
    warehouse: Warehouse, generation: Generation, how: dict[str, Any]
) -> None:
    writer, replica = await adopted(warehouse, generation, **how)
    theirs = set(warehouse.store.keys(LOG))
    view = await replica.tables.describe(EVENTS)
    assert (view.version, view.read_only) == (12, False)
    key = f"{LOG}state-v{12:020d}/_manifest.json"
    manifest = decode_state_manifest(key, 12, warehouse.store.raw(key))
    assert manifest.ours
    assert all(info.sha256 and "-" in info.path.removeprefix("manifests/manifest-") for info in manifest.manifests)
    assert (manifest.facts.adopted_from, manifest.facts.protocol.min_writer_version) == (11, 4)
    assert manifest.schema_registry == {"h1": MAPPING}
    done = await commit(replica, add_line("ours.split"), to=EVENTS)
    assert done.version == 13
    await commit(replica, remove_line("f11.split"), to=EVENTS, readVersion=13)
    await replica.checkpoints.checkpoint(EVENTS)
    after = await replica.tables.alter(EVENTS, set_properties(owner="ops"))
    assert after.properties["docMappingSchema.h1"] == MAPPING
    expected = sorted({*writer.files, "ours.split"} - {"f11.split"})
    reopened = warehouse.replica()
    assert await shown(reopened) == expected
    for version, there in ((12, set(writer.files)), (13, {*writer.files, "ours.split"})):
        assert set(await files(reopened, EVENTS, version=version)) == there
    history = await reopened.history.commits(EVENTS, None, None, "asc", 100, None)
    assert [one.version for one in history.commits] == list(range(12 if generation == "B" else 0, 16))
    assert isinstance(await send(reopened, add_line("more"), to=EVENTS), Committed)
    assert theirs <= set(warehouse.store.keys(LOG))


@kinds
async def test_without_any_state_of_ours_the_log_is_read_from_theirs(
    warehouse: Warehouse, generation: Generation, how: dict[str, Any]
) -> None:
    writer, replica = await adopted(warehouse, generation, **how)
    await commit(replica, add_line("ours.split"), to=EVENTS)
    warehouse.store.overwrite(f"{LOG}state-v{12:020d}/_manifest.json", b"{}")
    reopened = warehouse.replica()
    assert await shown(reopened) == sorted({*writer.files, "ours.split"})
    assert (await commit(reopened, add_line("more"), to=EVENTS)).version == 14


async def test_txns_skips_and_times_survive(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, TABLE, "A")
    skip = {"path": "f11.split", "skipTimestamp": 1, "reason": "r", "operation": "merge", "retryAfter": 9}
    await writer.commit(others=({"txn": {"appId": "job", "version": 3}}, {"mergeskip": skip}))
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    before = await replica.history.commits(EVENTS, None, None, "asc", 100, None)
    await register(replica, "raw.events", PLACE, stopped=True)
    warehouse.world.advance(50)
    reopened = warehouse.replica()
    await reopened.tables.describe(EVENTS, 0)
    base = reopened.open_tables.opened()[0].live.base
    assert base is not None
    assert base.ours
    assert (await reopened.snapshots.txn(EVENTS, "job", None)).version == 3
    assert [skip.path for skip in await reopened.skips.all(EVENTS, None)] == ["f11.split"]
    after = await reopened.history.commits(EVENTS, None, None, "asc", 100, None)
    assert after.commits[: len(before.commits)] == before.commits


async def test_a_dropped_table_of_ours_keeps_its_whole_history_when_it_is_taken_up(warehouse: Warehouse) -> None:
    _, replica = await adopted(warehouse, "A")
    await replica.tables.drop(EVENTS)
    await register(replica, "raw.events", PLACE, stopped=True)
    await replica.checkpoints.checkpoint(EVENTS)
    reopened = warehouse.replica()
    history = await reopened.history.commits(EVENTS, None, None, "asc", 100, None)
    assert [one.version for one in history.commits] == list(range(15))


# writers that did not stop ------------------------------------------------------------------------------------------
async def refused_as_foreign(replica: Coordinator, path: str = "refused.split") -> str:
    outcome = await send(replica, add_line(path), to=EVENTS)
    assert isinstance(outcome, Rejected), outcome
    assert outcome.problem["type"].endswith("/foreign-writer-detected")
    assert outcome.problem["status"] == 409
    return str(outcome.problem["object"])


@pytest.mark.parametrize("seen_before", [False, True])
@pytest.mark.parametrize("ours", [0, 1, 5])
async def test_a_writer_of_states_that_did_not_stop_is_noticed(
    warehouse: Warehouse, seen_before: bool, ours: int
) -> None:
    writer, replica = await adopted(warehouse, "B")
    known = str(warehouse.world.uuid7())
    first = await commit(replica, add_line("first.split"), to=EVENTS, commitId=known)
    for number in range(ours):
        await commit(replica, add_line(f"ours{number}.split"), to=EVENTS)
    if not seen_before:
        replica = warehouse.replica()
    await writer.commit("theirs.split")
    warehouse.world.advance(61)
    before = everything(warehouse)
    trace = await refused_as_foreign(replica)
    assert trace.startswith(f"{LOG}state-v{12:020d}/"), "its own next version, whose file is ours"
    await refused_as_foreign(warehouse.replica())
    assert everything(warehouse) == before, "nothing was written, nothing of theirs is gone"
    again = await commit(replica, add_line("first.split"), to=EVENTS, commitId=known)
    assert (again.version, again.replayed) == (first.version, True), "what is in the log is answered as before"
    expected = {*writer.files, "first.split", *(f"ours{number}.split" for number in range(ours))} - {"theirs.split"}
    for reader in (replica, warehouse.replica()):
        assert await shown(reader) == sorted(expected)


async def test_a_writer_ahead_of_us_and_its_hint_are_noticed(warehouse: Warehouse) -> None:
    writer, replica = await adopted(warehouse, "B")
    writer.version = 40
    await writer.commit("theirs.split")
    warehouse.world.advance(61)
    assert (await refused_as_foreign(replica)).startswith(f"{LOG}state-v{41:020d}/")
    await warehouse.store.delete(writer.log.state_manifest_avro(41))
    assert await refused_as_foreign(warehouse.replica()) == writer.log.last_checkpoint
    assert await shown(warehouse.replica()) == sorted(set(writer.files) - {"theirs.split"})


async def test_commits_go_on_once_the_trace_is_dealt_with(warehouse: Warehouse) -> None:
    writer, replica = await adopted(warehouse, "B")
    await commit(replica, add_line("a.split"), to=EVENTS)
    await writer.commit("theirs.split")
    warehouse.world.advance(61)
    await refused_as_foreign(replica)
    await warehouse.store.delete(writer.log.state_manifest_avro(12))
    warehouse.world.advance(6)
    await commit(replica, add_line("theirs.split"), to=EVENTS)
    assert await shown(warehouse.replica()) == sorted({*writer.files, "a.split"})


async def test_a_state_of_theirs_is_never_written_over(warehouse: Warehouse) -> None:
    writer, replica = await adopted(warehouse, "B")
    await commit(replica, add_line("a.split"), to=EVENTS)
    writer.version = 12
    await writer.commit("theirs.split")
    key = writer.log.state_manifest_avro(13)
    theirs = warehouse.store.raw(key)
    with refused("foreign-writer-detected"):
        await replica.checkpoints.checkpoint(EVENTS)
    assert warehouse.store.raw(key) == theirs


async def test_a_state_of_ours_that_they_wrote_over_is_noticed(warehouse: Warehouse) -> None:
    writer, replica = await adopted(warehouse, "B")
    warehouse.world.advance(61)
    await warehouse.store.delete(writer.log.state_manifest_avro(12))
    await writer.commit("theirs.split")
    assert (await refused_as_foreign(replica)).startswith(f"{LOG}state-v{12:020d}/")


async def test_a_state_of_ours_that_was_not_completed_is_no_trace(warehouse: Warehouse) -> None:
    _, replica = await adopted(warehouse, "B")
    await commit(replica, add_line("a.split"), to=EVENTS)
    await replica.checkpoints.checkpoint(EVENTS)
    await warehouse.store.delete(f"{LOG}state-v{13:020d}/_manifest.json")
    warehouse.world.advance(61)
    assert (await commit(warehouse.replica(), add_line("b.split"), to=EVENTS)).version == 14


async def test_a_writer_of_version_files_that_goes_on_is_a_competitor(warehouse: Warehouse) -> None:
    """Its files take slots like another replica's; its states are passed over."""
    writer, replica = await adopted(warehouse, "C")
    for number in range(4):
        await commit(replica, add_line(f"ours{number}.split"), to=EVENTS)
        writer.version = (await replica.tables.describe(EVENTS, 0)).version
        await writer.commit(f"theirs{number}.split")
        warehouse.world.advance(61)
    await commit(replica, add_line("last.split"), to=EVENTS)
    expected = sorted({*writer.files, *(f"ours{number}.split" for number in range(4)), "last.split"})
    for reader in (replica, warehouse.replica()):
        assert await shown(reader) == expected
    await replica.checkpoints.checkpoint(EVENTS)
    assert await shown(warehouse.replica()) == expected


async def test_a_writer_of_version_files_that_is_behind_overwrites_nothing(warehouse: Warehouse) -> None:
    """It lost the slot, and wrote its state all the same: that state tells what no version file does."""
    writer, replica = await adopted(warehouse, "C")
    warehouse.world.advance(61)
    await writer.commit("theirs.split")
    assert (await refused_as_foreign(replica)).startswith(f"{LOG}state-v{12:020d}/")


# damage -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [0, 0.5, 0.99])
@pytest.mark.parametrize("part", ["_manifest.avro", "manifest"])
async def test_a_damaged_newest_state_falls_back_for_readers_and_is_never_built_on(
    warehouse: Warehouse, part: str, cut: float
) -> None:
    writer = await field_table(warehouse.store, TABLE, "B")
    newest = writer.log.state_manifest_avro(11)
    key = newest if part == "_manifest.avro" else f"{LOG}manifests/manifest-{11:08x}.avro"
    good = warehouse.store.raw(key)
    warehouse.store.overwrite(key, good[: int(len(good) * cut)])
    replica = warehouse.replica()
    assert (await register(replica, "raw.events", PLACE)).version == 10
    assert await shown(replica) == sorted(set(writer.files) - {"f11.split"})
    with refused("log-corrupt") as caught:
        await register(replica, "raw.events", PLACE, stopped=True)
    assert caught.value.fields["object"] == newest
    warehouse.store.overwrite(key, good)
    warehouse.world.advance(61)
    assert await shown(replica) == sorted(writer.files), "it is read again once it is restored"
    assert (await register(replica, "raw.events", PLACE, stopped=True)).version == 12


@pytest.mark.parametrize("generation", ["A", "C"])
async def test_damaged_states_beside_version_files_cost_nothing(warehouse: Warehouse, generation: Generation) -> None:
    writer = await field_table(warehouse.store, TABLE, generation)
    for key in warehouse.store.keys(LOG):
        if "state-v" in key or ".checkpoint" in key or "_last_checkpoint" in key:
            warehouse.store.overwrite(key, warehouse.store.raw(key)[:7])
    replica = warehouse.replica()
    assert (await register(replica, "raw.events", PLACE, stopped=True)).version == 12
    assert await shown(warehouse.replica()) == sorted(writer.files)


async def test_a_table_without_any_readable_state_is_named(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, TABLE, "B")
    await warehouse.store.delete(version_key(LOG, 0))
    for version in range(1, 12):
        warehouse.store.overwrite(writer.log.state_manifest_avro(version), b"")
    with refused("log-corrupt"):
        await register(warehouse.replica(), "raw.events", PLACE)
    assert warehouse.store.keys("_catalog/") == []
