"""States written and opened again: whatever the format and the history, a table reads the same as by replay."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.state_read import Kind
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    refused,
    remove_line,
    request,
    set_properties,
    version_key,
)

FORMATS = ("avro", "json", "parquet")


async def look(replica: Coordinator, version: int | None = None) -> dict[str, Any]:
    """Everything a reader can see of a table, in an order of its own."""
    view = await replica.snapshots.snapshot(ORDERS, version, None, 0)
    page = await replica.snapshots.files(ORDERS, version, None, 0, 10_000, None)
    seen: dict[str, Any] = {
        "files": sorted((file.path, file.size, file.num_records) for file in page.files),
        "numbers": (view.version, view.timestamp, view.num_files, view.total_bytes, view.num_records),
        "meta": (view.protocol, view.meta_data, view.txns),
    }
    if version is None:
        seen["skips"] = await replica.skips.all(ORDERS, 0)
    return seen


def is_version_file(log: str, key: str) -> bool:
    name = key.removeprefix(log)
    return len(name) == 25 and name[:20].isdigit()


async def forget_states(warehouse: Warehouse, log: str) -> None:
    """Leave only the version files: what a replay sees."""
    for key in warehouse.store.keys(log):
        if not is_version_file(log, key):
            await warehouse.store.delete(key)


async def random_commit(replica: Coordinator, rng: random.Random, live: set[str], gone: set[str]) -> Committed:
    head = (await replica.snapshots.snapshot(ORDERS, None, None, None)).version
    kind = rng.random()
    if kind < 0.2 and live:
        path = rng.choice(sorted(live))
        live.discard(path)
        gone.add(path)
        return await commit(replica, remove_line(path), readVersion=head)
    if kind < 0.35 and gone:
        path = rng.choice(sorted(gone))
        gone.discard(path)
        live.add(path)
        return await commit(replica, add_line(path, size=rng.randrange(100)))
    if kind < 0.45:
        txn = {"txn": {"appId": rng.choice("ab"), "version": head + 1}}
        return await commit(replica, txn, readVersion=head)
    path = f"f{rng.randrange(10**9)}"
    live.add(path)
    return await commit(replica, add_line(path, size=rng.randrange(100)))


@pytest.mark.parametrize("seed", range(24))
async def test_any_history_reads_the_same_from_any_state(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    replica = warehouse.replica()
    log = warehouse.log(
        await create(replica, properties={"state.entriesPerManifest": "7", "state.compaction.maxManifests": "4"})
    )
    live: set[str] = set()
    gone: set[str] = set()
    sent: list[Committed] = []
    for _ in range(rng.randrange(5, 60)):
        warehouse.world.advance(rng.random())
        sent.append(await random_commit(replica, rng, live, gone))
        if rng.random() < 0.25:
            await replica.checkpoints.checkpoint(ORDERS, rng.choice(FORMATS))
        elif rng.random() < 0.05:
            await replica.checkpoints.compact(ORDERS)
        if rng.random() < 0.1:
            replica = warehouse.replica()
    if rng.random() < 0.5 and live:
        await replica.tables.alter(ORDERS, set_properties(owner="ops"))
    await replica.checkpoints.checkpoint(ORDERS, rng.choice(FORMATS))
    reopened = warehouse.replica()
    from_state = await look(reopened)
    table = reopened.open_tables.opened()[0]
    assert table.live.base is not None, f"seed {seed}: it was opened from a state"
    past = {version: await look(reopened, version) for version in rng.sample(range(from_state["numbers"][0] + 1), 3)}
    # Ids that a state remembers are answered, not written again.
    reused = await reopened.commits.commit(ORDERS, request(add_line("x"), commitId=rng.choice(sent).commit_id))
    assert isinstance(reused, Rejected)
    assert reused.problem["type"].endswith("/commit-id-reused")
    await forget_states(warehouse, log)
    by_replay = warehouse.replica()
    assert await look(by_replay) == from_state, f"seed {seed}"
    assert by_replay.open_tables.opened()[0].live.base is None
    for version, seen in past.items():
        assert await look(by_replay, version) == seen, f"seed {seed}, version {version}"


@pytest.mark.parametrize("format_", FORMATS)
async def test_opening_from_a_state_reads_only_what_came_after_it(warehouse: Warehouse, format_: str) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    for number in range(30):
        await commit(replica, add_line(f"f{number}"))
    await replica.checkpoints.checkpoint(ORDERS, format_)
    await commit(replica, add_line("last"))
    reader = warehouse.replica()
    warehouse.store.gets.clear()
    assert len((await look(reader))["files"]) == 31
    versions = [
        key for key in warehouse.store.gets if key.removeprefix(log)[:20].isdigit() and len(key) == len(log) + 25
    ]
    assert versions == [version_key(log, 30), version_key(log, 31)], (
        "the state's own version file, and the one after it"
    )


async def test_a_resend_is_known_after_opening_from_a_state(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    line = add_line("a")
    commit_id = str(warehouse.world.uuid7())
    first = await commit(replica, line, commitId=commit_id)
    await replica.checkpoints.checkpoint(ORDERS)
    again = await commit(warehouse.replica(), line, commitId=commit_id)
    assert (again.version, again.seq, again.replayed) == (first.version, first.seq, True)


@pytest.mark.parametrize("format_", FORMATS)
async def test_every_damaged_object_of_a_state_is_noticed_and_survived(warehouse: Warehouse, format_: str) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    for number in range(5):
        await commit(replica, add_line(f"f{number}"), {"txn": {"appId": "a", "version": number}}, readVersion=number)
    expected = await look(replica)
    await replica.checkpoints.checkpoint(ORDERS, format_)
    parts = [
        key for key in warehouse.store.keys(log) if len(key) != len(log) + 25 and not key.endswith("_manifest.avro")
    ]
    assert len(parts) >= 3
    rng = random.Random(format_)
    for key in parts:
        good = warehouse.store.raw(key)
        position = rng.randrange(len(good))
        flipped = good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :]
        for bad in (b"", good[: len(good) // 2], flipped):
            warehouse.store.overwrite(key, bad)
            assert await look(warehouse.replica()) == expected, key
        warehouse.store.overwrite(key, good)


async def test_a_broken_state_leads_to_the_one_before_it(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, add_line("a"))
    await replica.checkpoints.checkpoint(ORDERS)
    await commit(replica, add_line("b"))
    await replica.checkpoints.checkpoint(ORDERS)
    warehouse.store.overwrite(f"{log}state-v{2:020d}/_manifest.json", b"{}")
    reader = warehouse.replica()
    assert [path for path, _, _ in (await look(reader))["files"]] == ["a", "b"]
    base = reader.open_tables.opened()[0].live.base
    assert base is not None
    assert (base.ref.version, base.ref.kind) == (1, Kind.AVRO)


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_state_counts_its_own_version(warehouse: Warehouse, format_: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    empty = await replica.checkpoints.describe(ORDERS)
    assert (empty.status, empty.version, empty.num_files, empty.total_bytes) == ("none", None, 0, 0)
    await commit(replica, add_line("a", size=10), add_line("b", size=20))
    assert (await replica.checkpoints.describe(ORDERS)).num_files == 2, "without a state, the table's"
    await replica.checkpoints.checkpoint(ORDERS, format_)
    await commit(replica, add_line("c", size=30))
    for one in (replica, warehouse.replica()):
        state = await one.checkpoints.describe(ORDERS)
        assert (state.version, state.num_files, state.total_bytes) == (1, 2, 30)


@pytest.mark.parametrize("compressed", ["true", "false"])
@pytest.mark.parametrize("by", ["actions", "bytes"])
async def test_a_json_checkpoint_in_parts_is_pointed_to_with_its_id(
    warehouse: Warehouse, by: str, compressed: str
) -> None:
    rng = random.Random(by)
    limits = {"checkpoint.actionsPerPart": "40"} if by == "actions" else {"checkpoint.maxFileSize": "65536"}
    properties = {"state.format": "json", "transaction.compression.enabled": compressed, **limits}
    replica = warehouse.replica()
    log = warehouse.log(await create(replica, properties=properties))
    await commit(replica, add_line("one"))
    assert not (await replica.checkpoints.checkpoint(ORDERS)).is_multi_part
    hint = json.loads(warehouse.store.raw(f"{log}_last_checkpoint"))
    assert (hint["format"], "checkpointId" in hint, "parts" in hint) == ("json", False, False)
    await commit(replica, *(add_line(f"f{i:03d}", stats=rng.randbytes(600).hex()) for i in range(150)))
    assert (await replica.checkpoints.checkpoint(ORDERS)).is_multi_part
    hint = json.loads(warehouse.store.raw(f"{log}_last_checkpoint"))
    manifest = json.loads(warehouse.store.raw(f"{log}{2:020d}.checkpoint.json"))
    assert (hint["version"], hint["format"], hint["parts"]) == (2, "json-multipart", len(manifest["parts"]))
    assert hint["checkpointId"] == manifest["checkpointId"]
    assert len(manifest["parts"]) > 2
    for name in manifest["parts"]:
        assert manifest["checkpointId"] in name
        assert len(warehouse.store.raw(f"{log}{name}")) <= 65536
    reader = warehouse.replica()
    assert len((await look(reader))["files"]) == 151
    base = reader.open_tables.opened()[0].live.base
    assert base is not None
    assert base.ref.version == 2


async def test_an_incremental_state_costs_what_changed(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, *(add_line(f"f{number}") for number in range(2000)))
    await replica.checkpoints.checkpoint(ORDERS)
    before = set(warehouse.store.keys(log))
    warehouse.store.gets.clear()
    await commit(replica, add_line("one"), add_line("two"))
    await commit(replica, remove_line("f7"), readVersion=2)
    await replica.checkpoints.checkpoint(ORDERS)
    new = [key for key in warehouse.store.keys(log) if key not in before and not is_version_file(log, key)]
    sizes = {key.rsplit("/", 1)[-1]: len(warehouse.store.raw(key)) for key in new}
    assert sum(sizes.values()) < 20_000, sizes
    assert len([name for name in sizes if name.startswith("manifest-")]) == 1
    old_manifests = {key for key in before if "/manifests/" in key}
    assert not old_manifests & set(warehouse.store.gets), "the old manifest is shared, not read"
    state = await replica.checkpoints.describe(ORDERS)
    assert (state.num_files, state.num_manifests, state.num_tombstones, state.status) == (2001, 2, 1, "ours")
    assert len((await look(warehouse.replica()))["files"]) == 2001


async def test_a_state_that_is_due_is_written_by_the_way(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica, properties={"checkpoint.interval": "5"}))
    for number in range(3):
        await commit(replica, add_line(f"f{number}"))
    table = replica.open_tables.opened()[0]
    assert replica.checkpoints.due(table) is None
    await commit(replica, add_line("f4"))
    reason = replica.checkpoints.due(table)
    assert reason is not None
    assert reason.value == "interval"
    await replica.checkpoints.keep(table, reason)
    assert replica.checkpoints.due(table) is None
    assert warehouse.store.keys(f"{log}state-v{4:020d}/")
    await replica.tables.alter(ORDERS, set_properties(checkpoint__enabled="false"))
    for number in range(9):
        await commit(replica, add_line(f"g{number}"))
    assert replica.checkpoints.due(table) is None


async def test_two_replicas_may_write_the_same_state(warehouse: Warehouse) -> None:
    here, there = warehouse.replica(), warehouse.replica()
    await create(here)
    await commit(here, add_line("a"))
    for replica in (here, there, here):
        assert (await replica.checkpoints.checkpoint(ORDERS)).checkpoint_version == 1
    assert (await look(warehouse.replica()))["files"] == [("a", 10, 2)]


async def test_a_read_only_table_gets_no_state(warehouse: Warehouse) -> None:
    from tests.usecases.replicas import register
    from tests.usecases.test_register import EVENTS, PLACE, write_foreign

    await write_foreign(warehouse)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    with refused("table-read-only"):
        await replica.checkpoints.checkpoint(EVENTS)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_listing_that_began_on_the_log_goes_on_on_a_state(warehouse: Warehouse, form: str) -> None:
    """Whoever serves the next page may know the version from a state, which does not tell the order of its actions."""
    replica = warehouse.replica()
    await create(replica)
    paths = [f"{letter}{spelling}" for letter in "qwertyuiop" for spelling in ("", "%20x", "é")]
    await commit(replica, *(add_line(path) for path in paths))
    version = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version
    await replica.checkpoints.checkpoint(ORDERS, form)
    page = await replica.snapshots.files(ORDERS, version, None, 0, 7, None)
    found = [file.path for file in page.files]
    while page.next is not None:
        replica = warehouse.replica()
        await commit(replica, add_line(f"later-{len(found)}"))
        page = await replica.snapshots.files(ORDERS, None, None, 0, 7, page.next)
        found += [file.path for file in page.files]
    assert found == sorted(paths)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("part", ["_manifest.json", "_manifest.avro", "ids.bin"])
async def test_a_state_written_where_a_damaged_one_lies_replaces_it(
    warehouse: Warehouse, part: str, warm: bool
) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    for number in range(3):
        await commit(replica, add_line(f"f{number}"))
    await replica.checkpoints.checkpoint(ORDERS)
    key = f"{log}state-v{3:020d}/{part}"
    warehouse.store.overwrite(key, bytes(len(warehouse.store.raw(key))))
    writer = replica if warm else warehouse.replica()
    assert (await writer.checkpoints.checkpoint(ORDERS)).checkpoint_version == 3
    checks = (await warehouse.replica().verifying.verify(ORDERS)).checks
    assert [check for check in checks if not check.ok and check.name != "data-files"] == []
