"""The index in Postgres or SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Row, Select, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tarnlog_server.adapters.memory_index import check_run
from tarnlog_server.adapters.sql_bulk import insert_rows
from tarnlog_server.adapters.sql_engine import Database
from tarnlog_server.adapters.sql_schema import OF_A_TABLE, commits, tables, versions
from tarnlog_server.ports.index import (
    Change,
    IndexedTable,
    IndexWrong,
    TableFacts,
    VersionRow,
)

_Row: TypeAlias = "Row[*tuple[Any, ...]]"
_FACTS = TableFacts.__struct_fields__
_VERSION = (versions.c.version, versions.c.timestamp, versions.c.commits, versions.c.checksum)
# What a row outside the run said was never meant to be there: ours takes its place.
_VERSION_CONFLICT = (
    'ON CONFLICT ("table", "version") DO UPDATE SET "timestamp" = excluded."timestamp", '
    '"commits" = excluded."commits", "checksum" = excluded."checksum"'
)
_COMMIT_CONFLICT = (
    'ON CONFLICT ("table", "commit_id") DO UPDATE SET "version" = excluded."version", "seq" = excluded."seq" '
    'WHERE excluded."version" < tarnlog_commits."version"'
)


class SqlIndex:
    """An Index. Rows of a table belong to its number in `tarnlog_tables`, whose row a writer holds while it writes."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def prepare(self) -> None:
        await self.database.prepare()

    async def put(self, facts: TableFacts, changes: Sequence[Change]) -> IndexedTable:
        async with self.database.begin() as connection:
            number, known = await self._hold(connection, facts)
            check_run(known, changes)
            await self._check_same(connection, number, known, changes)
            new = [change for change in changes if not known.first <= change.row.version <= known.last]
            await _insert(connection, number, new)
            table = _extended(known, facts, new)
            await connection.execute(update(tables).where(tables.c.id == number).values(_row_of(table)))
        return table

    async def table(self, location: str) -> IndexedTable | None:
        row = await self._first(select(tables).where(tables.c.location == location))
        return None if row is None else _table_of(row)

    async def history(self, location: str, first: int, last: int) -> list[VersionRow]:
        wanted = _of(location, versions, *_VERSION).where(versions.c.version.between(first, last))
        return [VersionRow(*row) for row in await self._all(wanted.order_by(versions.c.version))]

    async def around(self, location: str, timestamp: int) -> list[VersionRow]:
        time = versions.c.timestamp
        before = _of(location, versions, *_VERSION).where(time <= timestamp).order_by(time.desc()).limit(1)
        after = _of(location, versions, *_VERSION).where(time > timestamp).order_by(time).limit(1)
        found = [*await self._all(before), *await self._all(after)]
        return [VersionRow(*row) for row in found]

    async def outcome(self, location: str, commit_id: str) -> tuple[int, int] | None:
        wanted = _of(location, commits, commits.c.version, commits.c.seq).where(commits.c.commit_id == commit_id)
        row = await self._first(wanted)
        return None if row is None else (row[0], row[1])

    async def count(self, location: str) -> tuple[int, int, int, int]:
        version = versions.c.version
        sums = (func.count(), func.min(version), func.max(version), func.sum(versions.c.checksum))
        row = await self._first(_of(location, versions, *sums))
        if row is None or not row[0]:
            return 0, 0, -1, 0
        return row[0], row[1], row[2], int(row[3])

    async def trim(self, location: str, first: int) -> None:
        async with self.database.begin() as connection:
            row = (
                await connection.execute(select(tables).where(tables.c.location == location).with_for_update())
            ).first()
            if row is None:
                return
            known = _table_of(row)
            first = min(first, known.last)
            for table in (versions, commits):
                await connection.execute(delete(table).where(table.c.table == row.id, table.c.version < first))
            left = select(func.coalesce(func.sum(versions.c.checksum), 0)).where(
                versions.c.table == row.id, versions.c.version.between(known.first, known.last)
            )
            content = int((await connection.execute(left)).scalar_one())
            values = {"first": max(known.first, first), "content": content}
            await connection.execute(update(tables).where(tables.c.id == row.id).values(values))

    async def forget(self, location: str) -> None:
        async with self.database.begin() as connection:
            # Writers hold this row too: without it, what one of them inserts meanwhile would stay for ever.
            wanted = select(tables.c.id).where(tables.c.location == location).with_for_update()
            row = (await connection.execute(wanted)).first()
            if row is None:
                return
            for table in OF_A_TABLE:
                await connection.execute(delete(table).where(table.c.table == row.id))
            await connection.execute(delete(tables).where(tables.c.id == row.id))

    async def close(self) -> None:
        await self.database.close()

    async def _hold(self, connection: AsyncConnection, facts: TableFacts) -> tuple[int, IndexedTable]:
        """The number and row of a table, made where it is missing, and ours until the transaction ends."""
        wanted = select(tables).where(tables.c.location == facts.location).with_for_update()
        row = (await connection.execute(wanted)).first()
        if row is None:
            values = _row_of(IndexedTable(facts, 0, -1, 0))
            await connection.execute(_insert_once(connection.dialect.name).values(values))
            row = (await connection.execute(wanted)).one()
        return row.id, _table_of(row)

    async def _check_same(
        self, connection: AsyncConnection, number: int, known: IndexedTable, changes: Sequence[Change]
    ) -> None:
        there = {c.row.version: c.row.checksum for c in changes if known.first <= c.row.version <= known.last}
        if not there:
            return
        wanted = select(versions.c.version, versions.c.checksum).where(
            versions.c.table == number, versions.c.version.between(min(there), max(there))
        )
        found = {row[0]: row[1] for row in await connection.execute(wanted)}
        if found != there:
            raise IndexWrong(f"versions of {known.facts.location} are missing, or there with another checksum")

    async def _first(self, query: Select[*tuple[Any, ...]]) -> _Row | None:
        async def work(connection: AsyncConnection) -> _Row | None:
            return (await connection.execute(query)).first()

        return await self.database.run(work)

    async def _all(self, query: Select[*tuple[Any, ...]]) -> Sequence[_Row]:
        async def work(connection: AsyncConnection) -> Sequence[_Row]:
            return (await connection.execute(query)).all()

        return await self.database.run(work)


async def _insert(connection: AsyncConnection, number: int, changes: Sequence[Change]) -> None:
    rows = [(number, *msgspec.structs.astuple(change.row)) for change in changes]
    await insert_rows(connection, versions, rows, _VERSION_CONFLICT)
    # The first place of an id counts, and a statement may name a key once.
    places: dict[str, tuple[int, int]] = {}
    for change in changes:
        for commit_id, seq in change.commit_ids:
            places.setdefault(commit_id, (change.row.version, seq))
    found = [(number, commit_id, *place) for commit_id, place in places.items()]
    await insert_rows(connection, commits, found, _COMMIT_CONFLICT)


def _extended(known: IndexedTable, facts: TableFacts, new: Sequence[Change]) -> IndexedTable:
    facts = facts if facts.version >= known.facts.version else known.facts
    if not new:
        return msgspec.structs.replace(known, facts=facts)
    empty = known.last < known.first
    first = new[0].row.version if empty else min(known.first, new[0].row.version)
    last = new[-1].row.version if empty else max(known.last, new[-1].row.version)
    return IndexedTable(facts, first, last, known.content + sum(change.row.checksum for change in new))


def _insert_once(dialect: str) -> Any:
    """An insert that another writer may have made first."""
    kind = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return kind(tables).on_conflict_do_nothing(index_elements=["location"])


def _of(location: str, table: Any, *columns: Any) -> Select[*tuple[Any, ...]]:
    """A query on the rows of one table."""
    number = select(tables.c.id).where(tables.c.location == location).scalar_subquery()
    return select(*columns).where(table.c.table == number)


def _row_of(table: IndexedTable) -> dict[str, Any]:
    run = {"first": table.first, "last": table.last, "content": table.content}
    return {**msgspec.structs.asdict(table.facts), **run}


def _table_of(row: _Row) -> IndexedTable:
    values = row._mapping
    facts = TableFacts(**{name: values[name] for name in _FACTS})
    return IndexedTable(facts, values["first"], values["last"], values["content"])
