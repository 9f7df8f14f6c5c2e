"""DuckLake with its catalog on PostgreSQL: a writer inserts one row a commit, which DuckLake keeps in the catalog.

That is its fastest way to commit: registering a Parquet file reads the file's footer first and is slower.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOAD = ("duckdb",)
DISTRIBUTIONS = ("duckdb", "duckdb-extension-ducklake")


def _extension(name: str) -> str:
    """The extension's file inside its distribution: loaded by path, nothing is installed outside this environment."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or () for path in Path(folder).rglob(f"{name}.duckdb_extension")]
    if not found:
        raise RuntimeError(f"duckdb-extension-{name} has no extension file; delete bench/.venv-peers* and run again")
    return str(found[0])


def _connect(setting: dict[str, Any]) -> Any:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    for name in ("postgres_scanner", "ducklake"):
        connection.execute(f"LOAD '{_extension(name)}'")
    catalog = f"host={setting['socket']} user=postgres dbname={setting['database']}"
    connection.execute(f"ATTACH 'ducklake:postgres:{catalog}' AS lake (DATA_PATH '{setting['folder']}')")
    return connection


def prepare(setting: dict[str, Any]) -> None:
    connection = _connect(setting)
    for index in range(setting["tables"]):
        connection.execute(f"CREATE TABLE lake.t{index} (id BIGINT, d DATE, x BIGINT)")
    connection.close()


def open_writer(setting: dict[str, Any], index: int) -> Callable[[int], None]:
    connection = _connect(setting)
    table = f"lake.t{index % setting['tables']}"

    def commit(count: int) -> None:
        connection.execute(f"INSERT INTO {table} VALUES ({index}, DATE '2024-01-01', {count})")

    return commit


def landed(setting: dict[str, Any]) -> int:
    connection = _connect(setting)
    (newest,) = connection.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()
    connection.close()
    return int(newest)
