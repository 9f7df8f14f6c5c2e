"""Long work: who waits for it, who is sent to look for it, who joins it, and what a shutdown does to it."""

from __future__ import annotations

import asyncio

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases import operations as module
from tarnlog_server.usecases.operations import Finished, Operations, Progress, Running
from tests.usecases.replicas import ORDERS, FakeWorld


class Work:
    """Work that ends when told to, and counts how often it began."""

    def __init__(self, result: object = "done") -> None:
        self.began = 0
        self.go = asyncio.Event()
        self.result = result

    async def __call__(self, progress: Progress) -> object:
        self.began += 1
        progress(3, 10, "files")
        await self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def patient() -> Operations:
    return Operations(FakeWorld(), wait_seconds=60)


def hasty(world: FakeWorld | None = None) -> Operations:
    return Operations(world or FakeWorld(), wait_seconds=0)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def started(operations: Operations, work: Work, kind: str = "vacuum") -> str:
    outcome = await operations.run(kind, ORDERS, work)
    assert isinstance(outcome, Running)
    await settled()
    return outcome.operation.id


async def test_quick_work_answers_itself_and_leaves_nothing() -> None:
    operations, work = patient(), Work()
    work.go.set()
    assert await operations.run("vacuum", ORDERS, work) == Finished("done")
    assert operations.list() == []


async def test_slow_work_is_an_operation_until_it_has_a_result() -> None:
    operations, work = hasty(), Work()
    number = await started(operations, work)
    table, view = operations.find(number)
    assert (table, view.kind, view.table, view.status) == (ORDERS, "vacuum", "sales.orders", "running")
    assert (view.progress.done, view.progress.total, view.progress.unit) == (3, 10, "files")
    work.go.set()
    await settled()
    _, view = operations.find(number)
    assert (view.status, view.result) == ("succeeded", "done")
    assert [found.id for _, found in operations.list()] == [number]


@pytest.mark.parametrize(
    "error, slug",
    [(ProblemError("table-read-only", "no"), "table-read-only"), (RuntimeError("boom"), "internal-error")],
)
async def test_failed_work_keeps_its_problem(error: Exception, slug: str) -> None:
    operations, work = hasty(), Work(error)
    number = await started(operations, work)
    work.go.set()
    await settled()
    _, view = operations.find(number)
    assert view.status == "failed"
    assert isinstance(view.problem, dict)
    assert view.problem["type"].endswith(slug)
    assert "boom" not in str(view.problem)


async def test_whoever_waits_gets_what_the_work_raises() -> None:
    operations, work = patient(), Work(ProblemError("table-read-only", "no"))
    work.go.set()
    with pytest.raises(ProblemError, match="table-read-only"):
        await operations.run("vacuum", ORDERS, work)
    assert operations.list() == []


async def test_the_same_call_joins_and_another_does_not() -> None:
    operations, work = patient(), Work()
    same = [asyncio.create_task(operations.run("vacuum", ORDERS, work, parameters=1)) for _ in range(3)]
    other_kind = asyncio.create_task(operations.run("cleanup", ORDERS, work, parameters=1))
    other_table = asyncio.create_task(operations.run("vacuum", TableName("a", "b"), work, parameters=1))
    other_parameters = asyncio.create_task(operations.run("vacuum", ORDERS, work, parameters=2))
    await settled()
    assert work.began == 4
    work.go.set()
    results = await asyncio.gather(*same, other_kind, other_table, other_parameters)
    assert results == [Finished("done")] * 6
    again = await operations.run("vacuum", ORDERS, work, parameters=1)
    assert (again, work.began) == (Finished("done"), 5)


async def test_a_caller_that_goes_away_stops_nothing() -> None:
    operations, work = patient(), Work()
    caller = asyncio.create_task(operations.run("vacuum", ORDERS, work))
    await settled()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    joined = asyncio.create_task(operations.run("vacuum", ORDERS, work))
    await settled()
    work.go.set()
    assert await joined == Finished("done")
    assert work.began == 1
    assert operations.list() == []


async def test_a_shutdown_stops_it_and_says_so() -> None:
    world = FakeWorld()
    operations, work = Operations(world, wait_seconds=60), Work()
    waiting = asyncio.create_task(operations.run("vacuum", ORDERS, work))
    await settled()
    not_begun = asyncio.create_task(operations.run("cleanup", ORDERS, work))
    [(_, view)] = operations.list()
    assert view.status == "running"
    await asyncio.sleep(0)
    await operations.close()
    for caller in (waiting, not_begun):
        with pytest.raises(ProblemError, match="shutting-down"):
            await caller
    with pytest.raises(ProblemError, match="shutting-down"):
        await operations.run("vacuum", ORDERS, work)
    assert work.began <= 2


async def test_a_told_operation_that_a_shutdown_stopped_is_a_failed_one() -> None:
    operations, work = hasty(), Work()
    number = await started(operations, work)
    await operations.close()
    _, view = operations.find(number)
    assert view.status == "failed"
    assert isinstance(view.problem, dict)
    assert view.problem["type"].endswith("shutting-down")


async def test_those_that_ended_are_forgotten_by_time() -> None:
    world = FakeWorld()
    operations, work = hasty(world), Work()
    number = await started(operations, work)
    world.advance(module.FORGET_AFTER_SECONDS * 2)
    operations.find(number)  # it runs: time does not matter
    work.go.set()
    await settled()
    world.advance(module.FORGET_AFTER_SECONDS - 1)
    operations.find(number)
    world.advance(2)
    with pytest.raises(ProblemError, match="operation-not-found"):
        operations.find(number)
    assert operations.list() == []


async def test_those_that_ended_are_forgotten_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FINISHED", 2)
    operations = hasty()
    numbers = []
    for _ in range(4):
        work = Work()
        numbers.append(await started(operations, work))
        work.go.set()
        await settled()
    assert [view.id for _, view in operations.list()] == numbers[2:]


async def test_no_more_than_so_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNNING", 2)
    operations, work = hasty(), Work()
    await started(operations, work, "a")
    await started(operations, work, "b")
    with pytest.raises(ProblemError, match="too-many-waiting"):
        await operations.run("c", ORDERS, work)
    assert isinstance(await operations.run("a", ORDERS, work), Running), "joining needs no place"
    assert work.began == 2
    work.go.set()
    await settled()
    await operations.run("c", ORDERS, work)
    await operations.close()
