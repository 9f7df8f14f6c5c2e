"""A small state is opened from what its document tells; whoever is thorough compares that with all it consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tarnlog_server.codec import checkpoint_parquet, state_avro
from tarnlog_server.codec.damage import NO_SHA256, seal_document
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.told_files import FEW
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.usecases import checkpoint_read, state_entries
from tarnlog_server.usecases.anchor import check_anchor
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, refused, remove_line
from tests.usecases.test_states import look
from tests.usecases.test_verify import failed

FORMS = ("avro", "parquet")


async def small_table(warehouse: Warehouse, form: str, files: int = 6) -> tuple[Coordinator, str]:
    """A table with removes, a txn and a state at its head; and the key of the document that completes the state."""
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, *(add_line(f"f{number}") for number in range(files + 2)))
    await commit(replica, remove_line("f0"), remove_line("f1"), {"txn": {"appId": "a", "version": 3}}, readVersion=1)
    await replica.checkpoints.checkpoint(ORDERS, form)
    paths = replica.open_tables.opened()[0].live.log.paths
    return replica, paths.state_manifest(2) if form == "avro" else paths.checkpoint_parquet_info(2)


def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry whenever a manifest or a Parquet file is decoded."""
    found: list[str] = []
    avro, parquet = state_avro.decode_manifest, checkpoint_parquet.decode_parquet_part

    def decode_avro(key: str, *rest: Any, **options: Any) -> Any:
        found.append(key)
        return avro(key, *rest, **options)

    def decode_parquet(key: str, *rest: Any, **options: Any) -> Any:
        found.append(key)
        return parquet(key, *rest, **options)

    monkeypatch.setattr(state_entries, "decode_manifest", decode_avro)
    monkeypatch.setattr(checkpoint_read, "decode_parquet_part", decode_parquet)
    return found


async def states_are_sound(replica: Coordinator) -> bool:
    return not failed(await replica.verifying.verify(ORDERS)) & {"states-sound", "state-equals-replay"}


async def edited(warehouse: Warehouse, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a sealed document, and seal it again."""
    document = msgspec.json.decode(await warehouse.store.get(key))
    assert document.pop("sha256") != NO_SHA256
    change(document)
    warehouse.store.overwrite(key, seal_document(msgspec.json.encode({"sha256": NO_SHA256} | document)))


@pytest.mark.parametrize("form", FORMS)
async def test_opening_a_small_state_decodes_neither_avro_nor_parquet(
    warehouse: Warehouse, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, _ = await small_table(warehouse, form)
    before = await look(replica)
    assert len(before["files"]) == 6
    fresh = warehouse.replica()
    found = decoded(monkeypatch)
    assert await look(fresh) == before
    assert fresh.open_tables.opened()[0].live.base is not None, "it was not opened from a state"
    assert not found
    # What others left for later, and what builds on the state, is as if all of it had been read.
    left, right = (one.open_tables.opened()[0].live.head.tombstones.known for one in (replica, fresh))
    assert {key: version for key, (_, version) in left.items()} == {key: version for key, (_, version) in right.items()}
    await commit(fresh, add_line("new"), remove_line("f2"), readVersion=2)
    await fresh.checkpoints.checkpoint(ORDERS, form)
    again = warehouse.replica()
    assert await look(again) == await look(fresh)
    assert await states_are_sound(again)
    assert found, "an audit decodes"


@pytest.mark.parametrize("form", FORMS)
async def test_more_files_than_are_told_are_decoded(
    warehouse: Warehouse, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, key = await small_table(warehouse, form, FEW + 1)
    assert b'"f5"' not in await warehouse.store.get(key)
    found = decoded(monkeypatch)
    assert await look(warehouse.replica()) == await look(replica)
    assert found


@pytest.mark.parametrize("form", FORMS)
async def test_an_audit_notices_a_document_that_tells_other_files(warehouse: Warehouse, form: str) -> None:
    replica, key = await small_table(warehouse, form)
    assert await states_are_sound(replica)

    def other_size(document: dict[str, Any]) -> None:
        (document if form == "avro" else document["told"])["files"][0][2]["size"] += 1

    await edited(warehouse, key, other_size)
    assert not await states_are_sound(warehouse.replica())


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_state_consists_of_is_looked_at_although_it_is_not_decoded(
    warehouse: Warehouse, form: str
) -> None:
    replica, key = await small_table(warehouse, form)
    before = await look(replica)
    ending = ".avro" if form == "avro" else ".parquet"
    parts = [one for one in warehouse.store.keys(key.split("_transaction_log")[0]) if one.endswith(ending)]
    for part in [one for one in parts if not one.endswith("_manifest.avro")]:
        good = await warehouse.store.get(part)
        for bad in (good[:-1], b"\0" + good[1:], None):
            if bad is None:
                await warehouse.store.delete(part)
            else:
                warehouse.store.overwrite(part, bad)
            fresh = warehouse.replica()
            assert await look(fresh) == before
            assert fresh.open_tables.opened()[0].live.broken_states, f"{part} was not missed"
            warehouse.store.overwrite(part, good)


async def test_a_state_does_not_build_on_a_manifest_that_was_damaged_meanwhile(warehouse: Warehouse) -> None:
    replica, key = await small_table(warehouse, "avro")
    (manifest,) = [one for one in warehouse.store.keys(key.split("state-v")[0]) if "/manifests/" in one]
    warehouse.store.overwrite(manifest, b"gone bad")
    await commit(replica, add_line("new"))
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    fresh = warehouse.replica()
    assert await look(fresh) == await look(replica)
    live = fresh.open_tables.opened()[0].live
    assert live.base is not None
    assert live.base.ref.version == 3
    assert not live.broken_states


async def test_no_floor_stands_on_a_state_that_tells_other_files(warehouse: Warehouse) -> None:
    replica, key = await small_table(warehouse, "avro")
    live = replica.open_tables.opened()[0].live
    await check_anchor(live, warehouse.world, 2)

    def without_one(document: dict[str, Any]) -> None:
        del document["files"][0]

    await edited(warehouse, key, without_one)
    with pytest.raises(CorruptObject, match="not those of its manifests"):
        await check_anchor(live, warehouse.world, 2)


@pytest.mark.parametrize("form", FORMS)
async def test_a_document_of_a_later_version_is_read_by_what_it_consists_of(warehouse: Warehouse, form: str) -> None:
    replica, key = await small_table(warehouse, form)
    before = await look(replica)

    def with_new_member(document: dict[str, Any]) -> None:
        (document if form == "avro" else document["told"])["files"][0][2]["ofLater"] = True

    await edited(warehouse, key, with_new_member)
    fresh = warehouse.replica()
    assert await look(fresh) == before
    live = fresh.open_tables.opened()[0].live
    assert live.base is not None
    assert not live.broken_states
    assert await states_are_sound(fresh)


@pytest.mark.parametrize("gone", [950, 1100])
@pytest.mark.parametrize("form", FORMS)
async def test_a_small_table_that_was_rewritten_often(warehouse: Warehouse, form: str, gone: int) -> None:
    """Few files, and more removes than are told."""
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, *(add_line(f"f{number}") for number in range(gone + 6)))
    await commit(replica, *(remove_line(f"f{number}") for number in range(gone)), readVersion=1)
    await replica.checkpoints.checkpoint(ORDERS, form)
    fresh = warehouse.replica()
    assert await look(fresh) == await look(replica)
    live = fresh.open_tables.opened()[0].live
    assert live.base is not None
    assert len(live.head.tombstones.known) == gone
    assert await states_are_sound(fresh)
    await commit(fresh, add_line("new"))
    await fresh.checkpoints.checkpoint(ORDERS, form)
    assert await look(warehouse.replica()) == await look(fresh)


async def test_a_state_that_does_not_show_what_it_announces_is_written_anew(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, _ = await small_table(warehouse, "avro")
    await commit(replica, add_line("new"))
    live = replica.open_tables.opened()[0].live
    shown = live.states.live
    asked: list[int] = []

    async def lost_one(manifest: StateManifest) -> list[StateFile]:
        asked.append(len(manifest.manifests))
        found = list(await shown(manifest))
        return found[1:] if len(asked) == 1 else found

    monkeypatch.setattr(live.states, "live", lost_one)
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    assert asked == [2, 1], "an incremental state, then one that stands on its own"
    fresh = warehouse.replica()
    assert await look(fresh) == await look(replica)
    assert await states_are_sound(fresh)


async def test_a_checkpoint_that_fails_its_validation_does_not_stay(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, key = await small_table(warehouse, "avro")
    paths = replica.open_tables.opened()[0].live.log.paths
    with monkeypatch.context() as patched, refused("log-corrupt"):
        patched.setattr(checkpoint_read, "same_files", lambda *_: False)
        await replica.checkpoints.checkpoint(ORDERS, "parquet")
    assert paths.checkpoint_parquet_info(2) not in warehouse.store.keys(key.split("state-v")[0])
    await replica.checkpoints.checkpoint(ORDERS, "parquet")
    assert paths.checkpoint_parquet_info(2) in warehouse.store.keys(key.split("state-v")[0])
    assert await look(warehouse.replica()) == await look(replica)
