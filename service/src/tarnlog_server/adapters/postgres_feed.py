"""The change feed over LISTEN and NOTIFY of Postgres, on one connection beside the pool.

Postgres delivers to whoever is connected and forgets the rest. The connection must be to Postgres itself: a pooler
that hands connections around between transactions (PgBouncer's transaction mode) loses what is listened for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import URL

from tarnlog_server.ports.change_feed import FeedSession, FeedUnavailable, News

CHANNEL = "tarnlog_versions"
MAX_PAYLOAD = 7900
"""Postgres refuses a payload of 8000 bytes. A table whose location is that long is polled."""
CLOSE_SECONDS = 1.0
_FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ValueError)
_OF_SQLALCHEMY = ("prepared_statement_cache_size", "prepared_statement_name_func", "async_fallback")
_NEWS = msgspec.json.Decoder(News)
_TELL = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class PostgresFeed:
    """News through one database."""

    def __init__(self, url: URL, *, seconds: float = 5.0) -> None:
        self._arguments: dict[str, Any] = {
            **url.translate_connect_args(username="user"),
            **{name: value for name, value in url.query.items() if name not in _OF_SQLALCHEMY},
        }
        self._seconds = seconds

    @contextlib.asynccontextmanager
    async def session(self, heard: Callable[[News], None], lost: Callable[[], None]) -> AsyncIterator[FeedSession]:
        connection = await self._connected()
        session = _Session(connection, heard, self._seconds)
        try:
            connection.add_termination_listener(lambda _: lost())
            await session.listen()
            yield session
        finally:
            with contextlib.suppress(*_FAULTS):
                await connection.close(timeout=CLOSE_SECONDS)

    async def _connected(self) -> Any:
        settings = {"application_name": "tarnlog feed"}
        try:
            # asyncpg's own limit does not count the lookup of the name.
            async with asyncio.timeout(self._seconds):
                return await asyncpg.connect(
                    **self._arguments, timeout=self._seconds, command_timeout=self._seconds, server_settings=settings
                )
        except _FAULTS as error:
            raise FeedUnavailable(type(error).__name__) from error


class _Session:
    def __init__(self, connection: Any, heard: Callable[[News], None], seconds: float) -> None:
        self._connection = connection
        self._heard = heard
        self._seconds = seconds

    async def listen(self) -> None:
        await self._asked(self._connection.add_listener(CHANNEL, self._notified))

    async def tell(self, news: Iterable[News]) -> None:
        payloads = [text for one in news if len((text := msgspec.json.encode(one).decode()).encode()) <= MAX_PAYLOAD]
        await self._asked(self._connection.execute(_TELL, CHANNEL, payloads))

    async def check(self) -> None:
        await self._asked(self._connection.execute("SELECT 1"))

    def _notified(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        try:
            news = _NEWS.decode(str(payload))
        except (msgspec.DecodeError, ValueError):
            return
        self._heard(news)

    async def _asked(self, question: Any) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await question
        except _FAULTS as error:
            raise FeedUnavailable(type(error).__name__) from error
