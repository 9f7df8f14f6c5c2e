"""Storage in the simulation: one truth in memory, and a link of each replica to it that delays, loses and fails.

A request travels to the truth, is applied there, and the answer travels back. What was sent is applied even if the
replica that sent it has died meanwhile: that is how a late PUT happens. Reads see every write that was applied before.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.ports.object_store import (
    ObjectInfo,
    OutcomeUnknown,
    PutResult,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

T = TypeVar("T")
Trace = list[tuple[object, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Faults:
    """Chances of each fault, from 0 to 1."""

    lost_reply: float = 0.0  # applied, the answer never comes
    late_landing: float = 0.0  # the answer never comes, and it is applied only up to `late_seconds` later
    conflict: float = 0.0  # 409 or 5xx to a write: not applied
    refused: float = 0.0  # the store says no to a write
    read_error: float = 0.0  # 5xx or a short body to a get, head, list or delete
    slow: float = 0.0
    slow_seconds: float = 2.0
    late_seconds: float = 5.0
    timeout_seconds: float = 1.0  # how long a replica waits before it believes that an answer is lost


class Truth(MemoryStore):
    """The store itself, with what the checker needs to know: when each object was created, and what was deleted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], trace: Trace) -> None:
        super().__init__("sim", now_ms=now_ms)
        self.created: dict[str, float] = {}
        self.deleted: dict[str, tuple[bytes, int]] = {}
        self.deletions: list[tuple[str, float]] = []
        self.planted: set[str] = set()
        """Objects that no writer made."""
        self.broken_create = False
        self.operations = 0
        self.on_operation: Callable[[int], None] = lambda count: None
        self._loop = loop
        self._trace = trace

    def create(self, key: str, data: bytes, by: str) -> PutResult:
        """put_if_absent as it happens at the store: at one instant. The defect `broken_create` overwrites instead."""
        if self.broken_create:
            done(self.put(key, data))
            result = PutResult.CREATED
        else:
            result = done(self.put_if_absent(key, data))
        if result is PutResult.CREATED and key not in self.deleted:
            self.created[key] = self._loop.time()
        self._trace.append((self._loop.time(), by, result.value, key))
        return result

    def vandalise(self, key: str, data: bytes | None) -> None:
        """Change an object behind everybody's back, or (None) lose it. `raw` goes on to show what was written."""
        if key in self._objects:
            self.deleted.setdefault(key, self._objects[key])
        else:
            self.planted.add(key)
        done(super().delete(key))
        if data is not None:
            done(self.put(key, data))

    async def delete(self, key: str) -> None:
        if key in self._objects:
            self.deleted.setdefault(key, self._objects[key])
            self.deletions.append((key, self._loop.time()))
        await super().delete(key)

    def location(self, table: str) -> str | None:
        """Where a table is now, by the newest entry of its name; None when it has none."""
        prefix = f"_catalog/{table.replace('.', '/')}/"
        entries = done(self.list(prefix, limit=1000))
        newest = max(entries, key=lambda info: int(info.key.removeprefix(prefix).removesuffix(".json")), default=None)
        entry = json.loads(self._objects[newest.key][0]) if newest is not None else {}
        location: str | None = entry.get("location")
        return location

    def raw(self) -> dict[str, tuple[bytes, int]]:
        """The bytes and time of every object there ever was; of one that was deleted and came back, the first."""
        written = {key: found for key, found in self._objects.items() if key not in self.planted}
        return {**written, **self.deleted}

    def missing(self) -> set[str]:
        """Objects that were deleted and did not come back."""
        return self.deleted.keys() - self._objects.keys()

    def count(self) -> None:
        """An operation begins somewhere; whoever listens may crash a replica at this point."""
        self.operations += 1
        self.on_operation(self.operations)


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the store in memory must not wait")


class Link:
    """One replica's (or an outside writer's) way to the truth. `cut` when that replica has died."""

    def __init__(self, truth: Truth, faults: Faults, rng: random.Random, name: str, trace: Trace) -> None:
        self.faults = faults
        self.name = name
        self.latency = 0.004
        self.script: deque[str] = deque()
        """Faults of the next writes, for scenarios: lost, late, never, conflict, refused, or nothing."""
        self._truth = truth
        self._rng = rng
        self._trace = trace
        self._cut = False

    @property
    def uri(self) -> str:
        return self._truth.uri

    def cut(self) -> None:
        """Nothing more is sent or received; what is on its way arrives."""
        self._cut = True

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return await self._write(key, lambda: self._truth.create(key, data, self.name))

    async def put(self, key: str, data: bytes) -> None:
        await self._write(key, lambda: done(self._truth.put(key, data)))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._read("get", key, lambda: done(self._truth.get(key, start, length)))

    async def head(self, key: str) -> ObjectInfo:
        return await self._read("head", key, lambda: done(self._truth.head(key)))

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        return await self._read("list", prefix, lambda: done(self._truth.list(prefix, start_after, limit)))

    async def delete(self, key: str) -> None:
        await self._read("delete", key, lambda: done(self._truth.delete(key)))

    async def close(self) -> None:
        """Nothing to release."""

    async def _write(self, key: str, apply: Callable[[], T]) -> T:
        loop = self._sending()
        fault = self.script.popleft() if self.script else self._write_fault()
        lost = OutcomeUnknown(f"no answer for {key}", key=key)
        if fault == "lost":
            loop.call_later(self._travel(), apply)
            await self._fail(lost, self.faults.timeout_seconds, fault)
        elif fault == "late":
            loop.call_later(self._rng.uniform(0.1, self.faults.late_seconds), apply)
            await self._fail(lost, self.faults.timeout_seconds, fault)
        elif fault == "never":
            await self._fail(lost, self.faults.timeout_seconds, fault)
        elif fault == "conflict":
            await self._fail(OutcomeUnknown(f"409 for {key}", key=key), self._travel(), fault)
        elif fault == "refused":
            await self._fail(StoreRefused(f"403 for {key}", key=key), self._travel(), fault)
        return await self._round_trip(apply)

    def _write_fault(self) -> str:
        chance = self._rng.random()
        for fault in ("lost_reply", "late_landing", "conflict", "refused"):
            chance -= getattr(self.faults, fault)
            if chance < 0:
                return {"lost_reply": "lost", "late_landing": "late"}.get(fault, fault)
        return ""

    async def _read(self, what: str, key: str, fetch: Callable[[], T]) -> T:
        self._sending()
        if self._rng.random() < self.faults.read_error:
            await self._fail(StoreUnavailable(f"503 for {key}", key=key), self._travel(), f"{what} 503")
        self._trace.append((asyncio.get_running_loop().time(), self.name, what, key))
        return await self._round_trip(fetch)

    async def _round_trip(self, at_store: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        back = self._travel()

        def arrive() -> None:
            try:
                result = at_store()
            except StoreError as error:
                loop.call_later(back, _deliver, answer, None, error)
            else:
                loop.call_later(back, _deliver, answer, result, None)

        loop.call_later(self._travel(), arrive)
        return await answer

    async def _fail(self, error: StoreError, after: float, what: str) -> NoReturn:
        await asyncio.sleep(after)
        self._trace.append((asyncio.get_running_loop().time(), self.name, what, error.key))
        raise error

    def _sending(self) -> asyncio.AbstractEventLoop:
        if self._cut:
            raise asyncio.CancelledError("the replica is dead")
        self._truth.count()
        return asyncio.get_running_loop()

    def _travel(self) -> float:
        seconds = self.latency * (0.2 + self._rng.random())
        if self.faults.slow and self._rng.random() < self.faults.slow:
            seconds += self._rng.random() * self.faults.slow_seconds
        return seconds


def _deliver(answer: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
