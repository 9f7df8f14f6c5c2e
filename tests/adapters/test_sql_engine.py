"""Addresses, what is shown of them, and files that are broken, locked or in the way."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tarnlog_server.adapters.sql_engine import Database, PoolSettings, database_url
from tarnlog_server.adapters.sql_schema import REVISION
from tarnlog_server.ports.index import IndexUnavailable


@pytest.mark.parametrize(
    "given, driver",
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg"),
        ("postgresql://u:p@h/d", "postgresql+asyncpg"),
        ("postgresql+asyncpg://u:p@h:5/d?sslmode=require", "postgresql+asyncpg"),
        ("sqlite:///some/file", "sqlite+aiosqlite"),
    ],
)
def test_addresses_get_the_driver_that_is_used(given: str, driver: str) -> None:
    assert database_url(given).drivername == driver


def test_the_usual_name_for_tls_is_understood() -> None:
    assert dict(database_url("postgresql://h/d?sslmode=require&x=1").query) == {"ssl": "require", "x": "1"}


@pytest.mark.parametrize("given", ["mysql://u:very-secret@h/d", "very-secret", "sqlite://", "postgresql+psycopg://h"])
def test_what_cannot_be_used_is_refused_without_its_secrets(given: str) -> None:
    with pytest.raises(ValueError) as refused:
        database_url(given)
    assert "very-secret" not in str(refused.value)


def test_a_password_is_never_shown() -> None:
    database = Database(database_url("postgresql://me:very-secret@host:5/d?password=very-secret"))
    assert "very-secret" not in database.shown
    assert "host" in database.shown


async def test_a_database_that_is_not_there_is_unavailable() -> None:
    database = Database(database_url("postgresql://me:very-secret@127.0.0.1:1/d"), PoolSettings(connect_seconds=2))
    with pytest.raises(IndexUnavailable) as down:
        await database.prepare()
    assert "very-secret" not in str(down.value)
    await database.close()


@pytest.mark.parametrize("size", [100, 5000])
async def test_a_broken_file_is_moved_aside(tmp_path: Path, size: int) -> None:
    file = tmp_path / "index.sqlite"
    file.write_bytes(b"this is no database " * (size // 20))
    database = Database(database_url(f"sqlite:///{file}"))
    await database.prepare()
    assert await database.revision() == REVISION
    assert (tmp_path / "index.sqlite.broken").read_bytes().startswith(b"this is no database")
    await database.close()


async def test_a_file_that_breaks_meanwhile_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    database = Database(database_url(f"sqlite:///{file}"))
    await database.prepare()
    await database.close()
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 60_000)
    with pytest.raises(IndexUnavailable):
        await database.revision()
    await database.prepare()
    assert await database.revision() == REVISION
    await database.close()


async def test_a_locked_file_is_unavailable_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    holder = sqlite3.connect(file)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("CREATE TABLE held (x)")
    holder.commit()
    holder.execute("BEGIN EXCLUSIVE")
    database = Database(database_url(f"sqlite:///{file}"), PoolSettings(connect_seconds=0.2))
    with pytest.raises(IndexUnavailable, match="locked"):
        await database.prepare()
    holder.rollback()
    holder.close()
    await database.prepare()
    assert await database.revision() == REVISION
    assert not (tmp_path / "index.sqlite.broken").exists()
    await database.close()


async def test_a_folder_in_the_place_of_the_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").mkdir()
    database = Database(database_url(f"sqlite:///{tmp_path}/index.sqlite"))
    with pytest.raises(IndexUnavailable):
        await database.prepare()
    await database.close()
