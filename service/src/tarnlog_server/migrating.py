"""`migrate`: the schema of the index database up, down, or only looked at."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tarnlog_server.adapters.open_index import open_database
from tarnlog_server.adapters.open_store import local_folder
from tarnlog_server.adapters.sql_engine import Database, PoolSettings
from tarnlog_server.adapters.sql_migrations import downgrade, revisions, upgrade
from tarnlog_server.ports.index import IndexUnavailable
from tarnlog_server.settings import BadSettings, load_settings

PATIENCE_SECONDS = 600.0
"""How long a migration of a large index may take."""


def migrate(
    direction: str, revision: str | None = None, *, warehouse: str | None = None, config: str | Path | None = None
) -> tuple[bool, str]:
    """Go `up` or `down` to a revision, or tell the `current` one. Whether it was done, and a sentence for people."""
    try:
        settings = load_settings(config, warehouse=warehouse)
        pool = PoolSettings(1, settings.database_connect_seconds, PATIENCE_SECONDS)
        database = open_database(settings.database_url, local_folder(settings.warehouse), pool)
    except (BadSettings, ValueError) as error:
        return False, str(error)
    if database is None:
        return False, "There is no index database: set TARNLOG_DATABASE_URL."
    if revision is not None and revision not in revisions():
        return False, f"There is no revision {revision}; there are {', '.join(revisions())}."
    try:
        return True, asyncio.run(_moved(database, direction, revision))
    except IndexUnavailable as error:
        return False, f"The index at {database.shown} was not changed: {error}."


async def _moved(database: Database, direction: str, revision: str | None) -> str:
    try:
        before = await database.current()
        if direction == "up":
            await database.migrate(upgrade, revision or "head")
        elif direction == "down":
            await database.migrate(downgrade, revision or "base")
        after = await database.current()
        if before == after:
            return (
                f"The index at {database.shown} is at {after or 'nothing'}; the newest revision is {revisions()[-1]}."
            )
        return f"The index at {database.shown} went from {before or 'nothing'} to {after or 'nothing'}."
    finally:
        await database.close()
