"""From what an operator writes as a database to an index: a URL, `memory`, `off`, or nothing.

Without a word the index is a SQLite file beside the data, where the data is in a local folder, and off elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL

from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.adapters.memory_segments import MemorySegments
from tarnlog_server.adapters.sql_engine import Database, PoolSettings, database_url
from tarnlog_server.adapters.sql_index import SqlIndex
from tarnlog_server.adapters.sql_segments import SqlSegments
from tarnlog_server.ports.index import Index
from tarnlog_server.ports.segments import Segments

OFF, MEMORY = "off", "memory"
EMBEDDED = Path(".tarnlog") / "index.sqlite"
"""Where the embedded index is, inside the warehouse's folder."""


def open_database(
    given: str | None, folder: Path | None, pool: PoolSettings | None = None, *, migrate: bool = True
) -> Database | None:
    """The database that was asked for, not connected yet; None for none. ValueError says what is wrong with a URL.

    `folder` is that of a local warehouse. The embedded index always brings its own schema up to date.
    """
    if given in (OFF, MEMORY):
        return None
    if given is None:
        if folder is None:
            return None
        return Database(URL.create("sqlite+aiosqlite", database=str(folder / EMBEDDED)), pool)
    return Database(database_url(given), pool, migrate=migrate)


def index_of(given: str | None, database: Database | None) -> Index | None:
    """The index in a database, in memory, or none."""
    if database is not None:
        return SqlIndex(database)
    return MemoryIndex() if given == MEMORY else None


def segments_of(given: str | None, database: Database | None) -> Segments | None:
    """The decoded manifests beside an index."""
    if database is not None:
        return SqlSegments(database)
    return MemorySegments() if given == MEMORY else None
