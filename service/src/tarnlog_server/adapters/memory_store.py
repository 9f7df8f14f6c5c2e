"""A complete object store in memory: for tests, the deterministic simulation and `memory://`.

Every method runs from start to end without giving up the event loop, so each is atomic and a simulation that owns the
scheduling can replay a run. There are no threads, and time comes from the `now_ms` that was handed in.
Keys are kept sorted, so that a page of `list` costs O(log n + page).
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from tarnlog_server.adapters.store_keys import check_key, check_prefix, check_range
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing, PutResult


def _real_now_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """Objects in a dict. Whoever shares the instance shares the store, so several replicas can be simulated on one."""

    def __init__(self, name: str = "", *, now_ms: Callable[[], int] = _real_now_ms) -> None:
        self._uri = f"memory://{name}"
        self._now_ms = now_ms
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._keys: list[str] = []

    @property
    def uri(self) -> str:
        return self._uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        check_key(key)
        if key in self._objects:
            return PutResult.EXISTS
        self._store(key, data)
        return PutResult.CREATED

    async def put(self, key: str, data: bytes) -> None:
        check_key(key)
        self._store(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        check_range(start, length)
        data = self._found(key)[0]
        if start == 0 and length is None:
            return data
        return data[start:] if length is None else data[start : start + length]

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return self._info(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        check_prefix(prefix)
        first = bisect_left(self._keys, prefix)
        if start_after is not None:
            first = max(first, bisect_right(self._keys, start_after))
        page: list[ObjectInfo] = []
        for index in range(first, min(len(self._keys), first + max(limit, 0))):
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            page.append(self._info(key))
        return page

    async def delete(self, key: str) -> None:
        check_key(key)
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Nothing to release; the objects stay readable, as they would on a disk."""

    def _store(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = (bytes(data), self._now_ms())

    def _found(self, key: str) -> tuple[bytes, int]:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissing(f"there is no object {key!r} in {self._uri}", key=key) from None

    def _info(self, key: str) -> ObjectInfo:
        data, modified_ms = self._found(key)
        return ObjectInfo(key=key, size=len(data), modified_ms=modified_ms)
