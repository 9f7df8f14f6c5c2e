"""Work that goes on while something else is waited for: what does not depend on each other shares a round trip.

Where there is no round trip to share, as on a local disk, a task for each would cost more than the reading: there the
work is done when its result is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Begin `work` now, unless it is `near`; the block awaits, once, what it is given, where it needs the result.

    Whatever it has not awaited when it ends is given up, and a failure nobody waited for is no failure.
    """

    __slots__ = ("_near", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], *, near: bool = False) -> None:
        self._work = work
        self._near = near
        self._task: asyncio.Task[T] | None = None

    async def __aenter__(self) -> Awaitable[T]:
        if self._near:
            return self._work
        self._task = asyncio.create_task(self._work)
        return self._task

    async def __aexit__(self, *failure: object) -> None:
        task = self._task
        if task is None:
            self._work.close()  # which does nothing to work that is done
        elif task.done():
            # Looked at, so that nobody is told of it: without the turns of the loop that waiting costs.
            _ = task.cancelled() or task.exception()
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
