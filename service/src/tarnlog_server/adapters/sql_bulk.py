"""Many rows in one statement, in the way each database is quick at: arrays for Postgres, a prepared one for SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, LargeBinary, Table, text
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_rows(
    connection: AsyncConnection, table: Table, rows: Sequence[tuple[Any, ...]], conflict: str
) -> None:
    """Insert rows, each with a value for every column of the table in their order; `conflict` is an ON CONFLICT clause.

    In Postgres a statement may touch each key once: whoever passes a key twice gets an error there.
    """
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        await connection.exec_driver_sql(_sqlite(table, conflict), list(rows))
        return
    values = {f"c{number}": list(column) for number, column in enumerate(zip(*rows, strict=True))}
    await connection.execute(text(_postgres(table, conflict)), values)


@cache
def _sqlite(table: Table, conflict: str) -> str:
    marks = ", ".join("?" * len(table.columns))
    return f"INSERT INTO {table.name} ({_names(table)}) VALUES ({marks}) {conflict}"


@cache
def _postgres(table: Table, conflict: str) -> str:
    arrays = ", ".join(f"CAST(:c{n} AS {_array(column.type)})" for n, column in enumerate(table.columns))
    return f"INSERT INTO {table.name} ({_names(table)}) SELECT * FROM unnest({arrays}) {conflict}"


def _names(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


def _array(kind: Any) -> str:
    if isinstance(kind, BigInteger):
        return "bigint[]"
    return "bytea[]" if isinstance(kind, LargeBinary) else "text[]"
