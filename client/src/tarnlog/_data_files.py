"""The data files of a table through pyarrow: in a folder, or on S3 with what the environment says. Needs pyarrow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tarnlog._arrow_schema import partition_scalar
from tarnlog._errors import Corrupt, InvalidRequest
from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key


class DataFiles:
    """Reads the files below one location."""

    def __init__(self, location: str) -> None:
        scheme, found, rest = location.partition("://")
        if not found or scheme == "file":
            self._filesystem: Any = pafs.LocalFileSystem()
            self._root = "/" + unquote(rest).strip("/") if found else location.rstrip("/")
        elif scheme in ("s3", "s3a"):
            self._filesystem = _s3()
            self._root = rest.rstrip("/")
        else:
            raise InvalidRequest(f"Data files at {scheme}:// cannot be read here: only folders and s3:// buckets.")

    def place(self, path: str) -> str:
        """Where a file is, from its path in the log: escapes are decoded once."""
        key = path_key(path)
        scheme, found, rest = key.partition("://")
        if found:  # only logs that were taken over name files outside the table
            return rest if scheme != "file" else "/" + rest.lstrip("/")
        return key if key.startswith("/") else f"{self._root}/{key}"

    def read(self, file: Add, schema: pa.Schema, partition_columns: frozenset[str]) -> pa.Table:
        """One file with exactly the columns of `schema`. Corrupt names the file when it is gone or does not fit.

        A column that the file lacks is its partition value, else null; narrower types widen.
        """
        try:
            with self._filesystem.open_input_file(self.place(file.path)) as source:
                # Spark's old INT96 timestamps reach further than nanoseconds do.
                stored = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
                names = {name.lower(): name for name in stored.schema_arrow.names}
                wanted = [names[field.name.lower()] for field in schema if field.name.lower() in names]
                rows = stored.read(columns=wanted)
                count = stored.metadata.num_rows
        except FileNotFoundError:
            raise Corrupt(
                f"The data file {file.path} is gone: it was deleted by hand, or vacuumed after a version that this "
                "read still uses. Read a newer version.",
                slug="data-file-missing",
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise Corrupt(f"The data file {file.path} cannot be read: {error}", slug="data-file-unreadable") from None
        by_name = {name.lower(): rows.column(name) for name in rows.schema.names}
        columns = [
            _conformed(by_name.get(field.name.lower()), field, file, count, partition_columns) for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def _conformed(column: Any, field: pa.Field, file: Add, count: int, partition_columns: frozenset[str]) -> Any:
    try:
        if column is not None:
            return column if column.type == field.type else column.cast(field.type)
        if field.name.lower() not in partition_columns:
            return pa.nulls(count, field.type)
        values = {name.lower(): value for name, value in file.partition_values.items()}
        return pa.repeat(partition_scalar(values.get(field.name.lower()), field.type), count)
    except (ValueError, KeyError, pa.ArrowException) as error:
        detail = f"The column {field.name} of the data file {file.path} is not {field.type}: {error}"
        raise Corrupt(detail, slug="data-file-unreadable") from None


def _s3(environment: Mapping[str, str] = os.environ) -> Any:
    endpoint = environment.get("TARNLOG_S3_ENDPOINT") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    given = {"endpoint_override": endpoint, "region": region or ("us-east-1" if endpoint else None)}
    return pafs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
