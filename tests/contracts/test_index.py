"""One suite for every index: in memory, in SQLite, in a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tarnlog.protocol.actions import SubCommit
from tarnlog_server.adapters import sql_index, sql_schema
from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.adapters.sql_engine import Database, database_url
from tarnlog_server.adapters.sql_index import SqlIndex
from tarnlog_server.codec.index_rows import change_of, commits_of
from tarnlog_server.core.index_rows import Change, IndexWrong, TableFacts
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.index import Index, IndexGap

HERE = "memory://w/tables/orders"
OTHER = "memory://w/tables/other"


@pytest_asyncio.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Index]:
    if request.param == "memory":
        yield MemoryIndex()
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/index.sqlite"
    else:
        server = request.getfixturevalue("postgres_server")
        url = server.url(await server.new_database())
    made = SqlIndex(Database(database_url(url)))
    await made.prepare()
    yield made
    await made.close()


def uuid(number: int) -> str:
    return f"018d0000-0000-7000-8000-{number:012d}"


def record(version: int, *actions: Any, commits: int = 1) -> VersionRecord:
    subs = tuple(
        SubCommit(
            commit_id=uuid(version * 100 + seq),
            seq=seq,
            operation="WRITE \u0000 ü",
            operation_parameters={"mode": "Append", "deep": {"n": None}},
            operation_metrics={"files": seq},
            is_blind_append=True,
            request_hash=f"hash-{version}-{seq}",
            committed_by="etl" if seq else None,
        )
        for seq in range(commits)
    )
    return VersionRecord(version, 1000 + 10 * version, f"put-{version}", subs, tuple(actions))


def changes(first: int, last: int, location: str = HERE) -> list[Change]:
    return [change_of(location, record(version)) for version in range(first, last + 1)]


def facts(version: int = 0, location: str = HERE, **fields: Any) -> TableFacts:
    base = TableFacts(location, "sales.orders", "id-1", version, 1000, 3, 2**62, None)
    return msgspec.structs.replace(base, **fields)


async def test_what_was_put_comes_back(index: Index) -> None:
    made = [change_of(HERE, record(version, commits=3)) for version in range(5)]
    table = await index.put(facts(4), made)
    assert (table.first, table.last) == (0, 4)
    assert table.content == sum(change.row.checksum for change in made)
    assert await index.table(HERE) == table
    rows = await index.history(HERE, 1, 3)
    assert rows == [change.row for change in made[1:4]]
    commits = commits_of(HERE, rows[0])
    assert [commit.seq for commit in commits] == [0, 1, 2]
    assert commits[2].operation == "WRITE \u0000 ü"
    assert commits[2].metrics == {"files": 2}
    assert commits[2].parameters == {"mode": "Append", "deep": {"n": None}}
    assert commits[2].request_hash == "hash-1-2"
    assert commits[2].blind
    assert [commit.by for commit in commits] == [None, "etl", "etl"]


async def test_nothing_is_there_at_first(index: Index) -> None:
    assert await index.table(HERE) is None
    assert await index.history(HERE, 0, 100) == []
    assert await index.around(HERE, 1000) == []
    assert await index.outcome(HERE, uuid(1)) is None
    assert await index.count(HERE) == (0, 0, -1, 0)
    await index.trim(HERE, 5)
    await index.forget(HERE)


async def test_putting_again_changes_nothing(index: Index) -> None:
    before = await index.put(facts(4), changes(0, 4))
    assert await index.put(facts(4), changes(0, 4)) == before
    assert await index.put(facts(4), changes(2, 3)) == before
    assert await index.count(HERE) == (5, 0, 4, before.content)
    after = await index.put(facts(6), changes(3, 6))
    assert (after.first, after.last) == (0, 6)
    assert await index.count(HERE) == (7, 0, 6, after.content)


async def test_a_run_grows_at_both_ends_and_never_gets_a_hole(index: Index) -> None:
    await index.put(facts(10), changes(8, 10))
    for first, last in ((12, 13), (3, 6)):
        with pytest.raises(IndexGap) as gap:
            await index.put(facts(13), changes(first, last))
        assert (gap.value.first, gap.value.last) == (8, 10)
    assert await index.count(HERE) == (3, 8, 10, sum(change.row.checksum for change in changes(8, 10)))
    await index.put(facts(11), changes(11, 11))
    table = await index.put(facts(11), changes(4, 7))
    assert (table.first, table.last) == (4, 11)
    assert [row.version for row in await index.history(HERE, 0, 100)] == list(range(4, 12))


async def test_versions_out_of_order_are_refused(index: Index) -> None:
    with pytest.raises(ValueError):
        await index.put(facts(4), [*changes(0, 1), *changes(3, 4)])
    assert await index.history(HERE, 0, 10) == []


async def test_another_content_for_a_version_is_noticed_and_changes_nothing(index: Index) -> None:
    before = await index.put(facts(2), changes(0, 2))
    other = [change_of(HERE, record(version, commits=2)) for version in (2, 3)]
    with pytest.raises(IndexWrong):
        await index.put(facts(3), other)
    assert await index.table(HERE) == before
    assert await index.outcome(HERE, uuid(300)) is None


async def test_facts_never_go_back(index: Index) -> None:
    await index.put(facts(5, num_files=50), changes(5, 5))
    table = await index.put(facts(4, num_files=40), changes(4, 4))
    assert table.facts.num_files == 50
    table = await index.put(facts(6, num_files=60, name="sales.renamed", num_records=7), [])
    assert (table.facts.num_files, table.facts.name, table.facts.num_records, table.last) == (60, "sales.renamed", 7, 5)
    assert table.facts.total_bytes == 2**62


async def test_tables_do_not_mix(index: Index) -> None:
    await index.put(facts(2), changes(0, 2))
    await index.put(facts(9, location=OTHER, name="a.b"), changes(7, 9, OTHER))
    kept = [await index.table(location) for location in (OTHER, HERE)]
    assert [(one.facts.name, one.last) for one in kept if one is not None] == [("a.b", 9), ("sales.orders", 2)]
    rows = await index.history(OTHER, 0, 10)
    assert [row.version for row in rows] == [7, 8, 9]
    with pytest.raises(IndexWrong):
        commits_of(HERE, rows[0])
    await index.forget(OTHER)
    assert await index.history(OTHER, 0, 10) == []
    assert await index.outcome(OTHER, uuid(700)) is None
    assert [row.version for row in await index.history(HERE, 0, 10)] == [0, 1, 2]


@pytest.mark.parametrize(
    "time, expected",
    [(999, [0]), (1000, [0, 1]), (1009, [0, 1]), (1010, [1, 2]), (1040, [4]), (9999, [4])],
)
async def test_the_versions_around_a_time(index: Index, time: int, expected: list[int]) -> None:
    await index.put(facts(4), changes(0, 4))
    assert [row.version for row in await index.around(HERE, time)] == expected


async def test_a_commit_is_found_at_its_first_place(index: Index) -> None:
    await index.put(facts(4), changes(3, 4))
    assert await index.outcome(HERE, uuid(400)) == (4, 0)
    assert await index.outcome(HERE, uuid(401)) is None
    twice = msgspec.structs.replace(changes(2, 2)[0], commit_ids=((uuid(400), 7), (uuid(200), 8)))
    await index.put(facts(4), [twice])
    assert await index.outcome(HERE, uuid(400)) == (2, 7)
    again = msgspec.structs.replace(changes(5, 5)[0], commit_ids=((uuid(400), 1),))
    await index.put(facts(5), [again])
    assert await index.outcome(HERE, uuid(400)) == (2, 7)


async def test_trimming_keeps_the_rest_and_its_content(index: Index) -> None:
    await index.put(facts(9), changes(0, 9))
    await index.trim(HERE, 6)
    table = await index.table(HERE)
    assert table is not None
    assert (table.first, table.last) == (6, 9)
    assert await index.count(HERE) == (4, 6, 9, table.content)
    assert await index.outcome(HERE, uuid(500)) is None
    assert await index.outcome(HERE, uuid(600)) == (6, 0)
    await index.trim(HERE, 3)
    assert await index.table(HERE) == table
    await index.trim(HERE, 100)
    table = await index.table(HERE)
    assert table is not None
    assert (table.first, table.last) == (9, 9)


async def test_many_rows_at_once(index: Index) -> None:
    made = [change_of(HERE, record(version, commits=50)) for version in range(200)]
    await index.put(facts(199), made)
    assert len(await index.history(HERE, 0, 1000)) == 200
    assert await index.outcome(HERE, uuid(19949)) == (199, 49)


async def test_preparing_again_is_fine(index: Index) -> None:
    await index.put(facts(2), changes(0, 2))
    await index.prepare()
    assert (await index.count(HERE))[0] == 3


@pytest.mark.parametrize("field, value", [("version", 2), ("timestamp", 1), ("commits", "[]"), ("checksum", 1)])
def test_a_row_that_was_altered_is_noticed(field: str, value: Any) -> None:
    row = changes(1, 1)[0].row
    with pytest.raises(IndexWrong):
        commits_of(HERE, msgspec.structs.replace(row, **{field: value}))


@pytest.mark.parametrize("index", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_a_table_forgotten_while_it_is_written_leaves_no_rows(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer holds the table's row. What it inserts meanwhile must go too, or nothing will ever delete it."""
    assert isinstance(index, SqlIndex)
    await index.put(facts(4), changes(0, 4))
    inserted, go = asyncio.Event(), asyncio.Event()
    right = sql_index._insert

    async def slow(*args: Any) -> None:
        await right(*args)
        inserted.set()
        await go.wait()

    monkeypatch.setattr(sql_index, "_insert", slow)
    writing = asyncio.create_task(index.put(facts(9), changes(5, 9)))
    await inserted.wait()
    forgetting = asyncio.create_task(index.forget(HERE))
    await asyncio.sleep(0.3)  # long enough for it to reach the row that the writer holds
    go.set()
    await asyncio.gather(writing, forgetting)
    assert await index.table(HERE) is None

    async def left(connection: AsyncConnection) -> dict[str, int]:
        known = select(sql_schema.tables.c.id)
        return {
            table.name: (await connection.execute(select(func.count()).where(table.c.table.not_in(known)))).scalar_one()
            for table in sql_schema.OF_A_TABLE
        }

    assert set((await index.database.run(left)).values()) == {0}
