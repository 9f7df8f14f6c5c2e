"""Audits and repairs: every kind of damage is found, states are made again, and nothing else is touched."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest

from tarnlog.protocol.commits import Rejected
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.object_store import StoreUnavailable
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.verify import AuditView
from tests.usecases.field_writers import Generation, field_table
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
    version_key,
)

FORMATS = ("avro", "json", "json-multipart", "parquet")
EVENTS = TableName("raw", "events")


def failed(view: AuditView) -> set[str]:
    return {check.name for check in view.checks if not check.ok}


async def table_with(warehouse: Warehouse, form: str, commits: int = 12) -> tuple[Coordinator, str]:
    """A table of this format with a history, several states and its data files in place."""
    replica = warehouse.replica()
    properties = {"state.format": form.partition("-")[0], "state.entriesPerManifest": "4"}
    if form == "json-multipart":
        properties["checkpoint.actionsPerPart"] = "3"
    view = await create(replica, properties=properties)
    place = view.location.removeprefix("memory://w/")
    for number in range(1, commits + 1):
        warehouse.world.advance(1)
        await warehouse.store.put(f"{place}/f{number}", b"x" * 10)
        lines = [add_line(f"f{number}")]
        if number % 5 == 0:
            lines = [*lines, remove_line(f"f{number - 3}"), {"txn": {"appId": "a", "version": number}}]
            await commit(replica, *lines, readVersion=number - 1)
        else:
            await commit(replica, *lines)
        if number % 4 == 0:
            await replica.checkpoints.checkpoint(ORDERS)
    return replica, warehouse.log(view)


def objects(warehouse: Warehouse, log: str) -> dict[str, bytes]:
    return {key: warehouse.store.raw(key) for key in warehouse.store.keys(log)}


def is_version(log: str, key: str) -> bool:
    name = key.removeprefix(log)
    return len(name) == 25 and name[:20].isdigit()


# healthy ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMATS)
async def test_a_healthy_table_passes_every_check(warehouse: Warehouse, form: str) -> None:
    replica, log = await table_with(warehouse, form)
    before = objects(warehouse, log)
    told: list[tuple[int, int | None, str]] = []
    view = await replica.verifying.verify(ORDERS, lambda *step: told.append(step))
    assert failed(view) == set(), view
    assert (view.table_name, view.status, view.repaired) == ("sales.orders", "success", ())
    assert {unit for _, _, unit in told} == {"versions", "files"}
    repaired = await replica.repairing.repair(ORDERS)
    assert (repaired.status, repaired.repaired) == ("success", ())
    assert objects(warehouse, log) == before


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("generation", ["A", "B", "C"])
async def test_a_healthy_table_of_other_software_passes(
    warehouse: Warehouse, generation: Generation, stopped: bool
) -> None:
    writer = await field_table(warehouse.store, "lake/events", generation)
    for path in writer.files:
        await warehouse.store.put(f"lake/events/{path}", b"x" * 10)
    replica = warehouse.replica()
    await register(replica, "raw.events", "memory://w/lake/events", stopped=stopped)
    if stopped:
        await warehouse.store.put("lake/events/ours", b"x" * 10)
        await commit(replica, add_line("ours"), to=EVENTS)
        await replica.checkpoints.checkpoint(EVENTS)
    view = await replica.verifying.verify(EVENTS)
    assert failed(view) == set(), view
    details = {check.name: check.detail for check in view.checks}
    if stopped:
        assert details["state-equals-replay"].startswith("2 states"), "ours, against theirs and the versions since"
    elif generation == "B":
        assert "another writer's state" in details["log-contiguous"]


@pytest.mark.parametrize("generation", ["A", "B", "C"])
async def test_what_other_software_left_is_no_concern_of_a_table_that_was_taken_over(
    warehouse: Warehouse, generation: Generation
) -> None:
    writer = await field_table(warehouse.store, "lake/events", generation)
    for path in writer.files:
        await warehouse.store.put(f"lake/events/{path}", b"x" * 10)
    theirs = [key for key in warehouse.store.keys(writer.log.root) if not is_version(writer.log.root, key)]
    replica = warehouse.replica()
    await register(replica, "raw.events", "memory://w/lake/events", stopped=True)
    for key in theirs:
        if not key.endswith("_last_checkpoint"):
            warehouse.store.overwrite(key, b"damaged")
    view = await replica.verifying.verify(EVENTS)
    assert failed(view) == set(), view
    assert (await replica.repairing.repair(EVENTS)).repaired == ()


async def test_an_empty_and_an_unknown_table(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    assert (await replica.verifying.verify(ORDERS)).status == "success"
    for verb in (replica.verifying.verify, replica.repairing.repair):
        with refused("table-not-found"):
            await verb(TableName("no", "such"))


async def test_a_read_only_table_is_not_repaired(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, "lake/events", "B")
    replica = warehouse.replica()
    await register(replica, "raw.events", "memory://w/lake/events")
    warehouse.store.overwrite(writer.log.state_manifest_avro(11), b"")
    view = await replica.verifying.verify(EVENTS)
    assert {"states-sound", "log-contiguous"} <= failed(view)
    with refused("table-read-only"):
        await replica.repairing.repair(EVENTS)


# damage -------------------------------------------------------------------------------------------------------------
def damages(good: bytes, rng: random.Random) -> list[bytes]:
    flips = []
    for _ in range(3):
        at = rng.randrange(len(good))
        flips.append(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :])
    return [b"", good[: len(good) // 2], good[:-1], *flips]


def _changes_the_schema(good: bytes, bad: bytes) -> bool:
    """Whether one byte was changed in the schema at the start of an Avro file."""
    at = next((index for index, pair in enumerate(zip(good, bad, strict=False)) if pair[0] != pair[1]), len(good))
    return good.startswith(b"Obj\x01") and good.find(b"avro.schema") < at < good.rfind(b"}]")


@pytest.mark.parametrize("form", FORMATS)
async def test_damage_to_any_object_of_a_log_is_found_and_repaired_where_it_is_a_state(
    warehouse: Warehouse, form: str
) -> None:
    replica, log = await table_with(warehouse, form)
    healthy = objects(warehouse, log)
    expected = sorted(await files(replica))
    seed = 7
    rng = random.Random(seed)
    for key, good in healthy.items():
        for number, bad in enumerate(damages(good, rng)):
            what = f"seed {seed}, {key}, damage {number}"
            warehouse.store.overwrite(key, bad)
            view = await warehouse.replica().verifying.verify(ORDERS)
            if is_version(log, key):
                assert "version-files" in failed(view), what
                warehouse.store.overwrite(key, good)
                continue
            # In the hint only the time it was made is told nowhere else; a change there changes nothing. Nor does one
            # in words of the Avro schema that no reader needs, such as `default`.
            harmless = key.endswith("_last_checkpoint") or _changes_the_schema(good, bad)
            assert failed(view) or (harmless and number > 2), what
            fixed = await warehouse.replica().repairing.repair(ORDERS)
            assert (fixed.status, failed(fixed)) == ("success", set()), (what, fixed)
            assert bool(fixed.repaired) == bool(failed(view)), what
            assert (await warehouse.replica().verifying.verify(ORDERS)).status == "success", what
            assert sorted(await files(warehouse.replica())) == expected, what
            again = await warehouse.replica().repairing.repair(ORDERS)
            assert again.repaired == (), what
            for name in [name for name in warehouse.store.keys(log) if name not in healthy]:
                await warehouse.store.delete(name)
            for name, data in healthy.items():
                warehouse.store.overwrite(name, data)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_missing_object_of_a_state_is_found_and_made_again(warehouse: Warehouse, form: str) -> None:
    replica, log = await table_with(warehouse, form)
    healthy = objects(warehouse, log)
    expected = sorted(await files(replica))
    for key in healthy:
        if is_version(log, key):
            continue
        await warehouse.store.delete(key)
        fixed = await warehouse.replica().repairing.repair(ORDERS)
        assert (fixed.status, failed(fixed)) == ("success", set()), (key, fixed)
        assert sorted(await files(warehouse.replica())) == expected, key
        for name, data in healthy.items():
            warehouse.store.overwrite(name, data)


@pytest.mark.parametrize("version", [0, 3, 12])
async def test_a_missing_version_is_named_and_left_to_people(warehouse: Warehouse, version: int) -> None:
    replica, log = await table_with(warehouse, "avro")
    await commit(replica, add_line("more"))
    key = version_key(log, version)
    await warehouse.store.delete(key)
    view = await warehouse.replica().verifying.verify(ORDERS)
    check = next(check for check in view.checks if check.name == "log-contiguous")
    assert not check.ok
    assert key in check.detail
    before = {name: data for name, data in objects(warehouse, log).items() if is_version(log, name)}
    fixed = await warehouse.replica().repairing.repair(ORDERS)
    assert fixed.status == "incomplete"
    told = next(check for check in fixed.checks if check.name == "log-contiguous")
    assert "restore" in told.detail
    after = {name: data for name, data in objects(warehouse, log).items() if is_version(log, name)}
    assert after == before, "version files are never touched"


async def test_a_log_that_cannot_be_opened_is_audited(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, add_line("a"))
    warehouse.store.overwrite(version_key(log, 1), b"{")
    fresh = warehouse.replica()
    with refused("log-corrupt"):
        await files(fresh)
    view = await fresh.verifying.verify(ORDERS)
    assert {"version-files", "log-contiguous", "data-files"} <= failed(view)
    assert (await fresh.repairing.repair(ORDERS)).status == "incomplete"


async def test_data_files_that_are_missing_or_of_another_size_are_named(warehouse: Warehouse) -> None:
    replica, log = await table_with(warehouse, "avro")
    place = log.removesuffix("_transaction_log/")
    await warehouse.store.delete(f"{place}f1")
    warehouse.store.overwrite(f"{place}f3", b"short")
    await warehouse.store.put(f"{place}stray", b"")
    check = next(one for one in (await replica.verifying.verify(ORDERS)).checks if one.name == "data-files")
    assert not check.ok
    assert "f1" in check.detail
    assert "f3 has 5 bytes instead of 10" in check.detail
    assert "stray" not in check.detail


async def test_encoded_paths_and_many_files(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    place = view.location.removeprefix("memory://w/")
    names = ["a b", "d%C3%BC", *(f"f{number}" for number in range(2500)), "zz"]
    for name in names:
        await warehouse.store.put(f"{place}/{name.replace('%C3%BC', 'ü')}", b"x" * 10)
    await commit(replica, *(add_line(name.replace(" ", "%20")) for name in names))
    assert (await replica.verifying.verify(ORDERS)).status == "success"


@pytest.mark.parametrize("later", [False, True])
async def test_a_state_that_is_whole_but_wrong_is_found_and_replaced(warehouse: Warehouse, later: bool) -> None:
    """A state with the right checksums of the wrong files: only replay can tell."""
    replica, _ = await table_with(warehouse, "avro", commits=4)
    live = replica.open_tables.opened()[0].live
    right = live.tracker.head
    live.tracker.head = dataclasses.replace(
        right, length=right.length - 1, num_files=right.num_files - 1, total_bytes=right.total_bytes - 10
    )
    live.base = None
    await replica.checkpoints.compact(ORDERS)
    live.tracker.head = right
    view = await warehouse.replica().verifying.verify(ORDERS)
    assert "state-equals-replay" in failed(view)
    if later:
        await commit(replica, add_line("f9"))
        await replica.checkpoints.checkpoint(ORDERS)
    misled = warehouse.replica()
    assert len(await files(misled)) == len(right.files) - 1 + later, "it was opened from what is wrong"
    fixed = await misled.repairing.repair(ORDERS)
    assert fixed.status == "success", fixed
    expected = ["f1", "f2", "f3", "f4", *(["f9"] if later else [])]
    for reader in (misled, warehouse.replica()):
        assert sorted(await files(reader)) == expected


async def test_a_commit_id_that_is_there_twice_is_found(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    log = warehouse.log(await create(replica))
    await commit(replica, add_line("a"))
    info, line = (json.loads(line) for line in warehouse.store.raw(version_key(log, 1)).splitlines())
    for member in ("crc32", "version", "previousPutId"):  # as in files of the first release
        del info["commitInfo"][member]
    data = b"\n".join(json.dumps(one).encode() for one in (info, line))
    await warehouse.store.put(version_key(log, 2), data)
    view = await warehouse.replica().verifying.verify(ORDERS)
    check = next(check for check in view.checks if check.name == "commit-ids-unique")
    assert (check.ok, check.detail) == (False, "one id in the versions 1, 2")


async def test_a_writer_that_did_not_stop_fails_the_audit_and_is_left_alone(warehouse: Warehouse) -> None:
    writer = await field_table(warehouse.store, "lake/events", "B")
    replica = warehouse.replica()
    await register(replica, "raw.events", "memory://w/lake/events", stopped=True)
    warehouse.world.advance(1)
    await writer.commit("theirs.split")
    theirs = warehouse.store.raw(writer.log.state_manifest_avro(12))
    view = await replica.verifying.verify(EVENTS)
    assert {"foreign-writers", "states-for-other-readers"} <= failed(view)
    with refused("foreign-writer-detected"):
        await replica.repairing.repair(EVENTS)
    assert warehouse.store.raw(writer.log.state_manifest_avro(12)) == theirs


async def test_a_hint_that_names_what_is_not_there_stops_commits_until_it_is_repaired(warehouse: Warehouse) -> None:
    """It cannot be told from another writer's; but no state is behind it, so nothing is lost with it."""
    await field_table(warehouse.store, "lake/events", "B")
    replica = warehouse.replica()
    await register(replica, "raw.events", "memory://w/lake/events", stopped=True)
    key = "lake/events/_transaction_log/_last_checkpoint"
    warehouse.store.overwrite(key, warehouse.store.raw(key).replace(b'"version":12', b'"version":92'))
    warehouse.world.advance(61)
    assert isinstance(await send(replica, add_line("x"), to=EVENTS), Rejected)
    assert (await replica.repairing.repair(EVENTS)).status == "success"
    warehouse.world.advance(61)
    await commit(replica, add_line("x"), to=EVENTS)


# crashes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["avro", "parquet"])
async def test_a_repair_may_be_cut_off_between_any_two_calls(warehouse: Warehouse, form: str) -> None:
    _, log = await table_with(warehouse, form)
    healthy = objects(warehouse, log)
    states = [key for key in healthy if not is_version(log, key) and "last" not in key]
    victim = next(key for key in states if key.endswith(("_manifest.json", ".checkpoint.json")))
    expected = sorted(await files(warehouse.replica()))
    done = False
    calls = 0
    while not done:
        warehouse.store.overwrite(victim, healthy[victim][:9])
        with CutOff(warehouse, calls):
            try:
                await warehouse.replica().repairing.repair(ORDERS)
                done = True
            except ProblemError as problem:
                if problem.slug != "storage-unavailable":
                    raise
        assert sorted(await files(warehouse.replica())) == expected, f"cut off at call {calls}"
        fixed = await warehouse.replica().repairing.repair(ORDERS)
        assert fixed.status == "success", (calls, fixed)
        now = objects(warehouse, log)
        assert all(now[key] == data for key, data in healthy.items() if is_version(log, key))
        for name in [name for name in now if name not in healthy]:
            await warehouse.store.delete(name)
        for name, data in healthy.items():
            warehouse.store.overwrite(name, data)
        calls += 1
    assert calls > 5


class CutOff:
    """The store takes so many changes, then none."""

    def __init__(self, warehouse: Warehouse, calls: int) -> None:
        self._store: Any = warehouse.store
        self._left = calls

    def __enter__(self) -> None:
        for name in ("put", "put_if_absent", "delete"):
            real = getattr(self._store, name)

            async def counted(key: str, *rest: Any, real: Any = real) -> Any:
                if self._left <= 0:
                    raise StoreUnavailable("cut off", key=key)
                self._left -= 1
                return await real(key, *rest)

            setattr(self._store, name, counted)

    def __exit__(self, *_: object) -> None:
        for name in ("put", "put_if_absent", "delete"):
            delattr(self._store, name)


# by itself ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMATS)
async def test_a_state_that_was_passed_over_is_due_for_repair_once(warehouse: Warehouse, form: str) -> None:
    _, log = await table_with(warehouse, form)
    key = next(
        key
        for key in reversed(warehouse.store.keys(log))
        if f"{12:020d}" in key and key.endswith(("_manifest.json", ".checkpoint.json"))
    )
    warehouse.store.overwrite(key, b"")
    replica = warehouse.replica()
    expected = sorted(await files(replica))
    table = replica.open_tables.opened()[0]
    reason = replica.checkpoints.due(table)
    assert reason is not None
    assert reason.value == "repair"
    assert await replica.checkpoints.keep(table, reason)
    assert replica.checkpoints.due(table) is None
    reopened = warehouse.replica()
    assert sorted(await files(reopened)) == expected
    assert replica.checkpoints.due(reopened.open_tables.opened()[0]) is None
    assert (await reopened.verifying.verify(ORDERS)).status == "success"
