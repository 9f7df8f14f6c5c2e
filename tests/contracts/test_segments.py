"""One suite for every place of segments: in memory, in SQLite, in a real Postgres."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tarnlog_server.adapters.memory_segments import MemorySegments
from tarnlog_server.adapters.sql_engine import Database, database_url
from tarnlog_server.adapters.sql_segments import PART_BYTES, SqlSegments
from tarnlog_server.ports.segments import Segment, Segments


@pytest_asyncio.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def segments(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Segments]:
    if request.param == "memory":
        yield MemorySegments()
        return
    url = f"sqlite:///{tmp_path}/index.sqlite"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.url(await server.new_database())
    database = Database(database_url(url))
    await database.prepare()
    yield SqlSegments(database)
    await database.close()


def segment(number: int, size: int = 100) -> Segment:
    data = random.Random(number).randbytes(size)
    return Segment(f"{number:064x}", f"t/manifest-{number}.avro", 1000 + number, f'{{"n": {number}}}', data, "d" * 32)


async def test_what_was_put_comes_back_whole(segments: Segments) -> None:
    for one in (segment(1, 0), segment(2, 5), segment(3, PART_BYTES), segment(4, 3 * PART_BYTES + 1)):
        await segments.put(one, 1)
        assert await segments.get(one.sha256) == one
    assert await segments.get(segment(9).sha256) is None


async def test_putting_again_replaces(segments: Segments) -> None:
    await segments.put(segment(1, 3 * PART_BYTES), 1)
    smaller = msgspec.structs.replace(segment(1), data=b"less", bounds="{}")
    await segments.put(smaller, 2)
    assert await segments.get(smaller.sha256) == smaller


async def test_bounds_are_those_of_what_is_there(segments: Segments) -> None:
    for number in (1, 2):
        await segments.put(segment(number), 1)
    wanted = [segment(number).sha256 for number in (2, 3)]
    assert await segments.bounds(wanted) == {segment(2).sha256: '{"n": 2}'}
    assert await segments.bounds([]) == {}


async def test_those_put_longest_ago_go_first(segments: Segments) -> None:
    for number in (3, 1, 2):
        await segments.put(segment(number), 10 + number if number < 3 else 1)
    assert await segments.shrink(300) == 0
    assert await segments.shrink(299) == 1
    assert await segments.get(segment(3).sha256) is None
    assert await segments.get(segment(1).sha256) is not None
    assert await segments.shrink(0) == 2
    assert await segments.get(segment(2).sha256) is None


async def test_the_same_from_several_at_once(segments: Segments) -> None:
    one = segment(1, 2 * PART_BYTES)
    await asyncio.gather(*(segments.put(one, number) for number in range(4)))
    assert await segments.get(one.sha256) == one
