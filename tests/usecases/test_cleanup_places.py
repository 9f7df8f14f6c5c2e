"""Cleanups where a log did not begin with us, and where it lies on a real disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.cleaning import DAY, SHORT
from tests.usecases.field_writers import Generation
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, files, set_properties
from tests.usecases.test_field_tables import EVENTS, LOG, adopted, kinds

KEPT_SECONDS = 301
"""How long a replica may not have heard of another one's floor."""


async def readable(replica: Coordinator, name: TableName) -> dict[int, list[str]]:
    """The files of every version that can be read."""
    head = (await replica.snapshots.snapshot(name, None, None, 0)).version
    found = {}
    for version in range(head + 1):
        try:
            found[version] = sorted(await files(replica, name, version=version))
        except ProblemError as problem:
            if problem.slug != "version-expired":
                raise
    return found


@kinds
async def test_a_table_that_was_taken_over(warehouse: Warehouse, generation: Generation, how: dict[str, Any]) -> None:
    """States of the old writers may be the only record of a version: none goes before a floor of ours is above it."""
    _, replica = await adopted(warehouse, generation, **how)
    await replica.tables.alter(EVENTS, set_properties(logRetention__duration="2d", state__retention__hours="1"))
    before = await readable(warehouse.replica(), EVENTS)
    taken_over = max(before)
    for day in range(7):
        done = await replica.cleanup.cleanup(EVENTS)
        assert done.status == "success", done
        warehouse.world.advance(KEPT_SECONDS)
        for one in (replica, warehouse.replica()):
            now = await readable(one, EVENTS)
            assert {version: now[version] for version in before if version >= done.floor} == {
                version: shown for version, shown in before.items() if version >= done.floor
            }
            assert min(now) >= done.floor
        warehouse.world.advance(DAY - KEPT_SECONDS)
        added = await commit(replica, add_line(f"day{day}"), to=EVENTS)
        before[added.version] = sorted(await files(replica, EVENTS))
    assert done.floor > taken_over, "after some days nothing is left of what others wrote"
    numbered = [key.removeprefix(LOG) for key in warehouse.store.keys(f"{LOG}0")]
    assert min(int(name[:20]) for name in numbered) > taken_over


class LaterWorld(SystemWorld):
    """A real machine on which days pass when told."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("format_", ["avro", "json", "parquet"])
async def test_a_log_on_a_real_disk(tmp_path: Path, format_: str) -> None:
    world = LaterWorld()
    store = LocalStore(tmp_path)
    replica = Coordinator(Roots(Root(store.uri, store)), world)
    # Times of files are real, so everything ages at once: the last version alone is left.
    await create(replica, properties={**SHORT, "state.format": format_, "commit.dedupe.duration": "1s"})
    for number in range(4):
        await commit(replica, add_line(f"f{number}"))
        await replica.checkpoints.checkpoint(ORDERS)
    world.ahead_ms = int(3 * DAY * 1000)
    assert (await replica.cleanup.cleanup(ORDERS)).floor == 4
    world.ahead_ms = int(4.1 * DAY * 1000)
    done = await replica.cleanup.cleanup(ORDERS)
    assert (done.status, done.versions_deleted) == ("success", 4), done
    keys = [info.key.rsplit("/", 1)[1] for info in await store.list("sales/")]
    assert [key for key in keys if len(key) == 25 and key.endswith(".json")] == [f"{4:020d}.json"]
    assert len(await files(Coordinator(Roots(Root(store.uri, store)), world))) == 4
    await replica.close(0)
