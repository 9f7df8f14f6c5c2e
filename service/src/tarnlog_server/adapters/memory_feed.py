"""A change feed in memory, for tests and simulations: replicas in one process share one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

from tarnlog_server.ports.change_feed import FeedSession, FeedUnavailable, News


class MemoryFeed:
    """A complete twin of the feed in a database. `up` may be set to False: then nobody is connected."""

    def __init__(self) -> None:
        self._sessions: list[_Session] = []
        self._up = True

    @property
    def up(self) -> bool:
        return self._up

    @up.setter
    def up(self, up: bool) -> None:
        self._up = up
        if not up:
            broken, self._sessions = self._sessions, []
            for session in broken:
                session.lost()

    @contextlib.asynccontextmanager
    async def session(self, heard: Callable[[News], None], lost: Callable[[], None]) -> AsyncIterator[FeedSession]:
        session = _Session(self, heard, lost)
        await session.connect()
        try:
            yield session
        finally:
            session.leave()

    def told(self, news: News) -> None:
        """Everyone hears it, soon."""
        for session in self._sessions:
            asyncio.get_running_loop().call_soon(session.heard, news)


class _Session:
    def __init__(self, feed: MemoryFeed, heard: Callable[[News], None], lost: Callable[[], None]) -> None:
        self._feed = feed
        self.heard = heard
        self.lost = lost

    async def connect(self) -> None:
        await asyncio.sleep(0)
        if not self._feed.up:
            raise FeedUnavailable("the feed is down")
        self._feed._sessions.append(self)

    def leave(self) -> None:
        if self in self._feed._sessions:
            self._feed._sessions.remove(self)

    async def tell(self, news: Iterable[News]) -> None:
        await self.check()
        for one in news:
            self._feed.told(one)

    async def check(self) -> None:
        await asyncio.sleep(0)
        if self not in self._feed._sessions:
            raise FeedUnavailable("the feed is down")
