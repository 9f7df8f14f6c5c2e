"""Plans from storage answer what plans from memory answer: random histories, states in between, any filter."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.usecases import partial_scan
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.plans import PlanPage
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, refused, remove_line

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ],
}
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", None]
FILTERS = [
    "day = '2024-01-01'",
    "day > '2024-01-01'",
    "day IS NULL",
    "NOT (day = '2024-01-02')",
    "id BETWEEN 20 AND 35",
    "day = '2024-01-03' AND id < 50",
    "day = '2024-01-01' OR id = 77",
    "day = '2030-01-01'",
    "id > 1000",
    "FALSE",
    "TRUE",
]


@dataclasses.dataclass
class Step:
    """One version: files to add by (number, day), and how many of the live ones to remove; then perhaps a state."""

    adds: list[tuple[int, str | None]]
    removes: int
    state: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from(DAYS)), min_size=1, max_size=4),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=7,
)


def line(path: str, number: int, day: str | None) -> dict[str, Any]:
    bounds = {"minValues": {"id": str(10 * number)}, "maxValues": {"id": str(10 * number + 9)}}
    return add_line(path, partitionValues={"day": day}, **bounds)


async def history(replica: Coordinator, steps: list[Step], seed: int) -> list[dict[str, tuple[int, str | None]]]:
    """Play the steps; the live files after each version."""
    rng = random.Random(seed)
    properties = {"state.entriesPerManifest": "2", "checkpoint.interval": "1000"}
    await create(replica, schema=SCHEMA, partition_columns=("day",), properties=properties)
    live: dict[str, tuple[int, str | None]] = {}
    after = [dict(live)]
    for at, step in enumerate(steps):
        gone = rng.sample(sorted(live), min(step.removes, len(live)))
        # Few names, so that a file which was removed comes back, as often as not with other facts.
        new = {f"f{(number * 7 + at) % 5}": (number, day) for number, day in step.adds}
        new = {path: file for path, file in new.items() if path not in live}
        actions = [*(line(path, *file) for path, file in new.items()), *(remove_line(path) for path in gone)]
        if not actions:
            continue
        await commit(replica, *actions, readVersion=len(after) - 1)
        live = {path: file for path, file in live.items() if path not in gone} | new
        after.append(dict(live))
        if step.state:
            await replica.checkpoints.checkpoint(ORDERS, None)
    return after


async def whole(replica: Coordinator, asked: PlanRequest) -> PlanPage:
    """All pages as one; each tells the same ledger."""
    page = await replica.plans.page(ORDERS, asked, None)
    files = list(page.files)
    following = page
    while following.next is not None:
        request = PlanRequest(filter=asked.filter, version=asked.version, limit=asked.limit, cursor=following.next)
        following = await replica.plans.page(ORDERS, request, None)
        assert (following.ledger, following.version) == (page.ledger, page.version)
        files += following.files
    return PlanPage(page.version, tuple(files), None, page.ledger)


def may_match(asked: str, number: int, day: str | None) -> bool:
    """The dumb answer for one file of ids 10n to 10n + 9."""
    low, high = 10 * number, 10 * number + 9
    return {
        "day = '2024-01-01'": day == "2024-01-01",
        "day > '2024-01-01'": day is not None and day > "2024-01-01",
        "day IS NULL": day is None,
        "NOT (day = '2024-01-02')": day is not None and day != "2024-01-02",
        "id BETWEEN 20 AND 35": high >= 20 and low <= 35,
        "day = '2024-01-03' AND id < 50": day == "2024-01-03" and low < 50,
        "day = '2024-01-01' OR id = 77": day == "2024-01-01" or low <= 77 <= high,
        "day = '2030-01-01'": False,
        "id > 1000": False,
        "FALSE": False,
        "TRUE": True,
    }[asked]


def cold(warehouse: Warehouse, *, from_files: int = 0) -> Coordinator:
    """A replica that has nothing open, and does not begin to open anything."""
    replica = warehouse.replica()
    replica.plans.cold.from_files = from_files
    replica.open_tables.open_soon = lambda named: None  # type: ignore[method-assign]
    return replica


@pytest.fixture(autouse=True)
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it saves nothing, so that more is compared."""
    monkeypatch.setattr(partial_scan, "MOST_SHARE", 1)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 100), st.sampled_from([1, 3, 1000]))
def test_cold_warm_and_dumb_agree(steps: list[Step], seed: int, limit: int) -> None:
    async def run() -> None:
        warehouse = Warehouse()
        writer = warehouse.replica()
        after = await history(writer, steps, seed)
        for asked in FILTERS:
            for version in {None, len(after) // 2, len(after) - 1}:
                request = PlanRequest(filter=asked, version=version, limit=limit)
                warm, from_storage = await whole(writer, request), await whole(cold(warehouse), request)
                live = after[-1 if version is None else version]
                expected = {path for path, file in live.items() if may_match(asked, *file)}
                assert {file.path for file in warm.files} == expected
                assert from_storage.files == warm.files
                assert from_storage.version == warm.version
                assert from_storage.ledger.files_total == warm.ledger.files_total == len(live)
                assert from_storage.ledger.files_after_data_skipping == len(expected)
                if "id" not in asked or "day" not in asked:
                    kept = from_storage.ledger.files_after_partition_pruning
                    assert kept == warm.ledger.files_after_partition_pruning
        await warehouse.close()

    asyncio.run(run())


@pytest.fixture
async def stored() -> Any:
    """A hundred files of ten days in ten manifests, one version after the state, and the replica that wrote them."""
    warehouse = Warehouse()
    writer = warehouse.replica()
    properties = {"state.entriesPerManifest": "100", "checkpoint.interval": "1000"}
    await create(writer, schema=SCHEMA, partition_columns=("day",), properties=properties)
    for day in range(1, 11):
        lines = [line(f"d{day}/f{n}", n, f"2024-01-{day:02}") for n in range(100)]
        await commit(writer, *lines)
    await writer.checkpoints.checkpoint(ORDERS, None)
    await commit(writer, line("new", 3, "2024-01-04"), remove_line("d4/f3"), readVersion=10)
    yield warehouse, writer
    await warehouse.close()


async def test_only_the_manifests_that_may_match_are_read(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, _ = stored
    replica = cold(warehouse)
    warehouse.store.gets.clear()
    page = await replica.plans.page(ORDERS, PlanRequest(filter="day = '2024-01-04' AND id < 40"), None)
    assert sorted(file.path for file in page.files) == ["d4/f0", "d4/f1", "d4/f2", "new"]
    assert (page.ledger.manifests_total, page.ledger.manifests_pruned) == (10, 9)
    assert (page.ledger.files_total, page.ledger.files_after_partition_pruning) == (1000, 100)
    assert sum("/manifests/" in key for key in warehouse.store.gets) == 1
    assert not any(key.endswith("ids.bin") for key in warehouse.store.gets)
    assert replica.open_tables.opened() == []


async def test_the_table_is_opened_behind_a_cold_plan(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, _ = stored
    replica = warehouse.replica()
    replica.plans.cold.from_files = 0
    asked = PlanRequest(filter="day = '2024-01-04'", limit=60)
    first = await replica.plans.page(ORDERS, asked, None)
    await asyncio.gather(*replica.open_tables._soon)
    assert len(replica.open_tables.opened()) == 1
    rest = PlanRequest(filter="day = '2024-01-04'", limit=60, cursor=first.next)
    second = await replica.plans.page(ORDERS, rest, None)
    assert len({file.path for file in (*first.files, *second.files)}) == 100
    other = warehouse.replica()
    elsewhere = await other.plans.page(ORDERS, rest, None)
    assert (elsewhere.files, elsewhere.ledger, elsewhere.next) == (second.files, first.ledger, None)


async def test_small_tables_are_opened_at_once(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, _ = stored
    replica = warehouse.replica()
    await replica.plans.page(ORDERS, PlanRequest(filter="day = '2024-01-04'"), None)
    assert len(replica.open_tables.opened()) == 1


async def test_a_filter_that_needs_most_of_the_table_opens_it(
    stored: tuple[Warehouse, Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, _ = stored
    monkeypatch.setattr(partial_scan, "MOST_SHARE", 0.5)
    for asked, opened in (("day <= '2024-01-05'", 0), ("day <= '2024-01-06'", 1), ("id < 10", 1)):
        replica = cold(warehouse)
        await replica.plans.page(ORDERS, PlanRequest(filter=asked), None)
        assert len(replica.open_tables.opened()) == opened, asked


async def test_a_damaged_manifest_is_answered_by_the_log(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, writer = stored
    [broken, *_] = [key for key in warehouse.store.keys("") if "/manifests/" in key]
    warehouse.store.overwrite(broken, b"nothing that was written")
    for asked in ("day = '2024-01-04'", "id < 10"):
        request = PlanRequest(filter=asked, limit=10_000)
        expected = {file.path for file in (await whole(writer, request)).files}
        assert {file.path for file in (await whole(cold(warehouse), request)).files} == expected


async def test_refusals_are_those_of_an_open_table(stored: tuple[Warehouse, Coordinator]) -> None:
    warehouse, writer = stored
    for replica in (cold(warehouse), writer):
        with refused("filter-invalid"):
            await replica.plans.page(ORDERS, PlanRequest(filter="nobody = 1"), None)
        with refused("version-not-found"):
            await replica.plans.page(ORDERS, PlanRequest(filter="id = 1", version=99), None)
    await writer.tables.drop(ORDERS, purge_files=False)
    with refused("table-not-found"):
        await cold(warehouse).plans.page(ORDERS, PlanRequest(filter="id = 1"), None)


async def test_old_versions_of_an_open_table_are_not_rebuilt_for_a_filter(
    stored: tuple[Warehouse, Coordinator],
) -> None:
    warehouse, _ = stored
    replica = warehouse.replica()
    replica.plans.cold.from_files = 0
    await replica.snapshots.files(ORDERS, None, None, 0, 1, None)
    warehouse.store.gets.clear()
    page = await replica.plans.page(ORDERS, PlanRequest(filter="day = '2024-01-04'", version=10, limit=200), None)
    assert len(page.files) == 100
    assert "new" not in {file.path for file in page.files}
    assert page.ledger.files_total == 1000


async def test_ranges_leave_out_manifests_too() -> None:
    warehouse = Warehouse()
    writer = warehouse.replica()
    await create(writer, schema=SCHEMA)
    for start in range(0, 40, 10):
        lines = [line(f"f{n}", n, None) for n in range(start, start + 10)]
        for one in lines:
            one["add"]["partitionValues"] = {}
        await commit(writer, *lines)
        await writer.checkpoints.checkpoint(ORDERS, None)
    warehouse.store.gets.clear()
    page = await cold(warehouse).plans.page(ORDERS, PlanRequest(filter="id BETWEEN 205 AND 215"), None)
    assert [file.path for file in page.files] == ["f20", "f21"]
    assert (page.ledger.manifests_total, page.ledger.manifests_pruned, page.ledger.files_total) == (4, 3, 40)
    assert sum("/manifests/" in key for key in warehouse.store.gets) == 1
    await warehouse.close()
