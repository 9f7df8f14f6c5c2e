"""An asyncio event loop on virtual time: nothing sleeps, nothing does I/O, and a seed decides every order.

When nothing is ready, time jumps to the next timer. When there is no timer either, the run hangs, and that is an error:
in the real world somebody would wait for ever. Tasks belong to an owner (a replica) by a context variable, so that a
crash can end everything a replica was doing, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


class Owner:
    """Whoever runs tasks that end together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def cancel_all(self) -> None:
        """End every task of this owner at the point where it waits now."""
        for task in list(self.tasks):
            task.cancel()


class Hang(AssertionError):
    """Nothing is scheduled any more, but the run is not over; or it takes far too long in virtual time."""


class _Jump:
    """Stands where a selector would: instead of waiting for I/O it moves the clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.passed(timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """The loop. `shuffle` also runs callbacks that are ready at the same instant in a random order."""

    def __init__(self, rng: random.Random, *, shuffle: bool, max_virtual_seconds: float) -> None:
        super().__init__()
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self._virtual = 1000.0
        self._latest = self._virtual + max_virtual_seconds
        self._rng = rng
        self._shuffle = shuffle
        self._ready: Any
        self.unexpected: list[str] = []
        self.set_task_factory(self._owned)
        self.set_exception_handler(self._noted)

    def time(self) -> float:
        return self._virtual

    def passed(self, timeout: float | None) -> None:
        """The loop would wait now: jump, or say that nobody will ever wake it."""
        if timeout is None:
            raise Hang("nothing is scheduled, but the run is not over: somebody waits for ever")
        if timeout > 0:
            self._virtual += timeout
            if self._virtual > self._latest:
                raise Hang(f"the run did not end within {self._latest - 1000.0:.0f} virtual seconds")
        elif self._shuffle and len(self._ready) > 1 and self._rng.random() < 0.5:
            self._ready.rotate(self._rng.randrange(len(self._ready)))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, then end what is left."""
        asyncio.set_event_loop(self)
        leftovers = Owner("main")
        context = contextvars.copy_context()
        context.run(OWNER.set, leftovers)
        try:
            return self.run_until_complete(self.create_task(main, context=context))
        finally:
            self._shuffle = False
            leftovers.cancel_all()
            for _ in range(5):
                self.call_soon(self.stop)
                self.run_forever()
            asyncio.set_event_loop(None)
            self.close()

    def _owned(self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **kwargs)
        context = kwargs.get("context")
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(lambda done: owner.tasks.pop(done, None))
        return task

    def _noted(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Exceptions that nobody fetched depend on when objects are collected; callers judge exceptions themselves.
        if "never retrieved" not in context.get("message", ""):
            self.unexpected.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no I/O."""

    def _write_to_self(self) -> None:
        """There is no other thread to wake up for."""
