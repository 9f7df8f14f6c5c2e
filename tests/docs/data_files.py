"""Data files that the examples of a page leave behind, checked by a reader that knows nothing of the client's own."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from tarnlog import Add, Client


def live_rows(client: Client, table: str) -> list[dict[str, object]]:
    """All rows of a table, read from its live files alone.

    Asserts on the way that the log is right about every file: it exists, has the size and the number of rows that are
    recorded, lies in the folder of its partition, and its values are within the recorded bounds.
    """
    folder = Path(unquote(urlsplit(client.get_table(table).location).path))
    rows: list[dict[str, object]] = []
    for file in client.files(table):
        place = folder / unquote(file.path)
        assert place.is_file(), f"{table} has {file.path}, which was never written"
        assert file.size == place.stat().st_size, f"{table}: the size of {file.path}"
        found = pq.ParquetFile(place).read().to_pylist()
        assert file.num_records in (None, len(found)), f"{table}: the rows of {file.path}"
        _check_partition(table, file)
        _check_bounds(table, file, found)
        rows += [{**row, **file.partition_values} for row in found]
    return rows


def _check_partition(table: str, file: Add) -> None:
    for column, _, value in (part.partition("=") for part in unquote(file.path).split("/")[:-1]):
        assert file.partition_values.get(column, value) == value, f"{table}: {file.path} is not of that {column}"


def _check_bounds(table: str, file: Add, rows: list[dict[str, object]]) -> None:
    for column, least in (file.min_values or {}).items():
        greatest = (file.max_values or {})[column]
        values = [row[column] for row in rows if row[column] is not None]
        if values and isinstance(values[0], int):
            found = (min(values), max(values))  # type: ignore[type-var]
            assert found == (int(least), int(greatest)), f"{table}: the bounds of {column} in {file.path}"
