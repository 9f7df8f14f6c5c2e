"""Separate bounded lanes for listing, reading and checkpointing: one kind of work cannot take the places of another.

A place is held for one call to the store, or for one slice of encoding, and never while another is waited for: lanes
cannot block each other. Commits create their versions outside of all lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult

T = TypeVar("T")


class LaneSizes(Struct, frozen=True):
    """How much one replica does at the same time, in all tables together."""

    listing: int = 16
    reading: int = 64
    checkpointing: int = 8


class Lanes:
    """The lanes of one replica."""

    def __init__(self, sizes: LaneSizes | None = None) -> None:
        sizes = sizes or LaneSizes()
        self.listing = asyncio.Semaphore(sizes.listing)
        self.reading = asyncio.Semaphore(sizes.reading)
        self.checkpointing = asyncio.Semaphore(sizes.checkpointing)


class LanedStore:
    """A store whose lists and reads take a place in their lane. Writes pass: commits must not wait for anybody."""

    def __init__(self, inner: ObjectStore, lanes: Lanes) -> None:
        self._inner = inner
        self._lanes = lanes

    @property
    def uri(self) -> str:
        return self._inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return await self._inner.put_if_absent(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self._inner.put(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        async with self._lanes.reading:
            return await self._inner.get(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        async with self._lanes.reading:
            return await self._inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        async with self._lanes.listing:
            return await self._inner.list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def close(self) -> None:
        await self._inner.close()


class PartsInFlight:
    """Sends the parts of a state, some at the same time: `async with` it, and all are there when it ends.

    The first failure is raised by the next `send`, or at the end; what is still on its way is then given up, which
    costs nothing, because nobody looks for parts before the object that completes them.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._tasks: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> PartsInFlight:
        return self

    async def send(self, put: Callable[[], Awaitable[object]]) -> None:
        """Begin one more, as soon as there is a place: so no more parts are in memory than places, and one."""
        while len(self._tasks) >= self._places:
            await self._some(asyncio.FIRST_COMPLETED)
        self._tasks.add(asyncio.ensure_future(_done(put)))

    async def _some(self, when: str) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=when)
        for task in done:
            task.result()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None and self._tasks:
                await self._some(asyncio.FIRST_EXCEPTION)
        finally:
            rest, self._tasks = self._tasks, set()
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)


async def _done(put: Callable[[], Awaitable[object]]) -> object:
    return await put()


async def some_at_a_time(places: int, work: list[Callable[[], Awaitable[T]]]) -> list[T]:
    """What each gives, in their order; at most so many at the same time. After a failure the others are given up."""
    free = asyncio.Semaphore(places)

    async def one(begin: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await begin()

    if len(work) == 1:
        return [await work[0]()]
    tasks = [asyncio.ensure_future(one(begin)) for begin in work]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
