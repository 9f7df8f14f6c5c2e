"""Leases in the database of the index, one row a table. The database's clock decides when one has run out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Double, delete, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tarnlog_server.adapters.sql_engine import Database
from tarnlog_server.adapters.sql_schema import leases
from tarnlog_server.ports.index import IndexUnavailable
from tarnlog_server.ports.leases import Lease, LeasesUnavailable, Owner

AT_ONCE = 1000
"""Tables in one statement: a statement has only so many parameters."""
FORGOTTEN_SECONDS = 86_400.0
"""Rows of leases that ran out this long ago are swept away by whoever gives one up."""


class SqlLeases:
    """The leases of one warehouse. The engine is the index's: it is neither prepared nor closed here, except that a
    schema that is missing, as after the database was dropped, is asked for. Nothing here is a transaction of several
    statements: a replica that is stopped in one would keep its rows from everyone else.
    """

    def __init__(self, database: Database, warehouse: str) -> None:
        self._database = database
        self._warehouse = warehouse
        self._now: ColumnElement[float] = (
            (func.julianday("now", type_=Double) - 2440587.5) * 86400.0
            if database.is_sqlite
            else func.extract("epoch", func.clock_timestamp()).cast(Double)
        )
        self._prepared = False

    async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
        wanted = sorted(set(tables))  # in one order: two replicas must not wait for each other's rows
        if not wanted:
            return {}
        async with self._asked() as connection:
            found: dict[str, Lease] = {}
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                await self._take(connection, owner, some, seconds)
                found |= await self._found(connection, some)
            return found

    async def owners(self, tables: Iterable[str]) -> dict[str, Lease]:
        async with self._asked() as connection:
            return await self._found(connection, list(tables))

    async def release(self, owner: Owner, tables: Iterable[str]) -> None:
        ours = leases.c.table.in_(list(tables)) & (leases.c.owner == owner.id)
        old = leases.c.until < self._now - FORGOTTEN_SECONDS
        async with self._asked() as connection:
            await connection.execute(delete(leases).where(leases.c.warehouse == self._warehouse, or_(ours, old)))

    async def close(self) -> None:
        """The engine is closed by whoever made it."""

    async def _take(self, connection: AsyncConnection, owner: Owner, tables: list[str], seconds: float) -> None:
        insert: Any = (sqlite if self._database.is_sqlite else postgresql).insert(leases)
        row = {"warehouse": self._warehouse, "owner": owner.id, "url": owner.url, "until": self._now + seconds}
        insert = insert.values([{**row, "table": table} for table in tables])
        free = or_(
            leases.c.until <= self._now, leases.c.owner == insert.excluded.owner, leases.c.url == insert.excluded.url
        )
        changed = {name: insert.excluded[name] for name in ("owner", "url", "until")}
        taking = insert.on_conflict_do_update(
            index_elements=[leases.c.warehouse, leases.c.table], set_=changed, where=free
        )
        await connection.execute(taking)

    async def _found(self, connection: AsyncConnection, tables: list[str]) -> dict[str, Lease]:
        left = (leases.c.until - self._now).label("left")
        rows = await connection.execute(
            select(leases.c.table, leases.c.owner, leases.c.url, left).where(
                leases.c.warehouse == self._warehouse, leases.c.table.in_(tables), left > 0
            )
        )
        return {table: Lease(Owner(owner, url), float(seconds)) for table, owner, url, seconds in rows}

    @contextlib.asynccontextmanager
    async def _asked(self) -> Any:
        try:
            if not self._prepared:
                await self._database.prepare()
                self._prepared = True
            async with self._database.statements() as connection:
                yield connection
        except IndexUnavailable as error:
            self._prepared = False
            raise LeasesUnavailable(str(error)) from error
