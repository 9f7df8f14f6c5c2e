"""Work that goes on while something else is waited for: what does not depend on each other shares a round trip."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Begin `work` now; the block awaits the task where it needs the result.

    Whatever it has not awaited when it ends is given up, and a failure nobody waited for is no failure.
    """
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if task.done():
            # Looked at, so that nobody is told of it: without the turns of the loop that waiting costs.
            _ = task.cancelled() or task.exception()
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
