"""Taking up a log that is already there: one that other software wrote, and one of ours that was dropped."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any
from unittest import mock

import msgspec
import pytest

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import PlanRequest
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.usecases import avro_state, partial_scan, state_entries
from tarnlog_server.usecases.catalog import Sees, everything
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.packing import pack
from tests.usecases.replicas import (
    ORDERS,
    START_MS,
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

PLACE = "memory://w/lake/events"
LOG = "lake/events/_transaction_log/"
SCHEMA_STRING = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
FOREIGN: list[list[dict[str, Any]]] = [
    [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "foreign-id",
                "name": "events",
                "format": {"provider": "indextables", "options": {}},
                "schemaString": SCHEMA_STRING,
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 5,
                "owner": "ops",
            }
        },
    ],
    [add_line("a.split", hasFooterOffsets=None), add_line("s3://elsewhere/b.split")],
    [remove_line("a.split"), add_line("c.split"), {"txn": {"appId": "job", "version": 3}}],
    [{"mergeskip": {"path": "c.split", "skipTimestamp": 1, "reason": "r", "operation": "merge", "retryAfter": 9}}],
]


async def write_foreign(warehouse: Warehouse, log: str = LOG, versions: list[list[dict[str, Any]]] = FOREIGN) -> None:
    """A log as an old release left it: N.json each commit, no commitInfo, a JSON checkpoint beside them."""
    for number, actions in enumerate(versions):
        text = b"\n".join(msgspec.json.encode(action) for action in actions) + b"\n"
        warehouse.world.advance(1)
        await warehouse.store.put(version_key(log, number), gzip.compress(text) if number == 1 else text)
    await warehouse.store.put(f"{log}00000000000000000002.checkpoint.json", b'{"not":"looked at"}\n')
    await warehouse.store.put(f"{log}_last_checkpoint", b'{"version":2,"size":4}')


EVENTS = TableName("raw", "events")


async def test_a_foreign_log_is_served_read_only(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    before = {key: warehouse.store.raw(key) for key in warehouse.store.keys(LOG)}
    replica = warehouse.replica()
    view = await register(replica, "raw.events", PLACE)
    assert (view.id, view.version, view.read_only, view.num_files) == ("foreign-id", 3, True, 2)
    assert view.location == PLACE
    assert await files(replica, EVENTS) == ["s3://elsewhere/b.split", "c.split"], "absolute paths are kept"
    assert (await replica.snapshots.txn(EVENTS, "job", None)).version == 3
    assert [skip.path for skip in await replica.skips.all(EVENTS, None)] == ["c.split"]
    for act in (
        lambda: send(replica, add_line("x"), to=EVENTS),
        lambda: replica.tables.alter(EVENTS, set_properties(a="1")),
    ):
        with refused("table-read-only"):
            await act()
    assert {key: warehouse.store.raw(key) for key in warehouse.store.keys(LOG)} == before, "nothing was written to it"
    history = await replica.history.commits(EVENTS, None, None, "asc", 10, None)
    assert [(one.version, one.commit_id, one.is_blind_append) for one in history.commits] == [
        (n, None, False) for n in range(4)
    ]
    other = warehouse.replica()
    assert (await other.tables.describe(EVENTS)).read_only


async def test_times_of_a_log_without_times_grow_strictly(warehouse: Warehouse) -> None:
    """max(the object's own time, the previous one + 1)."""
    for number, actions in enumerate(FOREIGN):
        await warehouse.store.put(version_key(LOG, number), b"\n".join(map(msgspec.json.encode, actions)))
        if number == 1:
            warehouse.world.advance(10)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    history = await replica.history.commits(EVENTS, None, None, "asc", 10, None)
    expected = [START_MS, START_MS + 1, START_MS + 10_000, START_MS + 10_001]
    assert [one.timestamp for one in history.commits] == expected
    for version, timestamp in enumerate(expected):
        found = await replica.snapshots.snapshot(EVENTS, None, timestamp, None)
        assert (found.version, found.timestamp) == (version, timestamp)
    with refused("version-expired"):
        await replica.snapshots.snapshot(EVENTS, None, START_MS - 1, None)


async def test_adoption_writes_the_next_version_and_goes_on_from_there(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    replica = warehouse.replica()
    view = await register(replica, "raw.events", PLACE, stopped=True)
    assert (view.version, view.read_only, view.id) == (4, False, "foreign-id")
    first, raised = map(msgspec.json.decode, warehouse.store.raw(version_key(LOG, 4)).splitlines())
    info = first["commitInfo"]
    assert raised["protocol"]["minWriterVersion"] == 4, "it gets Avro states"
    assert info["adoptedFrom"] == 3
    assert [sub["operation"] for sub in info["subCommits"]] == ["REGISTER"]
    done = await commit(replica, add_line("mine"), to=EVENTS)
    assert done.version == 5
    after = await replica.tables.alter(EVENTS, set_properties(checkpoint__interval="5"))
    assert after.properties == {"checkpoint.interval": "5"}
    written = warehouse.store.raw(version_key(LOG, 6)).splitlines()[1]
    assert msgspec.json.decode(written)["metaData"]["owner"] == "ops", "what we do not know survives"
    assert await files(warehouse.replica(), EVENTS) == ["s3://elsewhere/b.split", "c.split", "mine"]


async def test_dropping_a_read_only_table_frees_its_name_and_leaves_its_log(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    replica = warehouse.replica()
    await register(replica, "raw.events", PLACE)
    before = {key: warehouse.store.raw(key) for key in warehouse.store.keys(LOG)}
    with refused("table-read-only"):
        await replica.tables.drop(EVENTS, purge_files=True)
    await replica.tables.drop(EVENTS)
    with refused("table-not-found"):
        await replica.tables.describe(EVENTS)
    assert {key: warehouse.store.raw(key) for key in warehouse.store.keys(LOG)} == before
    assert (await register(replica, "raw.events", PLACE)).version == 3


async def test_time_travel_to_now_sees_what_another_replica_just_committed(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    here, there = warehouse.replica(), warehouse.replica()
    await register(here, "raw.events", PLACE, stopped=True)
    await there.tables.describe(EVENTS)
    done = await commit(here, add_line("new"), to=EVENTS)
    found = await there.snapshots.snapshot(EVENTS, None, done.timestamp, None)
    assert found.version == done.version


async def test_a_read_only_table_can_be_adopted_later(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    replica, other = warehouse.replica(), warehouse.replica()
    await register(replica, "raw.events", PLACE)
    await other.tables.describe(EVENTS)
    view = await register(replica, "raw.events", PLACE, stopped=True)
    assert (view.version, view.read_only) == (4, False)
    assert isinstance(await send(replica, add_line("x"), to=EVENTS), Committed)
    warehouse.world.advance(61)
    assert isinstance(await send(other, add_line("y"), to=EVENTS), Committed), "another replica learns of it"


@pytest.mark.parametrize(
    "newest", ["state-v00000000000000000004/_manifest.avro", "state-v00000000000000000009/_manifest.json"]
)
async def test_a_newest_version_that_cannot_be_read_is_passed_over_but_never_built_on(
    warehouse: Warehouse, newest: str
) -> None:
    await write_foreign(warehouse)
    await warehouse.store.put(LOG + newest, b"Obj")
    with refused("log-corrupt", "newest version") as caught:
        await register(warehouse.replica(), "raw.events", PLACE, stopped=True)
    assert caught.value.fields["object"].startswith(LOG + newest.partition("/")[0])
    assert warehouse.store.keys("_catalog/") == []
    assert (await register(warehouse.replica(), "raw.events", PLACE)).version == 3


async def test_a_state_of_a_known_version_is_fine(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    await warehouse.store.put(f"{LOG}state-v00000000000000000003/_manifest.avro", b"Obj")
    assert (await register(warehouse.replica(), "raw.events", PLACE)).version == 3


@pytest.mark.parametrize(
    "versions, slug",
    [
        ([], "log-not-supported"),
        ([FOREIGN[1]], "log-not-supported"),
        ([[{"protocol": {"minReaderVersion": 9, "minWriterVersion": 2}}, FOREIGN[0][1]]], "protocol-not-supported"),
        (
            [[{"protocol": {"minReaderVersion": 2, "minWriterVersion": 2, "readerFeatures": ["x"]}}, FOREIGN[0][1]]],
            "protocol-not-supported",
        ),
    ],
    ids=["nothing", "no metaData", "newer", "feature"],
)
async def test_logs_that_cannot_be_served(
    warehouse: Warehouse, versions: list[list[dict[str, Any]]], slug: str
) -> None:
    for number, actions in enumerate(versions):
        await warehouse.store.put(version_key(LOG, number), b"\n".join(map(msgspec.json.encode, actions)))
    with refused(slug):
        await register(warehouse.replica(), "raw.events", PLACE)
    assert warehouse.store.keys("_catalog/") == []


async def test_a_log_that_may_be_read_but_not_written_is_not_adopted(warehouse: Warehouse) -> None:
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 7}}
    await write_foreign(warehouse, versions=[[protocol, FOREIGN[0][1]], *FOREIGN[1:]])
    replica = warehouse.replica()
    with refused("protocol-not-supported", "writer version 7"):
        await register(replica, "raw.events", PLACE, stopped=True)
    assert (await register(replica, "raw.events", PLACE)).read_only


async def test_a_gap_in_the_versions_is_named(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    await warehouse.store.delete(version_key(LOG, 1))
    with refused("log-corrupt") as caught:
        await register(warehouse.replica(), "raw.events", PLACE)
    assert caught.value.fields["object"] == version_key(LOG, 1)


async def test_a_dropped_table_is_registered_again(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    await commit(replica, add_line("x"))
    await replica.tables.drop(ORDERS)
    with refused("log-not-supported", "dropped"):
        await register(replica, "sales.again", view.location)
    back = await register(replica, "sales.again", view.location, stopped=True)
    assert (back.id, back.version, back.num_files) == (view.id, 3, 1)
    again = TableName("sales", "again")
    assert (await commit(replica, add_line("y"), to=again)).version == 4
    assert await files(warehouse.replica(), again) == ["x", "y"]
    # The same name works as well.
    await replica.tables.drop(again)
    assert (await register(warehouse.replica(), "sales.orders", view.location, stopped=True)).id == view.id


async def test_names_and_places_are_checked(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    replica = warehouse.replica()
    await create(replica)
    with refused("table-exists"):
        await register(replica, "sales.orders", PLACE)
    with refused("table-name-invalid"):
        await register(replica, "..", PLACE)
    with refused("location-not-allowed"):
        await register(replica, "raw.events", "file:///etc")
    await register(replica, "raw.events", PLACE)
    for place in (PLACE, PLACE + "/inside", "memory://w/lake"):
        with refused("location-overlap"):
            await register(replica, "raw.twice", place)


async def test_one_log_registered_under_two_names_at_once_gets_one_of_them(warehouse: Warehouse) -> None:
    await write_foreign(warehouse)
    replicas = [warehouse.replica() for _ in range(2)]
    looked = asyncio.Barrier(2)
    for replica in replicas:
        original = replica.tables.refuse_overlap

        async def wait_then(uri: str, sees: Sees = everything, original: Any = original) -> None:
            await original(uri, sees)
            await looked.wait()

        replica.tables.refuse_overlap = wait_then  # type: ignore[method-assign]
    results = await asyncio.gather(
        *(register(replica, f"raw.name{n}", PLACE) for n, replica in enumerate(replicas)), return_exceptions=True
    )
    lost = [result for result in results if isinstance(result, BaseException)]
    assert [error.slug for error in lost if isinstance(error, ProblemError)] == ["location-overlap"]
    listed = await warehouse.replica().tables.list(None, 10, None)
    assert len(listed.tables) == 1
    assert (await warehouse.replica().tables.describe(TableName.parse(listed.tables[0].name))).version == 3


async def test_values_under_another_spelling_of_a_partition_column_are_planned(warehouse: Warehouse) -> None:
    """Other writers are not held to the spelling of the metadata, and readers do not go by it either."""
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "Day")
    ]
    schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
    protocol, metadata = FOREIGN[0]
    metadata = {"metaData": {**metadata["metaData"], "schemaString": schema, "partitionColumns": ["Day"]}}
    days = [{"Day": "1"}, {"day": "2"}, {"DAY": "1"}, {"Day": None}, {"Day": "2"}]
    lines = [add_line(f"f{number}", partitionValues=values) for number, values in enumerate(days)]
    await write_foreign(warehouse, versions=[[protocol, metadata], lines[:2], lines[2:4], lines[4:]])
    replica = warehouse.replica(columns=DataFusionColumns())
    await register(replica, "raw.events", PLACE, stopped=True)

    async def planned(by: Coordinator, text: str) -> list[str]:
        page = await by.plans.page(EVENTS, PlanRequest(filter=text), None)
        return [file.path for file in page.files]

    async def check(by: Coordinator) -> None:
        assert await planned(by, "day = '1'") == ["f0", "f2"]
        assert await planned(by, "DAY > '1'") == ["f1", "f4"]
        assert await planned(by, "day IS NULL") == ["f3"]
        assert await planned(by, "day IS NOT NULL AND day <> '1'") == ["f1", "f4"]

    await check(replica)
    await pack((await replica.open_tables.get(EVENTS)).live)
    await check(replica)
    with mock.patch.object(avro_state, "FEW", -1):
        await replica.checkpoints.checkpoint(EVENTS, "avro")
    with mock.patch.object(state_entries, "COLUMNS_FROM", 1):
        later = warehouse.replica(columns=DataFusionColumns())
        await check(later)
        cold = warehouse.replica(columns=DataFusionColumns())
        cold.plans.cold.from_files = 1
        with mock.patch.object(partial_scan, "MOST_SHARE", 1):
            assert await planned(cold, "day = '1'") == ["f0", "f2"]


async def test_pages_of_a_log_whose_versions_are_gone_are_refused_and_never_lose_files(warehouse: Warehouse) -> None:
    """One replica replayed the log, the next one only finds a checkpoint, which does not tell who added what."""
    lines = [[add_line(f"f{9 - version}{number}.split") for number in range(3)] for version in range(5)]
    versions = [FOREIGN[0], *lines]
    for number, actions in enumerate(versions):
        await warehouse.store.put(version_key(LOG, number), b"\n".join(map(msgspec.json.encode, actions)))
    first = warehouse.replica()
    await register(first, "raw.events", PLACE)
    asked = PlanRequest(limit=4)
    planned = (await first.plans.page(EVENTS, asked, None)).next
    explained = (await first.plans.page(EVENTS, msgspec.structs.replace(asked, explain=True), None)).next
    listed = (await first.snapshots.files(EVENTS, None, None, None, 4, None)).next
    everything = [action for actions in versions[:5] for action in actions]
    checkpoint = b"\n".join(map(msgspec.json.encode, everything))
    await warehouse.store.put(f"{LOG}00000000000000000004.checkpoint.json", checkpoint)
    await warehouse.store.put(f"{LOG}_last_checkpoint", b'{"version":4,"size":14}')
    for number in range(4):
        await warehouse.store.delete(version_key(LOG, number))
    second = warehouse.replica()
    with refused("request-invalid", "another order"):
        await second.plans.page(EVENTS, msgspec.structs.replace(asked, cursor=planned), None)
    with refused("request-invalid", "another order"):
        await second.plans.page(EVENTS, msgspec.structs.replace(asked, cursor=explained, explain=True), None)
    with refused("request-invalid", "another order"):
        await second.snapshots.files(EVENTS, None, None, None, 4, listed)
    told: list[str] = []
    cursor: str | None = None
    while cursor is not None or not told:
        page = await second.plans.page(EVENTS, msgspec.structs.replace(asked, cursor=cursor), None)
        told += [file.path for file in page.files]
        cursor = page.next
        second = warehouse.replica()
    assert sorted(told) == sorted(line["add"]["path"] for version in lines for line in version)
