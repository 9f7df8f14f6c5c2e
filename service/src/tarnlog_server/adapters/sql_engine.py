"""The database behind the index: its address, connections, what its errors mean, and how its schema gets there.

Addresses hold passwords: nothing here logs or raises one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy import URL, Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tarnlog_server.adapters.sql_schema import REVISION, REVISION_TABLE
from tarnlog_server.ports.index import IndexUnavailable

_log = logging.getLogger(__name__)
T = TypeVar("T")
_DRIVERS = {
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
}
_BROKEN_FILE = ("malformed", "not a database", "file is encrypted", "disk i/o error")
_FAULTS: tuple[type[Exception], ...] = (SQLAlchemyError, sqlite3.Error, OSError, TimeoutError)
_LOCK = 7_471_061_904_283_157
"""The advisory lock under which replicas migrate one database, one after the other."""


IDLE_IN_TRANSACTION = "10000"
"""Milliseconds between two statements of a transaction: we never wait for anything else there."""


class PoolSettings(Struct, frozen=True):
    """How many connections are kept, and how long one is waited for, connected to, and left to answer."""

    size: int = 5
    connect_seconds: float = 5.0
    statement_seconds: float = 10.0


def database_url(given: str) -> URL:
    """An address as the drivers take it; ValueError says what is wrong, without repeating a password."""
    try:
        url = make_url(given)
    except ArgumentError:
        raise ValueError(
            "it is no database URL: write postgresql://user:password@host/name or sqlite:///file"
        ) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise ValueError(f"{url.drivername} is not supported: use postgresql:// or sqlite:///")
    if driver.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise ValueError("SQLite needs a file: sqlite:///folder/index.sqlite; for none at all set it to off")
    mode = url.query.get("sslmode")
    if mode is not None:
        # The name that other Postgres clients have for it.
        url = url.difference_update_query(["sslmode"]).update_query_dict(
            {"ssl": mode if isinstance(mode, str) else mode[0]}
        )
    return url.set(drivername=driver)


class Database:
    """One database. Connections are made when they are needed; `run` and `begin` raise only IndexUnavailable."""

    def __init__(self, url: URL, pool: PoolSettings | None = None, *, migrate: bool = True) -> None:
        self.url = url
        self.is_sqlite = url.drivername.startswith("sqlite")
        self._pool = pool or PoolSettings()
        self._migrate = migrate
        self._faults = _FAULTS if self.is_sqlite else (*_FAULTS, *_postgres_faults())
        self._broken = False
        self._file: tuple[int, int] | None = None
        """The SQLite file that the connections are open on, by device and inode; None until it was prepared."""
        self._preparing = asyncio.Lock()
        self.engine = self._engine()

    @property
    def shown(self) -> str:
        """The address for people, without its password."""
        return self.url.set(query={}).render_as_string(hide_password=True)

    async def prepare(self) -> None:
        """Connect, and bring the schema up to date. A SQLite file that is broken is moved aside first.

        One that was deleted or replaced is opened anew: connections to the old one would go on as if nothing were.
        """
        async with self._preparing:
            if self._broken:
                await self._move_aside()
            elif self._file is not None and self._file != self._found_file():
                await self._reopen()
            try:
                await self._up_to_date()
            except IndexUnavailable:
                if not self._broken:
                    raise
                await self._move_aside()
                await self._up_to_date()
            self._file = self._found_file()

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Reads, on a connection of their own."""
        self._check_file()
        with self._translated():
            async with self.engine.connect() as connection:
                return await work(connection)

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes: all of it or nothing."""
        self._check_file()
        with self._translated():
            async with self.engine.connect() as plain:
                connection = await plain.execution_options(immediate=True)
                async with connection.begin():
                    yield connection

    @contextlib.asynccontextmanager
    async def statements(self) -> AsyncIterator[AsyncConnection]:
        """Each statement on its own: no row stays locked when this process is stopped between two of them.

        In SQLite, whose processes are on one machine, all of them together.
        """
        if self.is_sqlite:
            async with self.begin() as connection:
                yield connection
            return
        with self._translated():
            async with self.engine.connect() as plain:
                yield await plain.execution_options(isolation_level="AUTOCOMMIT")

    async def close(self) -> None:
        """Let go of all connections; one that does not end is left behind."""
        with contextlib.suppress(*self._faults):
            async with asyncio.timeout(self._pool.connect_seconds):
                await self.engine.dispose()

    async def _up_to_date(self) -> None:
        found = await self.current()
        if found == REVISION:
            return
        if not self._migrate:
            raise IndexUnavailable(f"its schema is at {found or 'nothing'}, not {REVISION}: run `tarnlog migrate`")
        # Late: most starts find the schema as it should be.
        from tarnlog_server.adapters.sql_migrations import upgrade

        await self.migrate(upgrade, "head")

    async def migrate(self, move: Callable[[Connection, str], None], revision: str) -> None:
        """Run a migration, all of it or nothing. Replicas do so one after the other."""
        async with self.begin() as connection:
            if not self.is_sqlite:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            await connection.run_sync(move, revision)

    async def current(self) -> str | None:
        """The revision of the schema, of a database that need not have been used yet."""
        self._make_folder()
        return await self.revision()

    def _make_folder(self) -> None:
        if self.is_sqlite:
            with self._translated():
                Path(str(self.url.database)).parent.mkdir(parents=True, exist_ok=True)

    async def revision(self) -> str | None:
        """Which revision the schema is at; None when there is none. IndexUnavailable when the database is not there."""

        async def look(connection: AsyncConnection) -> str | None:
            if not await connection.run_sync(lambda sync: sync.dialect.has_table(sync, REVISION_TABLE)):
                return None
            found: str | None = await connection.scalar(text(f"SELECT version_num FROM {REVISION_TABLE}"))
            return found

        return await self.run(look)

    def _found_file(self) -> tuple[int, int] | None:
        """The file at the address now."""
        if not self.is_sqlite:
            return None
        try:
            found = os.stat(str(self.url.database))
        except OSError:
            return None
        return (found.st_dev, found.st_ino)

    def _check_file(self) -> None:
        """IndexUnavailable when the file was deleted or replaced since it was opened. I/O: one stat."""
        if self._file is not None and not self._preparing.locked() and self._found_file() != self._file:
            raise IndexUnavailable(f"the index file {self.url.database} was deleted or replaced")

    async def _reopen(self) -> None:
        """Let go of a file that is not at the address any more."""
        await self.close()
        file = Path(str(self.url.database))
        if self._found_file() is None:
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(OSError):
                    file.with_name(file.name + suffix).unlink()
        _log.warning("the index file %s was deleted or replaced: it is opened again", file)
        self.engine = self._engine()
        self._file = None

    async def _move_aside(self) -> None:
        """A broken file makes room for a new one. It is kept: whoever wonders what broke it can look."""
        await self.close()
        file = Path(str(self.url.database))
        for suffix in ("", "-wal", "-shm"):
            part = file.with_name(file.name + suffix)
            with contextlib.suppress(OSError):
                part.replace(file.with_name(f"{file.name}.broken{suffix}"))
        _log.warning("the index file %s was broken: it was moved aside, and is made again", file)
        self.engine = self._engine()
        self._broken, self._file = False, None

    @contextlib.contextmanager
    def _translated(self) -> Any:
        try:
            yield
        except self._faults as error:
            reason = first_line(error)
            if self.is_sqlite and any(sign in reason.lower() for sign in _BROKEN_FILE):
                self._broken = True
            raise IndexUnavailable(reason) from error

    def _engine(self) -> AsyncEngine:
        pool = self._pool
        if self.is_sqlite:
            arguments: dict[str, Any] = {"timeout": pool.connect_seconds}
        else:
            milliseconds = str(int(pool.statement_seconds * 1000))
            arguments = {
                "timeout": pool.connect_seconds,
                "command_timeout": pool.statement_seconds,
                "server_settings": {
                    "application_name": "tarnlog",
                    "statement_timeout": milliseconds,
                    # A process that is stopped inside a transaction must not hold its rows against the others.
                    "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION,
                },
            }
        engine = create_async_engine(
            self.url,
            pool_size=pool.size,
            max_overflow=0,
            pool_timeout=pool.connect_seconds,
            hide_parameters=True,
            connect_args=arguments,
        )
        if self.is_sqlite:
            event.listen(engine.sync_engine, "connect", _sqlite_connected)
            event.listen(engine.sync_engine, "begin", _sqlite_begin)
        return engine


def _postgres_faults() -> tuple[type[Exception], ...]:
    # Late: a service with an embedded index starts without it.
    import asyncpg

    return (asyncpg.PostgresError, asyncpg.InterfaceError)


def first_line(error: BaseException) -> str:
    """What went wrong, in one line: drivers add the statement, which says nothing to an operator."""
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else 'no reason given'}"


def _sqlite_connected(connection: Any, _: Any) -> None:
    # Transactions begin where we say, not where the driver guesses.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        # Readers do not wait for the writer; what a power cut takes is read from storage again.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()
    except Exception:
        # Nobody else knows this connection yet, and its thread would wait for work for ever.
        connection.close()
        raise


def _sqlite_begin(connection: Any) -> None:
    # A transaction that writes takes its place at once: one that has read first could not get it later.
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
