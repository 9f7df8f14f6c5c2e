"""DuckLake with its catalog on PostgreSQL: planning scans over many files, cold and warm.

Run in the peer's own environment: `python -m bench.peers.ducklake_plan '{"folder": ..., "socket": ..., "files": ...}'`.
The rows of its catalog are written by SQL, as its own commits would leave them. DuckLake asks its catalog for the files
that a filter leaves when a scan starts, not before, and has no call that stops there: the scan is started, and the time
ends when it finds that the first file is not there.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from importlib.metadata import version
from typing import Any

from bench.peers.ducklake import _connect
from bench.peers.rss import memory_mb
from bench.plan_layout import DAYS, FIRST, ROWS, filters

WARM = 3


def build(setting: dict[str, Any]) -> None:
    """One real insert for the catalog's own rows, then as many files as are wanted."""
    connection = _connect(setting)
    connection.execute("CREATE TABLE lake.t (id BIGINT, d DATE, x BIGINT)")
    connection.execute("ALTER TABLE lake.t SET PARTITIONED BY (d)")
    connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    connection.execute(f"INSERT INTO lake.t SELECT i, DATE '{FIRST}', i FROM range({ROWS}) r(i)")
    connection.close()


def fill_statements(files: int) -> str:
    """SQL for PostgreSQL: the files of the shared layout in the place of the one that was inserted."""
    day = f"(DATE '{FIRST}' + (i * {DAYS} / {files})::int)"
    low = f"(i * 7919 % {files} * {ROWS})"
    series = f"generate_series(0::bigint, {files - 1}) s(i)"
    stats = (
        "INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count, "
        "null_count, min_value, max_value) SELECT i, table_id"
    )
    return f"""
    CREATE TEMP TABLE kept AS SELECT table_id, begin_snapshot, partition_id FROM ducklake_data_file LIMIT 1;
    TRUNCATE ducklake_data_file, ducklake_file_column_stats, ducklake_file_partition_value;
    INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
        record_count, file_size_bytes, footer_size, row_id_start, partition_id)
        SELECT i, table_id, begin_snapshot,
        format('d=%s/part-%s-4f1c2d7e-9a60-4a51.parquet', {day}, lpad(i::text, 8, '0')), true, 'parquet',
        {ROWS}, 100000 + i, 343, i * {ROWS}, partition_id FROM {series}, kept;
    {stats}, 1, 159, {ROWS}, 0, (i * {ROWS})::text, (i * {ROWS} + {ROWS - 1})::text FROM {series}, kept;
    {stats}, 2, 47, {ROWS}, 0, {day}::text, {day}::text FROM {series}, kept;
    {stats}, 3, 159, {ROWS}, 0, {low}::text, ({low} + {ROWS - 1})::text FROM {series}, kept;
    INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value)
        SELECT i, table_id, 0, {day}::text FROM {series}, kept;
    UPDATE ducklake_snapshot SET next_file_id = {files}
        WHERE snapshot_id = (SELECT max(snapshot_id) FROM ducklake_snapshot);
    UPDATE ducklake_table_stats SET record_count = {files * ROWS}, next_row_id = {files * ROWS};
    UPDATE ducklake_table_column_stats SET min_value = '{FIRST}', max_value =
        (SELECT max(max_value) FROM ducklake_file_column_stats WHERE column_id = 2) WHERE column_id = 2;
    UPDATE ducklake_table_column_stats SET min_value = '0', max_value = '{files * ROWS - 1}' WHERE column_id <> 2;
    ANALYZE;
    """


def plan(setting: dict[str, Any], predicate: str | None) -> dict[str, Any]:
    """Attach and plan, then plan again on the same connection."""
    query = "SELECT * FROM lake.t" + (f" WHERE {predicate}" if predicate else "")
    start = time.perf_counter()
    connection = _connect(setting)
    _until_first_file(connection, query)
    cold = time.perf_counter() - start
    warm = []
    for _ in range(WARM):
        start = time.perf_counter()
        _until_first_file(connection, query)
        warm.append((time.perf_counter() - start) * 1e3)
    return {"cold_ms": cold * 1e3, "warm_ms": warm, "found": None, "memory_mb": memory_mb()}


def _until_first_file(connection: Any, query: str) -> None:
    """Raises what went wrong, unless it is the missing file: then the plan is made."""
    import duckdb

    try:
        connection.execute(query).fetchall()
    except duckdb.IOException as error:
        if ".parquet" not in str(error):
            raise
    else:
        raise RuntimeError("the scan met no file: the filter selects nothing, or the catalog was not believed")


def main(setting: dict[str, Any]) -> None:
    found: dict[str, Any] = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        if setting["work"] == "build":
            pool.apply(build, (setting,))
        else:
            for name, predicate in filters(setting["files"]).items():
                found[name] = [pool.apply(plan, (setting, predicate)) for _ in range(setting["rounds"])]
    versions = {name: version(name) for name in ("duckdb", "duckdb-extension-ducklake")}
    print(json.dumps({"plans": found, "versions": versions}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
