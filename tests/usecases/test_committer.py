"""The committer under odd circumstances: commits planned long ago, and a shutdown while a version is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from tarnlog.protocol.commits import Conflicted, NotNow
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.ports.object_store import PutResult
from tarnlog_server.usecases.committer import CommitterSettings
from tests.usecases.replicas import Warehouse, add_line, commit, create, files, remove_line, send, version_key

SHORT = CommitterSettings(window=Window(versions=3, snapshots=3))


async def test_nobody_waits_for_the_winners_of_a_commit_that_was_planned_long_ago(warehouse: Warehouse) -> None:
    replica = warehouse.replica(settings=SHORT)
    view = await create(replica)
    await commit(replica, add_line("first"))
    await commit(replica, remove_line("first"), readVersion=1)
    for number in range(20):
        await commit(replica, add_line(f"f{number}"))
    slow, real = asyncio.Event(), warehouse.store.get

    async def get(key: str, start: int = 0, length: int | None = None) -> bytes:
        if key == version_key(warehouse.log(view), 2):
            await slow.wait()
        return await real(key, start, length)

    warehouse.store.get = get  # type: ignore[method-assign]
    fields: dict[str, Any] = {"readVersion": 1, "reads": {"paths": ["first"]}}
    old = [asyncio.create_task(send(replica, add_line(f"old{n}"), **fields)) for n in range(3)]
    for number in range(20, 40):
        done = await asyncio.wait_for(commit(replica, add_line(f"f{number}")), 5)
        assert done.version == number + 3
    assert not any(task.done() for task in old)
    slow.set()
    for outcome in await asyncio.wait_for(asyncio.gather(*old), 5):
        assert isinstance(outcome, Conflicted)
        assert (outcome.rule, [winner.version for winner in outcome.winners]) == ("delete-read", [2])
    fine = await commit(replica, add_line("fine"), readVersion=2, reads={"paths": ["first"]})
    assert fine.version == 43
    assert "fine" in await files(warehouse.replica())


async def test_a_shutdown_answers_those_who_wait_for_old_winners(warehouse: Warehouse) -> None:
    replica = warehouse.replica(settings=SHORT)
    view = await create(replica)
    for number in range(20):
        await commit(replica, add_line(f"f{number}"))
    never, real = asyncio.Event(), warehouse.store.get

    async def get(key: str, start: int = 0, length: int | None = None) -> bytes:
        if key == version_key(warehouse.log(view), 2):
            await never.wait()
        return await real(key, start, length)

    warehouse.store.get = get  # type: ignore[method-assign]
    old = asyncio.create_task(send(replica, add_line("old"), readVersion=1, reads={"wholeTable": True}))
    await asyncio.sleep(0.05)
    await replica.open_tables.close(0)
    outcome = await asyncio.wait_for(old, 1)
    assert isinstance(outcome, NotNow)
    assert outcome.problem["type"].endswith("shutting-down")


async def test_a_shutdown_answers_those_whose_version_is_lost_meanwhile(warehouse: Warehouse) -> None:
    replica, rival = warehouse.replica(), warehouse.replica()
    await create(replica)
    await files(replica)
    await files(rival)
    held, real = asyncio.Event(), warehouse.store.put_if_absent

    async def put_if_absent(key: str, data: bytes) -> PutResult:
        if b"ours" in data:
            await held.wait()
        return await real(key, data)

    warehouse.store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    waiting = asyncio.create_task(send(replica, add_line("ours")))
    await asyncio.sleep(0.05)
    await commit(rival, add_line("theirs"))
    closing = asyncio.create_task(replica.open_tables.close(5))
    await asyncio.sleep(0)
    held.set()
    outcome = await asyncio.wait_for(waiting, 1)
    assert isinstance(outcome, NotNow)
    assert outcome.problem["type"].endswith("shutting-down")
    await asyncio.wait_for(closing, 1)
    assert await files(rival) == ["theirs"]
