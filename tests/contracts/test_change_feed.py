"""One suite for every change feed: in memory, and over NOTIFY of a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from tarnlog_server.adapters.memory_feed import MemoryFeed
from tarnlog_server.adapters.postgres_feed import CHANNEL, PostgresFeed
from tarnlog_server.adapters.sql_engine import database_url
from tarnlog_server.ports.change_feed import ChangeFeed, FeedUnavailable, News

ONE, TWO = News("s3://w/tables/ü 'one'", 7, "a"), News("file:///w/two", 8, "b")
SECONDS = 30.0


class Place(msgspec.Struct, frozen=True):
    """A feed, and how its connections are broken."""

    feed: ChangeFeed
    break_all: Callable[[], Awaitable[None]]
    url: str = ""


@pytest_asyncio.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.postgres)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "memory":
        memory = MemoryFeed()

        async def down() -> None:
            memory.up = False
            memory.up = True

        yield Place(memory, down)
        return
    server = request.getfixturevalue("postgres_server")
    name = await server.new_database()

    async def terminate() -> None:
        await server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    yield Place(PostgresFeed(database_url(server.url(name))), terminate, server.url(name))


class Ear:
    """What a session heard."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[News] = asyncio.Queue()
        self.lost = asyncio.Event()

    async def hear(self) -> News:
        async with asyncio.timeout(SECONDS):
            return await self.queue.get()


async def test_everyone_hears_what_anyone_tells_in_order(place: Place) -> None:
    first, second = Ear(), Ear()
    async with (
        place.feed.session(first.queue.put_nowait, first.lost.set) as telling,
        place.feed.session(second.queue.put_nowait, second.lost.set),
    ):
        await telling.tell([ONE, TWO])
        await telling.tell([])
        await telling.tell([ONE])
        for ear in (first, second):
            assert [await ear.hear() for _ in range(3)] == [ONE, TWO, ONE]


async def test_who_left_hears_nothing(place: Place) -> None:
    left, stayed = Ear(), Ear()
    async with place.feed.session(left.queue.put_nowait, left.lost.set):
        pass
    async with place.feed.session(stayed.queue.put_nowait, stayed.lost.set) as session:
        await session.tell([ONE])
        assert await stayed.hear() == ONE
    assert left.queue.empty()


async def test_a_broken_connection_is_told_and_a_new_one_works(place: Place) -> None:
    ear = Ear()
    async with place.feed.session(ear.queue.put_nowait, ear.lost.set) as session:
        await session.check()
        await place.break_all()
        async with asyncio.timeout(SECONDS):
            await ear.lost.wait()
        with pytest.raises(FeedUnavailable):
            await session.check()
        with pytest.raises(FeedUnavailable):
            await session.tell([ONE])
    async with place.feed.session(ear.queue.put_nowait, ear.lost.set) as session:
        await session.tell([TWO])
        assert await ear.hear() == TWO


@pytest.mark.parametrize("place", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_what_is_too_long_or_no_news_is_left_out(place: Place) -> None:
    ear = Ear()
    async with place.feed.session(ear.queue.put_nowait, ear.lost.set) as session:
        stranger = await asyncpg.connect(place.url)
        for text in ("", "no json", "[]", '{"location": 1}'):
            await stranger.execute("SELECT pg_notify($1, $2)", CHANNEL, text)
        await stranger.close()
        await session.tell([News("s3://w/" + "ü" * 4000, 1, "a"), ONE])
        assert await ear.hear() == ONE
        assert ear.queue.empty()


async def test_a_feed_that_is_away_says_so() -> None:
    memory = MemoryFeed()
    memory.up = False
    nobody = PostgresFeed(database_url("postgresql://nobody@127.0.0.1:1/none"), seconds=2)
    for feed in (memory, nobody):
        with pytest.raises(FeedUnavailable):
            async with feed.session(lambda _: None, lambda: None):
                raise AssertionError("connected")
