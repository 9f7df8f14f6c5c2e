"""Makes every storage call slower by a fixed time, so that a benchmark on a local disk can stand in for a far store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult


class DelayedStore:
    """A store that waits `seconds` before each call."""

    def __init__(self, inner: ObjectStore, seconds: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._inner = inner
        self._seconds = seconds
        self._sleep = sleep

    @property
    def uri(self) -> str:
        return self._inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        await self._sleep(self._seconds)
        return await self._inner.put_if_absent(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self._sleep(self._seconds)
        await self._inner.put(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self._sleep(self._seconds)
        return await self._inner.get(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        await self._sleep(self._seconds)
        return await self._inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        await self._sleep(self._seconds)
        return await self._inner.list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        await self._sleep(self._seconds)
        await self._inner.delete(key)

    async def close(self) -> None:
        await self._inner.close()
