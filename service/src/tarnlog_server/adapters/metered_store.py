"""Counts and times every operation of a store, and tells a sink.

The sink gets (operation, code, seconds, bytes); bytes are those written or read, 0 for the rest. It must be quick and
must not raise: it runs inside every operation.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreError,
    StoreUnavailable,
)

T = TypeVar("T")

Sink = Callable[[str, str, float, int], None]
"""(operation, code, seconds, bytes); code is one of ok, exists, missing, unknown, unavailable, refused."""


class MeteredStore:
    """A store that reports what it does. A cancelled operation is reported as `unknown`: nobody saw its end."""

    def __init__(self, inner: ObjectStore, sink: Sink, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._sink = sink
        self._monotonic = monotonic

    @property
    def uri(self) -> str:
        return self._inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return await self._measured("put_if_absent", self._inner.put_if_absent(key, data), len(data))

    async def put(self, key: str, data: bytes) -> None:
        await self._measured("put", self._inner.put(key, data), len(data))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._measured("get", self._inner.get(key, start, length), 0)

    async def head(self, key: str) -> ObjectInfo:
        return await self._measured("head", self._inner.head(key), 0)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        return await self._measured("list", self._inner.list(prefix, start_after, limit), 0)

    async def delete(self, key: str) -> None:
        await self._measured("delete", self._inner.delete(key), 0)

    async def close(self) -> None:
        await self._inner.close()

    async def _measured(self, operation: str, work: Awaitable[T], size: int) -> T:
        begun = self._monotonic()
        code = "unknown"
        try:
            result = await work
            code = "exists" if result is PutResult.EXISTS else "ok"
            size = len(result) if isinstance(result, bytes) else size
            return result
        except StoreError as error:
            code = _code(error)
            raise
        finally:
            self._sink(operation, code, self._monotonic() - begun, size if code == "ok" else 0)


def _code(error: StoreError) -> str:
    if isinstance(error, ObjectMissing):
        return "missing"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "unavailable" if isinstance(error, StoreUnavailable) else "refused"
