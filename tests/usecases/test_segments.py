"""Decoded manifests from the index: the same files, no Avro and no reads of manifests, and only for plans."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.adapters.datafusion_columns import DataFusionColumns
from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.adapters.memory_segments import MemorySegments
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases import partial_scan
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.state_read import Kind, StateRef, States
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create

FILES = 1200


class Place:
    """A warehouse with one large state, and a place for its decoded manifests."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.segments = MemorySegments()
        self.index = MemoryIndex()

    def replica(self, **settings: Any) -> Coordinator:
        given = {"index": self.index, "segments": self.segments, **settings}
        return self.warehouse.replica(columns=DataFusionColumns(), **given)

    async def started(self) -> Coordinator:
        replica = self.replica()
        assert replica.ingest is not None
        await replica.ingest.flush()
        return replica

    def manifest_reads(self) -> list[str]:
        return [key for key in self.warehouse.store.gets if "manifest-" in key]


@pytest.fixture
async def place(warehouse: Warehouse) -> Place:
    made = Place(warehouse)
    writer = warehouse.replica()
    await create(writer)
    lines = [
        add_line(f"f{n:05d}", minValues={"id": str(n)}, maxValues={"id": str(n)}, numRecords=1) for n in range(FILES)
    ]
    await commit(writer, *lines)
    await writer.checkpoints.checkpoint(ORDERS, "avro")
    return made


async def planned(replica: Coordinator) -> list[str]:
    """What a partial read of the newest state finds; the table itself stays closed."""
    states = await _states(replica)
    manifest = await states.manifest(1)
    found = await states.files(manifest, manifest.manifests, lambda _: True)
    return sorted(file.add.path for file in found)


async def _states(replica: Coordinator) -> States:
    named = await replica.catalog.find(ORDERS, 0)
    assert named is not None
    return States(replica.open_tables.log_of(named), replica.world)


async def test_what_was_decoded_once_is_not_decoded_again(place: Place) -> None:
    first = await place.started()
    expected = await planned(first)
    assert len(expected) == FILES
    assert first.segments is not None
    await first.segments.flush()
    assert len(place.segments.kept) == 1
    place.warehouse.store.gets.clear()
    second = await place.started()
    assert await planned(second) == expected
    assert place.manifest_reads() == []


@pytest.mark.parametrize("field, value", [("data", b"no arrow"), ("rows", 7), ("digest", "0"), ("sha256", "0" * 64)])
async def test_a_segment_that_was_altered_is_not_believed(place: Place, field: str, value: Any) -> None:
    first = await place.started()
    expected = await planned(first)
    assert first.segments is not None
    await first.segments.flush()
    ((sha256, kept),) = place.segments.kept.items()
    place.segments.kept[sha256] = msgspec.structs.replace(kept, **{field: value})
    second = await place.started()
    assert await planned(second) == expected
    assert place.manifest_reads()
    assert second.segments is not None
    await second.segments.flush()
    assert place.segments.kept == {sha256: kept}, "it is put again as it was"


async def test_opening_reads_the_manifests_themselves(place: Place) -> None:
    """A state that is built on them must not rest on what only a cache has."""
    first = await place.started()
    await planned(first)
    assert first.segments is not None
    await first.segments.flush()
    place.warehouse.store.gets.clear()
    second = await place.started()
    loaded = await (await _states(second)).read(StateRef(1, Kind.AVRO))
    assert len(list(loaded.state.files)) == FILES
    assert place.manifest_reads()


async def test_there_is_a_bound(place: Place) -> None:
    replica = place.replica(segment_bytes=10)
    assert replica.ingest is not None
    assert replica.segments is not None
    await replica.ingest.flush()
    await planned(replica)
    await replica.segments.flush()
    assert place.segments.kept == {}
    assert place.replica(segment_bytes=0).segments is None


async def test_without_a_ready_index_nothing_is_kept_and_plans_are_the_same(place: Place) -> None:
    replica = place.replica()
    assert len(await planned(replica)) == FILES
    assert replica.segments is not None
    await replica.segments.flush()
    assert place.segments.kept == {}


async def test_a_cold_plan_uses_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_scan, "MOST_SHARE", 1)
    first = await place.started()
    await planned(first)
    assert first.segments is not None
    await first.segments.flush()
    heard: list[tuple[str, bool]] = []
    telemetry = Telemetry()
    telemetry.index_lookup = lambda kind, hit: heard.append((kind, hit))  # type: ignore[method-assign]
    cold = place.replica(telemetry=telemetry)
    assert cold.ingest is not None
    await cold.ingest.flush()
    cold.plans.cold.from_files = 0
    cold.open_tables.open_soon = lambda named: None  # type: ignore[method-assign]
    place.warehouse.store.gets.clear()
    heard.clear()
    page = await cold.plans.page(ORDERS, PlanRequest(filter="id = 7"), None)
    assert [file.path for file in page.files] == ["f00007"]
    assert heard == [("segment", True)]
    loads = cold.cache_stats()["tables"].loads
    assert isinstance(loads, dict)
    assert {source: load.count for source, load in loads.items()} == {"index": 1, "storage": 1}


async def test_an_erase_leaves_no_decoded_manifest_of_before(place: Place) -> None:
    replica = await place.started()
    await planned(replica)
    assert replica.segments is not None
    await replica.segments.flush()
    assert len(place.segments.kept) == 1
    await commit(replica, {"remove": {"path": "f00000", "dataChange": True}}, readVersion=1)
    assert (await replica.erasing.erase(ORDERS)).status == "success"
    assert place.segments.kept == {}
