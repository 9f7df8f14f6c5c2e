"""Work that goes on while the service serves: a crash is told, and the work begins again after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from tarnlog_server.ports.world import World

RESTART_SECONDS = 5.0
_log = structlog.get_logger("tarnlog.jobs")


async def supervised(name: str, job: Callable[[], Awaitable[None]], world: World) -> None:
    """Run a job that does not end by itself, again after every crash, until cancelled."""
    while True:
        try:
            await job()
            _log.error("job ended", job=name)
        except Exception as error:
            _log.error("job crashed", job=name, exc_info=error)
        await world.sleep(RESTART_SECONDS)


async def cancelled(*tasks: asyncio.Task[None]) -> None:
    """End tasks and wait until they have; what they raise on the way is of no use to anyone any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
