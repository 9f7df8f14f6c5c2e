"""Tables by name: their life from create to re-create, races for a name, and the places they may lie in."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable, PropertyChanges
from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.usecases.catalog import Sees, everything
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.replicas import (
    ORDERS,
    SCHEMA,
    START_MS,
    FakeWorld,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    remove_line,
    request,
    send,
    set_properties,
    version_key,
)


async def test_a_new_table(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(
        replica, description="all orders", partition_columns=("note",), properties={"checkpoint.interval": "20"}
    )
    assert view == await replica.tables.describe(ORDERS)
    assert (view.name, view.version, view.schema) == ("sales.orders", 0, SCHEMA)
    assert (view.partition_columns, view.description) == (("note",), "all orders")
    assert view.properties == {"checkpoint.interval": "20"}
    assert view.protocol == {"minReaderVersion": 4, "minWriterVersion": 4}
    assert (view.num_files, view.total_bytes, view.num_records, view.read_only) == (0, 0, 0, False)
    assert view.created_time == START_MS
    assert view.location == f"memory://w/sales/orders-{view.id}", "the place holds the table's id"
    # The truth is in storage: version 0 is protocol, then metaData; the catalog entry comes after it.
    lines = warehouse.store.raw(version_key(warehouse.log(view), 0)).splitlines()
    assert [next(iter(msgspec.json.decode(line))) for line in lines] == ["commitInfo", "protocol", "metaData"]
    entry = msgspec.json.decode(warehouse.store.raw("_catalog/sales/orders/00000000000000000000.json"))
    assert entry == {"id": view.id, "location": f"sales/orders-{view.id}"}


async def test_another_replica_sees_it_at_once(warehouse: Warehouse) -> None:
    view = await create(warehouse.replica())
    assert await warehouse.replica().tables.describe(ORDERS) == view


@pytest.mark.parametrize(
    "fields, slug",
    [
        ({"name": "*"}, "table-name-invalid"),
        ({"name": ".."}, "table-name-invalid"),
        ({"name": "a." + "b" * 1024}, "table-name-invalid"),
        ({"name": "a.b\n"}, "table-name-invalid"),
        ({"name": "a.b.c"}, "table-name-invalid"),
        ({"schema": {}}, "schema-invalid"),
        ({"schema": {"type": "struct", "fields": []}}, "schema-invalid"),
        ({"partition_columns": ("nope",)}, "schema-invalid"),
        ({"partition_columns": ("id", "id")}, "schema-invalid"),
        ({"properties": {"checkpoint.interval": "0"}}, "property-invalid"),
        ({"properties": {"commit.coalesce": "perhaps"}}, "property-invalid"),
    ],
)
async def test_a_bad_table_leaves_nothing_behind(warehouse: Warehouse, fields: dict[str, Any], slug: str) -> None:
    with refused(slug):
        await create(warehouse.replica(), **fields)
    assert warehouse.store.keys() == []


async def test_names_are_taken_once(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    with refused("table-exists"):
        await create(replica)
    with refused("table-exists"):
        await create(warehouse.replica())
    await create(replica, "sales.Orders")


async def test_a_table_that_is_not_there(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    nobody = TableName("no", "body")
    with refused("table-not-found"):
        await replica.tables.describe(nobody)
    with refused("table-not-found"):
        await replica.tables.drop(nobody)
    with refused("table-not-found"):
        await replica.commits.commit(nobody, request(add_line("x")))


async def test_listing_pages_through_all_names(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    names = ["a.one", "a.two", "a-b.x", "b.one", "B.one", "a.three"]
    for name in names:
        await create(replica, name)
    await create(replica, "a.gone")
    await replica.tables.drop(TableName("a", "gone"))
    whole = [ref.name for ref in (await replica.tables.list(None, 100, None)).tables]
    assert whole == sorted(names, key=lambda name: tuple(name.split(".")))
    for limit in range(1, 8):
        found: list[str] = []
        cursor = None
        while True:
            page = await warehouse.replica().tables.list(None, limit, cursor)
            found += [ref.name for ref in page.tables]
            cursor = page.next
            if cursor is None:
                break
        assert found == whole, limit
    only_a = [ref.name for ref in (await replica.tables.list("a", 100, None)).tables]
    assert only_a == ["a.one", "a.three", "a.two"]
    assert (await replica.tables.list("nothing", 100, None)).tables == ()
    with refused("table-name-invalid"):
        await replica.tables.list("*", 100, None)
    with refused("request-invalid"):
        await replica.tables.list(None, 100, "!!!")


@pytest.mark.parametrize("name", ["no dots", "a.b.c", "*", ""])
async def test_a_forged_list_cursor_is_refused(warehouse: Warehouse, name: str) -> None:
    forged = base64.urlsafe_b64encode(msgspec.json.encode({"n": name})).decode().rstrip("=")
    with refused("request-invalid"):
        await warehouse.replica().tables.list(None, 10, forged)


# alter --------------------------------------------------------------------------------------------------------------
async def test_alter_changes_only_what_is_named(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    first = await create(replica, description="old", properties={"mine": "1", "yours": "2"})
    view = await replica.tables.alter(
        ORDERS, AlterTable(properties=PropertyChanges(set={"mine": "9"}, unset=("yours", "nobodys")))
    )
    assert (view.version, view.properties, view.description, view.id) == (1, {"mine": "9"}, "old", first.id)
    view = await replica.tables.alter(ORDERS, AlterTable(description=None))
    assert (view.version, view.description, view.properties) == (2, None, {"mine": "9"})
    longer = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    view = await replica.tables.alter(ORDERS, AlterTable(schema=longer))
    assert (view.version, view.schema) == (3, longer)
    history = await replica.history.commits(ORDERS, None, None, "asc", 100, None)
    assert [one.operation for one in history.commits] == [
        "CREATE TABLE",
        "SET TBLPROPERTIES",
        "ALTER TABLE",
        "CHANGE SCHEMA",
    ]


async def test_what_alter_refuses_changes_nothing(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    before = await create(replica)
    narrower = {**SCHEMA, "fields": SCHEMA["fields"][:1]}
    for change, slug in (
        (AlterTable(schema=narrower), "schema-change-not-allowed"),
        (AlterTable(schema={"type": "nonsense"}), "schema-invalid"),
        (set_properties(checkpoint__interval="-1"), "property-invalid"),
        (AlterTable(commit_id="not-an-id", description="x"), "commit-invalid"),
        (AlterTable(read_version=7, description="x"), "commit-invalid"),
    ):
        with refused(slug):
            await replica.tables.alter(ORDERS, change)
    assert await replica.tables.describe(ORDERS, 0) == before


async def test_two_patches_of_different_keys_at_once_both_hold(warehouse: Warehouse) -> None:
    """On one replica, and on two that know nothing of each other."""
    one, other = warehouse.replica(), warehouse.replica()
    await create(one)
    await other.tables.describe(ORDERS)
    await asyncio.gather(
        one.tables.alter(ORDERS, set_properties(a="1")),
        one.tables.alter(ORDERS, set_properties(b="2")),
        other.tables.alter(ORDERS, set_properties(c="3")),
        other.tables.alter(ORDERS, AlterTable(description="d")),
    )
    view = await one.tables.describe(ORDERS, 0)
    assert (view.version, view.properties, view.description) == (4, {"a": "1", "b": "2", "c": "3"}, "d")


async def test_a_patch_is_sent_again_with_its_id(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    made = str(warehouse.world.uuid7())
    change = msgspec.structs.replace(set_properties(a="1"), commit_id=made)
    first = await replica.tables.alter(ORDERS, change)
    await replica.tables.alter(ORDERS, set_properties(b="2"))
    again = await warehouse.replica().tables.alter(ORDERS, change)
    assert (first.version, again.version) == (1, 2), "nothing was written again"
    with refused("commit-id-reused"):
        await replica.tables.alter(ORDERS, msgspec.structs.replace(set_properties(a="2"), commit_id=made))


async def test_a_patch_on_an_old_version_conflicts_with_a_newer_change(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await replica.tables.alter(ORDERS, set_properties(a="1"))
    with refused("commit-conflict") as caught:
        await replica.tables.alter(ORDERS, AlterTable(read_version=0, description="x"))
    assert caught.value.fields["rule"] == "metadata"
    assert [one["version"] for one in caught.value.fields["winners"]] == [1]
    await commit(replica, add_line("x"))
    view = await replica.tables.alter(ORDERS, AlterTable(read_version=1, description="x"))
    assert (view.version, view.description) == (3, "x")


async def test_a_commit_that_removes_every_file_may_set_another_schema(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("old"), add_line("other"))
    view = await replica.tables.describe(ORDERS)
    other = {"type": "struct", "fields": [{"name": "new", "type": "string", "nullable": True, "metadata": {}}]}
    meta = {"metaData": _meta_data(view, other)}
    outcome = await send(replica, meta, remove_line("old"), add_line("new"), readVersion=1)
    assert isinstance(outcome, Rejected)
    assert str(outcome.problem["type"]).endswith("schema-change-not-allowed")
    await commit(replica, meta, remove_line("old"), remove_line("other"), add_line("new"), readVersion=1)
    view = await replica.tables.describe(ORDERS)
    assert [field["name"] for field in view.schema["fields"]] == ["new"]
    assert await files(replica) == ["new"]
    await commit(replica, remove_line("new"), readVersion=2)
    last = {"type": "struct", "fields": [{"name": "last", "type": "long", "nullable": True, "metadata": {}}]}
    await commit(replica, {"metaData": _meta_data(view, last)}, add_line("last"), readVersion=3)
    view = await replica.tables.describe(ORDERS)
    assert [field["name"] for field in view.schema["fields"]] == ["last"], "an empty table has none to remove"


def _meta_data(view: Any, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": view.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": msgspec.json.encode(schema).decode(),
        "partitionColumns": list(view.partition_columns),
        "configuration": view.properties,
    }


# drop and create again ----------------------------------------------------------------------------------------------
async def test_drop_is_a_commit_and_the_name_is_free(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    first = await create(replica)
    await commit(replica, add_line("x"))
    await replica.tables.drop(ORDERS)
    with refused("table-not-found"):
        await replica.tables.describe(ORDERS)
    info = msgspec.json.decode(warehouse.store.raw(version_key(warehouse.log(first), 2)))["commitInfo"]
    assert [sub["operation"] for sub in info["subCommits"]] == ["DROP"]
    second = await create(replica)
    assert second.id != first.id
    assert second.location != first.location
    assert (second.version, second.num_files) == (0, 0)
    assert await files(replica) == []


async def test_create_and_drop_many_times(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    seen = set()
    for _ in range(5):
        seen.add((await create(replica)).id)
        await replica.tables.drop(ORDERS)
    assert len(seen) == 5
    assert len(warehouse.store.keys("_catalog/sales/orders/")) == 10


async def test_a_stale_replica_learns_of_a_table_dropped_and_created_again(warehouse: Warehouse) -> None:
    one, stale = warehouse.replica(), warehouse.replica()
    old = await create(one)
    await commit(stale, add_line("before"))
    await one.tables.drop(ORDERS)
    new = await create(one)
    assert new.id != old.id
    # A blind append through the stale replica goes to the table that has the name now.
    done = await commit(stale, add_line("after"))
    assert done.version == 1
    assert await files(one) == ["after"]
    assert (await stale.tables.describe(ORDERS)).id == new.id


async def test_a_commit_planned_on_the_dropped_table_is_refused(warehouse: Warehouse) -> None:
    one, stale = warehouse.replica(), warehouse.replica()
    await create(one)
    await commit(stale, add_line("before"))
    await one.tables.drop(ORDERS)
    await create(one)
    outcome = await send(stale, add_line("after"), readVersion=1, reads={"wholeTable": True})
    assert isinstance(outcome, Rejected)
    assert outcome.problem["type"].endswith("table-not-found")
    assert await files(one) == []


async def test_a_drop_that_was_cut_off_is_completed_by_the_next_create(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    first = await create(replica)
    table = await replica.open_tables.get(ORDERS)

    async def crash(*_: Any) -> None:
        raise asyncio.CancelledError

    replica.tables.mark_dropped = crash  # type: ignore[method-assign,assignment]
    with pytest.raises(asyncio.CancelledError):
        await replica.tables.drop(ORDERS)
    assert table.live.head.dropped
    other = warehouse.replica()
    with refused("table-not-found"):
        await other.tables.describe(ORDERS)
    second = await create(other)
    assert second.id != first.id


# races --------------------------------------------------------------------------------------------------------------
async def _outcomes(*calls: Any) -> tuple[list[Any], list[str]]:
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ProblemError):
            raise result
    return [r for r in results if not isinstance(r, ProblemError)], [
        r.slug for r in results if isinstance(r, ProblemError)
    ]


async def test_of_two_replicas_creating_one_name_one_wins(warehouse: Warehouse) -> None:
    replicas = [warehouse.replica() for _ in range(4)]
    # Everybody looks at the catalog before anybody writes to it.
    free = asyncio.Barrier(4)
    for replica in replicas:
        original = replica.tables.refuse_overlap

        async def wait_then(uri: str, sees: Sees = everything, original: Any = original) -> None:
            await original(uri, sees)
            await free.wait()

        replica.tables.refuse_overlap = wait_then  # type: ignore[method-assign]
    won, lost = await _outcomes(*(create(replica) for replica in replicas))
    assert len(won) == 1
    assert lost == ["table-exists"] * 3
    views = [await replica.tables.describe(ORDERS, 0) for replica in replicas]
    assert {view.id for view in views} == {won[0].id}
    for replica in replicas:
        assert isinstance(await send(replica, add_line(f"{id(replica)}")), Committed)
    assert len(await files(replicas[0])) == 4


@pytest.mark.parametrize(
    "places",
    [("memory://w/x/t", "memory://w/x/t"), ("memory://w/x/t", "memory://w/x/t/in"), ("memory://w/x", "memory://w/x/t")],
)
async def test_of_two_tables_taking_one_place_at_the_same_time_one_wins(
    warehouse: Warehouse, places: tuple[str, str]
) -> None:
    replicas = [warehouse.replica() for _ in range(2)]
    looked = asyncio.Barrier(2)
    for replica in replicas:
        original = replica.tables.refuse_overlap

        async def wait_then(uri: str, sees: Sees = everything, original: Any = original) -> None:
            await original(uri, sees)
            await looked.wait()

        replica.tables.refuse_overlap = wait_then  # type: ignore[method-assign]
    won, lost = await _outcomes(
        *(
            create(replica, f"a.t{n}", location=place)
            for n, (replica, place) in enumerate(zip(replicas, places, strict=True))
        )
    )
    assert len(won) == 1
    assert lost[0] in ("location-overlap", "location-not-empty")
    listed = await warehouse.replica().tables.list(None, 10, None)
    assert [ref.name for ref in listed.tables] == [won[0].name]


# places -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "location",
    [
        "memory://w/../x",
        "memory://w/a/../../x",
        "memory://w/a/./b",
        "memory://w/%2e%2e/x",
        "memory://w/a%2fb",
        "memory://w//a",
        "memory://w",
        "memory://w/",
        "memory://other/a",
        "memory://ww/a",
        "memory://w_/a",
        "memory://w/_catalog/a",
        "memory://w/_anything",
        "memory://w/a?b",
        "memory://w/a#b",
        "memory://w/a\\b",
        "memory://w/a\nb",
        "memory://w/a\x00",
        "memory://w/\ud800",
        "file:///etc",
        "file:///tmp/elsewhere",
        "file://host/tmp",
        "/etc",
        "relative/path",
        "s3://bucket/x",
        "",
        "memory://w/" + "x" * 2000,
    ],
)
async def test_places_outside_the_roots_are_refused(warehouse: Warehouse, location: str) -> None:
    with refused("location-not-allowed"):
        await create(warehouse.replica(), location=location)
    assert warehouse.store.keys() == []


async def test_places_are_compared_by_components(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    first = await create(replica, "a.t1", location="memory://w/data/t1/")
    assert first.location == "memory://w/data/t1"
    assert (await create(replica, "a.t10", location="memory://w/data/t10")).location == "memory://w/data/t10"
    assert (await create(replica, "a.t", location="memory://w/data/t")).location == "memory://w/data/t"
    for name, inside in (("a.x", "memory://w/data/t1"), ("a.x", "memory://w/data/t1/sub"), ("a.x", "memory://w/data")):
        with refused("location-overlap"):
            await create(replica, name, location=inside)
        with refused("location-overlap"):
            await create(warehouse.replica(), name, location=inside)


async def test_a_place_is_free_again_after_a_drop_but_not_its_log(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, location="memory://w/data/t1")
    await replica.tables.drop(ORDERS)
    with refused("location-not-empty"):
        await create(replica, location="memory://w/data/t1")


async def test_a_place_with_any_log_object_is_refused(warehouse: Warehouse) -> None:
    await warehouse.store.put("x/t/_transaction_log/_last_checkpoint", b"{}")
    with refused("location-not-empty"):
        await create(warehouse.replica(), location="memory://w/x/t")


async def test_a_table_in_another_root(warehouse: Warehouse) -> None:
    lake = MemoryStore("lake", now_ms=warehouse.world.now_ms)
    replica = warehouse.replica(Root("memory://lake/zone", lake))
    view = await create(replica, location="memory://lake/zone/t")
    assert view.location == "memory://lake/zone/t"
    await commit(replica, add_line("x"))
    assert [info.key for info in await lake.list("")] == [
        "t/_transaction_log/00000000000000000000.json",
        "t/_transaction_log/00000000000000000001.json",
    ]
    with refused("location-not-allowed"):
        await create(replica, "a.b", location="memory://lake/zone2/t")
    # Without that root the table is known, but cannot be reached.
    other = warehouse.replica()
    with refused("location-not-allowed"):
        await other.tables.describe(ORDERS)
    # It stops nobody from listing, or from creating another one.
    await create(other, "a.elsewhere")
    assert [ref.location for ref in (await other.tables.list("sales", 10, None)).tables] == ["memory://lake/zone/t"]


async def test_a_symlink_does_not_lead_out_of_a_folder(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "real").mkdir()
    store = LocalStore(root)
    replica = Coordinator(Roots(Root(f"file://{root}", store)), FakeWorld())
    try:
        for location in (f"{outside}/t", f"{root}/real/../../outside/t", f"{root}/../outside/t", f"file://{outside}"):
            with refused("location-not-allowed"):
                await create(replica, location=location)
        for location in (f"{root}/link/t", f"file://{root}/link"):
            with pytest.raises(ProblemError, match="symbolic link") as caught:
                await create(replica, location=location)
            assert caught.value.slug == "location-not-allowed"
        assert list(outside.iterdir()) == []
        view = await create(replica, location=f"{root}/real/t")
        assert view.location == f"file://{root}/real/t"
        assert (root / "real/t/_transaction_log/00000000000000000000.json").exists()
    finally:
        await replica.close(0)
