"""Keeps the bytes of objects that never change, so that they are fetched once.

Only whole objects are kept, only those that `is_immutable` vouches for, and never that an object is missing: it may
appear at any moment. Ranges are cut from a kept object but do not make one kept. The bound is the sum of the bytes
kept; the least recently used go first, and an object larger than a quarter of the bound is not kept at all.
A put or delete through this store drops the key. A vouched-for object changed elsewhere would be served stale.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from cachetools import LRUCache

from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult


class CacheCounts(msgspec.Struct, frozen=True):
    """What the cache did so far and holds now. Reads of other keys are not counted."""

    hits: int
    misses: int
    objects: int
    bytes: int


class ImmutableCacheStore:
    """A store with a memory of its immutable objects."""

    def __init__(self, inner: ObjectStore, is_immutable: Callable[[str], bool], *, max_bytes: int) -> None:
        self._inner = inner
        self._is_immutable = is_immutable
        self._largest = max_bytes // 4
        self._kept: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=len)
        self._hits = 0
        self._misses = 0
        self._changes = 0

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and what is held."""
        return CacheCounts(
            hits=self._hits, misses=self._misses, objects=len(self._kept), bytes=int(self._kept.currsize)
        )

    def clear(self) -> None:
        """Forget everything; the next reads fetch again."""
        self._changes += 1
        self._kept.clear()

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return await self._inner.put_if_absent(key, data)  # it changes no bytes that anyone could have read

    async def put(self, key: str, data: bytes) -> None:
        try:
            await self._inner.put(key, data)
        finally:
            self._drop(key)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if not self._is_immutable(key):
            return await self._inner.get(key, start, length)
        data = self._kept.get(key)
        if data is not None and start >= 0 and (length is None or length >= 0):
            self._hits += 1
            return data if start == 0 and length is None else data[start : None if length is None else start + length]
        self._misses += 1
        changes = self._changes
        data = await self._inner.get(key, start, length)
        # What was read while a key was being put or deleted may be the old bytes: not kept.
        if start == 0 and length is None and len(data) <= self._largest and changes == self._changes:
            self._kept[key] = data
        return data

    async def head(self, key: str) -> ObjectInfo:
        return await self._inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        return await self._inner.list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        try:
            await self._inner.delete(key)
        finally:
            self._drop(key)

    async def close(self) -> None:
        self._kept.clear()
        await self._inner.close()

    def _drop(self, key: str) -> None:
        self._changes += 1
        self._kept.pop(key, None)
