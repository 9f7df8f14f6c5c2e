"""News among replicas: told once per burst, looked at once at a time, and made up for after a broken connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tarnlog_server.adapters.memory_feed import MemoryFeed
from tarnlog_server.ports.change_feed import News
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.change_news import ChangeNews
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create


class Counted(Telemetry):
    def __init__(self) -> None:
        self.counts = {"sent": 0, "received": 0}

    def news(self, direction: str, count: int) -> None:
        self.counts[direction] += count


class Pair:
    """Two replicas on one warehouse that tell each other; each has the table open."""

    def __init__(self) -> None:
        self.warehouse = Warehouse()
        self.feed = MemoryFeed()
        self.counted: list[Counted] = []
        self.news: list[ChangeNews] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.a, self.b = self._replica("a"), self._replica("b")

    def _replica(self, name: str) -> Coordinator:
        made = self.warehouse.replica()
        counted = Counted()
        news = ChangeNews(self.feed, made.open_tables, self.warehouse.world, counted, replica=name)
        made.open_tables.written = news.written
        self.counted.append(counted)
        self.news.append(news)
        return made

    async def open(self) -> Pair:
        await create(self.a)
        for replica in (self.a, self.b):
            await replica.open_tables.get(ORDERS)
        self._tasks = [asyncio.create_task(news.run()) for news in self.news]
        await until(lambda: all(news.connected for news in self.news))
        return self

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.warehouse.close()


async def until(true: Callable[[], Any]) -> None:
    for _ in range(20_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("never")


def head(replica: Coordinator) -> int:
    (table,) = replica.open_tables.opened()
    return table.live.head.version


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = await Pair().open()
    yield made
    await made.close()


async def test_a_commit_of_one_replica_is_seen_by_the_other_without_being_asked(pair: Pair) -> None:
    done = await commit(pair.a, add_line("a"))
    await until(lambda: head(pair.b) == done.version)
    back = await commit(pair.b, add_line("b"))
    await until(lambda: head(pair.a) == back.version)


async def test_what_a_replica_told_itself_is_passed_over(pair: Pair) -> None:
    await commit(pair.a, add_line("a"))
    await until(lambda: pair.counted[1].counts["received"] == 1)
    assert pair.counted[0].counts == {"sent": 1, "received": 0}


async def test_a_burst_is_told_as_one() -> None:
    made = Pair()
    await create(made.a)
    for version in range(100):
        made.news[0].written("memory://w/somewhere", version)
    task = asyncio.create_task(made.news[0].run())
    await until(lambda: made.counted[0].counts["sent"])
    assert made.counted[0].counts["sent"] == 1
    task.cancel()
    await made.close()


async def test_news_of_what_is_known_or_not_open_cost_nothing(pair: Pair) -> None:
    (table,) = pair.b.open_tables.opened()
    pair.warehouse.store.lists.clear()
    pair.feed.told(News(table.live.location, table.live.head.version, "x"))
    pair.feed.told(News("memory://w/not-open-here", 99, "x"))
    await until(lambda: pair.counted[1].counts["received"] == 2)
    await until(lambda: not pair.news[1]._looking)
    assert pair.warehouse.store.lists == []


async def test_what_was_missed_is_looked_at_when_the_connection_is_back(pair: Pair) -> None:
    pair.feed.up = False
    await until(lambda: not any(news.connected for news in pair.news))
    done = await commit(pair.a, add_line("a"))
    assert head(pair.b) < done.version
    pair.feed.up = True
    await until(lambda: head(pair.b) == done.version)


async def test_a_table_that_cannot_be_read_does_not_stop_the_others(pair: Pair) -> None:
    (table,) = pair.b.open_tables.opened()
    key = table.live.location.removeprefix("memory://w/") + f"/_transaction_log/{1:020d}.json"
    pair.warehouse.store.overwrite(key, b"broken")
    pair.feed.told(News(table.live.location, 1, "x"))
    await until(lambda: not table.live.opened)
    await until(lambda: not pair.news[1]._looking)
    assert pair.news[1].connected


async def test_the_quiet_connection_is_asked_whether_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that breaks without a word is found by asking."""
    monkeypatch.setattr("tarnlog_server.usecases.change_news.CHECK_SECONDS", 0.001)
    made = await Pair().open()
    made.feed._sessions.clear()  # gone, and nobody was told
    await until(lambda: len(made.feed._sessions) == 2)
    done = await commit(made.a, add_line("a"))
    await until(lambda: head(made.b) == done.version)
    await made.close()
