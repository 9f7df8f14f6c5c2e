"""Tries reads, lists and deletes again when the store is unavailable for a moment.

Writes are passed through untouched: repeating a put is a decision of the protocol, not of a wrapper. A refusal or a
missing object is an answer and is never asked for twice.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult, StoreUnavailable

T = TypeVar("T")


class RetryingReadsStore:
    """A store that waits out short failures: full jitter up to `base_seconds` * 2^n, at most `max_seconds` a pause."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
        attempts: int = 4,
        base_seconds: float = 0.05,
        max_seconds: float = 1.0,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts counts the first try too, so it is at least 1")
        self._inner = inner
        self._sleep = sleep
        self._rng = rng
        self._attempts = attempts
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds

    @property
    def uri(self) -> str:
        return self._inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return await self._inner.put_if_absent(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self._inner.put(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._tried(lambda: self._inner.get(key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        return await self._tried(lambda: self._inner.head(key))

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        return await self._tried(lambda: self._inner.list(prefix, start_after, limit))

    async def delete(self, key: str) -> None:
        await self._tried(lambda: self._inner.delete(key))

    async def close(self) -> None:
        await self._inner.close()

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(self._attempts - 1):
            try:
                return await work()
            except StoreUnavailable:
                ceiling = min(self._max_seconds, self._base_seconds * 2**attempt)
                await self._sleep(self._rng.uniform(0, ceiling))
        return await work()
