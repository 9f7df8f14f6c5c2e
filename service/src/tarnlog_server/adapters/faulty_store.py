"""A store that fails on purpose, from a seed: for tests and for the simulation.

It fails only in ways that the port allows, so whatever breaks under it is a fault of the caller. In particular it never
answers EXISTS for an object that is not there. `broken_conditional_create` is the one exception and the control of the
simulation: a store that overwrites and says CREATED, under which the checks of the simulation must find lost commits.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreUnavailable,
)

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine beside the caller: asyncio.create_task, or the simulation's own."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault happens, as probabilities from 0 to 1. The write faults exclude each other."""

    lost_reply: float = 0.0
    """A write: applied, and then OutcomeUnknown."""
    late_landing: float = 0.0
    """A write: OutcomeUnknown now, applied after a delay of up to `late_seconds`."""
    conflict: float = 0.0
    """A write: OutcomeUnknown as after a 409, never applied."""
    server_error: float = 0.0
    """Any operation: a 5xx before anything was done. OutcomeUnknown for a write, StoreUnavailable for the rest."""
    slow: float = 0.0
    """Any operation: up to `slow_seconds` late, otherwise well."""
    short_read: float = 0.0
    """A get: the body broke off, StoreUnavailable."""
    late_seconds: float = 5.0
    slow_seconds: float = 2.0
    broken_conditional_create: bool = False
    """Not a fault but a defect: put_if_absent overwrites and answers CREATED."""


class FaultyStore:
    """Wraps `inner` with `faults`, which may be replaced at any time, e.g. by `Faults()` to let the storm pass."""

    def __init__(
        self,
        inner: ObjectStore,
        faults: Faults,
        *,
        rng: random.Random,
        sleep: Callable[[float], Awaitable[None]],
        spawn: Spawn,
    ) -> None:
        self.faults = faults
        self.injected: dict[str, int] = {}
        self._inner = inner
        self._rng = rng
        self._sleep = sleep
        self._spawn = spawn
        self._running: set[object] = set()

    @property
    def uri(self) -> str:
        return self._inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if self.faults.broken_conditional_create:
            await self.put(key, data)
            return PutResult.CREATED
        return await self._written(key, lambda: self._inner.put_if_absent(key, data))

    async def put(self, key: str, data: bytes) -> None:
        await self._written(key, lambda: self._inner.put(key, data))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self._before_read(key)
        if self._happens("short_read"):
            raise StoreUnavailable(f"injected: the body of {key!r} broke off", key=key)
        return await self._inner.get(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        await self._before_read(key)
        return await self._inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        await self._before_read(prefix)
        return await self._inner.list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        await self._before_read(key)
        await self._inner.delete(key)

    async def close(self) -> None:
        await self._inner.close()

    async def _written(self, key: str, write: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._maybe_slow()
        if self._happens("server_error"):
            raise OutcomeUnknown(f"injected: 503 for the write of {key!r}", key=key)
        if self._happens("conflict"):
            raise OutcomeUnknown(f"injected: 409 for the write of {key!r}", key=key)
        if self._happens("late_landing"):
            self._land_later(write)
            raise OutcomeUnknown(f"injected: no answer to the write of {key!r}, which lands later", key=key)
        lost = self._happens("lost_reply")
        result = await write()
        if lost:
            raise OutcomeUnknown(f"injected: the answer to the write of {key!r} was lost", key=key)
        return result

    def _land_later(self, write: Callable[[], Coroutine[Any, Any, object]]) -> None:
        delay = self._rng.uniform(0, self.faults.late_seconds)

        async def land() -> None:
            await self._sleep(delay)
            await write()

        task = self._spawn(land())
        # The event loop keeps only weak references to tasks; a landing must not be collected before it happened.
        self._running.add(task)
        if (when_done := getattr(task, "add_done_callback", None)) is not None:
            when_done(self._running.discard)

    async def _before_read(self, key: str) -> None:
        await self._maybe_slow()
        if self._happens("server_error"):
            raise StoreUnavailable(f"injected: 503 for {key!r}", key=key)

    async def _maybe_slow(self) -> None:
        if self._happens("slow"):
            await self._sleep(self._rng.uniform(0, self.faults.slow_seconds))

    def _happens(self, fault: str) -> bool:
        chance: float = getattr(self.faults, fault)
        # No draw for a fault that is off, so that switching one on does not reshuffle the others' past.
        if chance <= 0 or self._rng.random() >= chance:
            return False
        self.injected[fault] = self.injected.get(fault, 0) + 1
        return True
