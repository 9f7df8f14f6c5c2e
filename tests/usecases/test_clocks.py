"""Clocks that step or disagree: a commit that is in the log is never refused for its age, and never placed twice."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from tarnlog.protocol.commits import Committed, Unknown
from tarnlog.protocol.ids import uuid7
from tarnlog_server.core import dedupe
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.replicas import (
    ORDERS,
    FakeWorld,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    remove_line,
    send,
    set_properties,
)

MINUTE, HOUR = 60, 3600
FORGETFUL = CommitterSettings(window=Window(recent_ids=0))
STEPS = [-20 * MINUTE, -5 * HOUR, -30 * HOUR, 20 * MINUTE, 5 * HOUR, 30 * HOUR]


class SteppedWorld(FakeWorld):
    """The shared time as a replica with a wrong clock sees it."""

    def __init__(self, shared: FakeWorld, seconds: float = 0) -> None:
        super().__init__()
        self._shared = shared
        self._own = random.Random(seconds)
        self.off_seconds = seconds

    @property
    def rng(self) -> random.Random:
        return self._own

    def now_ms(self) -> int:
        return self._shared.now_ms() + int(self.off_seconds * 1000)

    def monotonic(self) -> float:
        return self._shared.monotonic()

    def uuid7(self) -> UUID:
        return uuid7(self.now_ms(), self._own)


def replica_with(warehouse: Warehouse, world: FakeWorld, **settings: Any) -> Coordinator:
    made = Coordinator(Roots(Root("memory://w", warehouse.store)), world, **settings)
    warehouse.replicas.append(made)
    return made


@pytest.mark.parametrize("settings", [CommitterSettings(), FORGETFUL], ids=["recent", "sealed"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_resend_after_a_step_of_the_clock_is_answered_from_the_log(
    warehouse: Warehouse, step: int, settings: CommitterSettings
) -> None:
    world = SteppedWorld(warehouse.world)
    replica = replica_with(warehouse, world, settings=settings)
    await create(replica)
    made = str(warehouse.world.uuid7())
    done = await commit(replica, add_line("a"), commitId=made)
    for number in range(4):
        await commit(replica, add_line(f"later{number}"))
    world.off_seconds = step
    again = await commit(replica, add_line("a"), commitId=made)
    assert (again.version, again.timestamp, again.replayed) == (done.version, done.timestamp, True)
    status = await replica.commits.status(ORDERS, made)
    assert isinstance(status, Committed)
    assert status.version == done.version


@pytest.mark.parametrize("stale", [False, True], ids=["fresh", "stale"])
@pytest.mark.parametrize("off", STEPS)
async def test_a_replica_with_a_wrong_clock_answers_a_resend_from_the_log(
    warehouse: Warehouse, off: int, stale: bool
) -> None:
    """Also when it has not seen the version yet: it refreshes the head before it judges an id by its age."""
    right, wrong = warehouse.replica(), replica_with(warehouse, SteppedWorld(warehouse.world, off))
    await create(right)
    if stale:
        assert await files(wrong) == []
    made = str(warehouse.world.uuid7())
    done = await commit(right, add_line("a"), commitId=made)
    again = await commit(wrong, add_line("a"), commitId=made)
    assert (again.version, again.replayed) == (done.version, True)
    assert await files(right) == ["a"]


async def test_an_unknown_id_from_the_future_is_not_now_and_lands_later(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    ahead = str(uuid7(warehouse.world.now_ms() + 20 * MINUTE * 1000, random.Random(7)))
    with refused("clock-skew", match="1200 s ahead") as caught:
        await send(replica, add_line("a"), commitId=ahead)
    assert caught.value.retry_after == 60.0
    assert caught.value.code.status == 503
    with refused("commit-not-found"):
        await replica.commits.status(ORDERS, ahead)
    assert await files(replica) == []
    warehouse.world.advance(6 * MINUTE)
    assert (await commit(replica, add_line("a"), commitId=ahead)).replayed is False


@pytest.mark.parametrize("ahead", [2 * HOUR, 30 * HOUR])
@pytest.mark.parametrize("kept_anyway", [0, 10_000])
async def test_a_clock_that_was_ahead_makes_no_id_new(
    warehouse: Warehouse, ahead: int, kept_anyway: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote versions and a state from the future; then the ids of just before must not be committed again."""
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", kept_anyway)
    world = SteppedWorld(warehouse.world)
    first = replica_with(warehouse, world, settings=FORGETFUL)
    await create(first, properties={"commit.dedupe.duration": "1h"})
    made = [str(warehouse.world.uuid7()) for _ in range(3)]
    done = [await commit(first, add_line(f"f{number}"), commitId=one) for number, one in enumerate(made)]
    world.off_seconds = ahead
    await first.tables.alter(ORDERS, set_properties(note="from the future"))
    await first.checkpoints.checkpoint(ORDERS, "avro")
    world.off_seconds = 0
    second = warehouse.replica(settings=FORGETFUL)
    for number, one in enumerate(made):
        for replica in (first, second):
            try:
                outcome: Any = await send(replica, add_line(f"f{number}"), commitId=one)
            except Exception as problem:
                outcome = getattr(problem, "slug", problem)
            placed = isinstance(outcome, Committed) and (outcome.version, outcome.replayed) == (
                done[number].version,
                True,
            )
            assert placed or (outcome == "clock-skew" and not kept_anyway), outcome
    history = await second.history.commits(ORDERS, None, None, "asc", 100, None, 0)
    assert sorted(c.commit_id for c in history.commits if c.commit_id in made) == sorted(made)
    warehouse.world.advance(ahead + HOUR)
    await commit(second, add_line("after"))


async def test_an_id_that_was_forgotten_is_expired_for_a_clock_that_is_behind(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is fresh for that clock, but the ids of that time are not remembered any more."""
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", 0)
    first = warehouse.replica(settings=FORGETFUL)
    await create(first, properties={"commit.dedupe.duration": "1h"})
    made = str(warehouse.world.uuid7())
    await commit(first, add_line("a"), commitId=made)
    warehouse.world.advance(3 * HOUR)
    await commit(first, add_line("b"))
    first.open_tables.opened()[0].live.tracker.ids.forget_before(warehouse.world.now_ms() - 2 * HOUR * 1000)
    await first.checkpoints.checkpoint(ORDERS, "avro")
    behind = replica_with(warehouse, SteppedWorld(warehouse.world, -3 * HOUR), settings=FORGETFUL)
    for replica in (first, behind):
        with pytest.raises(Exception) as caught:
            await send(replica, add_line("a"), commitId=made)
        assert getattr(caught.value, "slug", None) in ("commit-id-expired", "clock-skew")
    assert await files(warehouse.replica()) == ["a", "b"]


async def test_a_known_id_is_answered_before_the_table_of_today_is_asked(warehouse: Warehouse) -> None:
    """The schema and the limits of today say nothing about a commit that is in the log."""
    stale, replica = warehouse.replica(), warehouse.replica()
    view = await create(replica)
    made = str(warehouse.world.uuid7())
    fields: dict[str, Any] = {
        "commitId": made,
        "readVersion": 0,
        "reads": {"filters": [{"op": "eq", "column": "note", "value": "x"}]},
    }
    assert await files(stale) == []
    done = await commit(replica, add_line("a" * 1000), **fields)
    metadata = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).meta_data
    assert metadata is not None
    only_id = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
    configuration = {"commit.maxBytes": "1024"}
    change = {"id": metadata["id"], "format": {"provider": "parquet"}, "schemaString": only_id}
    change |= {"partitionColumns": [], "configuration": configuration}
    await commit(replica, {"metaData": change}, remove_line("a" * 1000), readVersion=1)
    for one in (replica, stale, warehouse.replica()):
        again = await commit(one, add_line("a" * 1000), **fields)
        assert (again.version, again.replayed) == (done.version, True)
    assert view.version == 0


async def test_an_id_of_a_version_that_was_cleaned_away_is_not_committed_again(warehouse: Warehouse) -> None:
    replica = warehouse.replica(settings=FORGETFUL)
    view = await create(replica)
    made = str(warehouse.world.uuid7())
    await commit(replica, add_line("a"), commitId=made)
    await commit(replica, add_line("b"))
    await warehouse.store.put(f"{warehouse.log(view)}_floor/{2:020d}", b"")  # without it, the version were lost
    await warehouse.store.delete(f"{warehouse.log(view)}{1:020d}.json")
    with refused("commit-id-expired"):
        await send(replica, add_line("a"), commitId=made)
    with refused("commit-id-out-of-window"):
        await replica.commits.status(ORDERS, made)


async def test_a_commit_that_waits_is_unknown_whatever_its_age(warehouse: Warehouse) -> None:
    world = SteppedWorld(warehouse.world)
    replica = replica_with(warehouse, world)
    await create(replica)
    made = str(warehouse.world.uuid7())
    table = await replica.open_tables.get(ORDERS)
    table.committer.waits = lambda commit_id: commit_id == made  # type: ignore[method-assign]
    world.off_seconds = 30 * HOUR
    assert isinstance(await replica.commits.status(ORDERS, made), Unknown)
