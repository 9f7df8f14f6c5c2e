"""The schema of the index: up, down, from every earlier revision, and the same as what the code works with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from tarnlog_server.adapters.sql_engine import Database, database_url
from tarnlog_server.adapters.sql_migrations import downgrade, folder, revisions, upgrade
from tarnlog_server.adapters.sql_schema import REVISION, REVISION_TABLE, metadata
from tarnlog_server.ports.index import IndexUnavailable


@pytest_asyncio.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        place = tmp_path / "with % and spaces"
        place.mkdir()
        url = f"sqlite:///{place}/index.sqlite"
    else:
        server = request.getfixturevalue("postgres_server")
        url = server.url(await server.new_database())
    made = Database(database_url(url))
    yield made
    await made.close()


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE, "compare_type": True})
    return list(compare_metadata(context, metadata))


def names(connection: Connection) -> list[str]:
    return sorted(inspect(connection).get_table_names())


async def test_what_is_migrated_is_what_the_code_works_with(database: Database) -> None:
    await database.prepare()
    assert await database.revision() == REVISION
    async with database.begin() as connection:
        assert await connection.run_sync(differences) == []


async def test_down_leaves_nothing_and_up_again_works(database: Database) -> None:
    await database.prepare()
    async with database.begin() as connection:
        await connection.run_sync(downgrade)
    assert await database.revision() is None
    async with database.begin() as connection:
        assert await connection.run_sync(names) == [REVISION_TABLE]
    await database.prepare()
    async with database.begin() as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.parametrize("revision", revisions())
async def test_from_every_revision_up_and_back_down_to_it(database: Database, revision: str) -> None:
    async with database.begin() as connection:
        await connection.run_sync(upgrade, revision)
    before = await _schema(database)
    await database.prepare()
    async with database.begin() as connection:
        assert await connection.run_sync(differences) == []
    async with database.begin() as connection:
        await connection.run_sync(downgrade, revision)
    assert await database.revision() == revision
    assert await _schema(database) == before


async def test_a_migration_that_fails_leaves_what_was_there(database: Database) -> None:
    async with database.begin() as connection:
        await connection.execute(text("CREATE TABLE tarnlog_commits (wrong INTEGER)"))
    with pytest.raises(IndexUnavailable):
        await database.prepare()
    assert await database.revision() is None
    async with database.begin() as connection:
        assert await connection.run_sync(names) == ["tarnlog_commits"]


async def test_a_schema_of_a_newer_release_is_left_alone(database: Database) -> None:
    await database.prepare()
    async with database.begin() as connection:
        await connection.execute(text(f"UPDATE {REVISION_TABLE} SET version_num = '9999'"))
    with pytest.raises(IndexUnavailable, match="9999"):
        await database.prepare()
    assert await database.revision() == "9999"


async def test_without_migrating_an_old_schema_says_what_to_do(database: Database) -> None:
    given = Database(database.url, migrate=False)
    with pytest.raises(IndexUnavailable, match="tarnlog migrate"):
        await given.prepare()
    await given.close()
    assert await database.revision() is None


def test_the_newest_revision_is_the_one_the_code_names() -> None:
    assert revisions()[-1] == REVISION
    assert (folder() / "versions").is_dir()


async def _schema(database: Database) -> Any:
    def look(connection: Connection) -> Any:
        seen = inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)],
                sorted(str(index["name"]) for index in seen.get_indexes(name)),
            )
            for name in seen.get_table_names()
        }

    async with database.begin() as connection:
        return await connection.run_sync(look)
