"""The background writer of states: looks every second which open tables are due, and writes a few at a time.

Besides, one table at a time is cleaned up, each every few hours. Commits never wait for either: states are made of
immutable snapshots and encoded off the event loop, and a cleanup only touches what no commit needs.
"""

from __future__ import annotations

import asyncio

import structlog

from tarnlog_server.core.state_plan import Reason
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.open_tables import OpenTable

LOOK_SECONDS = 1.0
AT_ONCE = 2
AFTER_STATE_SECONDS = 10.0
REST_FACTOR = 20.0
"""Writing states takes at most a twentieth of the time: a busy table is due all the time, and commits come first."""
AFTER_REFUSAL_SECONDS = 10.0
"""A store that did not do its part is asked again, but not every second."""
AFTER_FAULT_SECONDS = 60.0
_log = structlog.get_logger("tarnlog.jobs")


async def keep_states(coordinator: Coordinator) -> None:
    """Run until cancelled. Each look costs a glance at every open table."""
    writing: set[asyncio.Task[None]] = set()
    cleaning: set[asyncio.Task[None]] = set()
    resting: dict[str, float] = {}
    try:
        while True:
            await coordinator.world.sleep(LOOK_SECONDS)
            now = coordinator.world.monotonic()
            for place in [place for place, until in resting.items() if until <= now]:
                del resting[place]
            _clean_one(coordinator, cleaning)
            for table in coordinator.open_tables.opened():
                if len(writing) >= AT_ONCE:
                    break
                if table.live.location in resting:
                    continue
                reason = coordinator.checkpoints.due(table)
                if reason is not None:
                    task = asyncio.create_task(_kept(coordinator, table, reason, resting))
                    writing.add(task)
                    task.add_done_callback(writing.discard)
                    # Let it take its table, so that the next look does not see it as due.
                    await asyncio.sleep(0)
    finally:
        for task in writing | cleaning:
            task.cancel()
        await asyncio.gather(*writing, *cleaning, return_exceptions=True)


def _clean_one(coordinator: Coordinator, cleaning: set[asyncio.Task[None]]) -> None:
    """Begin to clean up a table that is due, if none is being cleaned up."""
    if cleaning:
        return
    coordinator.cleanup.forget_closed()
    table = next((one for one in coordinator.open_tables.opened() if coordinator.cleanup.due(one)), None)
    if table is not None:
        task = asyncio.create_task(_cleaned(coordinator, table))
        cleaning.add(task)
        task.add_done_callback(cleaning.discard)


async def _cleaned(coordinator: Coordinator, table: OpenTable) -> None:
    """Clean up. A fault of our own is told; it is tried again when the table is due again."""
    try:
        await coordinator.cleanup.keep(table)
    except Exception as error:
        _log.error("a cleanup crashed", table=str(table.live.name), exc_info=error)


async def _kept(coordinator: Coordinator, table: OpenTable, reason: Reason, resting: dict[str, float]) -> None:
    """Write a state. A fault of our own is told, and that table is left alone for a while: the others go on."""
    started = coordinator.world.monotonic()
    try:
        kept = await coordinator.checkpoints.keep(table, reason)
        now = coordinator.world.monotonic()
        rest = max(AFTER_STATE_SECONDS, REST_FACTOR * (now - started)) if kept else AFTER_REFUSAL_SECONDS
        resting[table.live.location] = now + rest
    except Exception as error:
        _log.error("writing a state crashed", table=str(table.live.name), exc_info=error)
        resting[table.live.location] = coordinator.world.monotonic() + AFTER_FAULT_SECONDS
