"""The data files of a table through pyarrow: in a folder, or on S3 with what the environment says. Needs pyarrow.

A file that is missing or is no Parquet is Corrupt. Storage that does not give it out (no permission, no credentials, no
network, a folder that is not mounted here) is Unavailable: that says nothing about the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tarnlog._arrow_schema import partition_scalar
from tarnlog._errors import Corrupt, InvalidRequest, TarnlogError, Unavailable
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
        """One file with exactly the columns of `schema`.

        Corrupt names the file when it is missing, no Parquet, or does not fit; Unavailable when its storage does not
        give it out. A column that the file lacks is its partition value, else null; narrower types widen.
        """
        try:
            with self._filesystem.open_input_file(self.place(file.path)) as source:
                stored = _parquet(source)
                names = {name.lower(): name for name in stored.schema_arrow.names}
                wanted = [names[field.name.lower()] for field in schema if field.name.lower() in names]
                rows = stored.read(columns=wanted)
                count = stored.metadata.num_rows
        except FileNotFoundError:
            raise self._missing(file) from None
        except MemoryError:
            raise
        except pa.ArrowException as error:
            raise _unreadable(file, error) from None
        except OSError as error:
            raise self._judged(file, error) from None
        by_name = {name.lower(): rows.column(name) for name in rows.schema.names}
        columns = [
            _conformed(by_name.get(field.name.lower()), field, file, count, partition_columns) for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _missing(self, file: Add) -> TarnlogError:
        """A missing file is damage, unless the whole table is missing: then its disk or bucket is away."""
        try:
            absent = self._filesystem.get_file_info(self._root).type == pafs.FileType.NotFound
        except OSError as why:
            return _unreachable(file, why)
        if absent:
            return Unavailable(
                f"The folder of the table, {self._root}, does not exist on this machine, so {file.path} cannot be read "
                "here. Data files are read by the client itself: mount the folder, or read where the service runs.",
                slug="data-file-unreachable",
            )
        return Corrupt(
            f"The data file {file.path} is missing: it was never written, was deleted by hand, or was vacuumed after a "
            "version that this read still uses. Read a newer version; `verify` lists every missing file.",
            slug="data-file-missing",
        )

    def _judged(self, file: Add, error: OSError) -> TarnlogError:
        """pyarrow has one error for bytes that do not come and for bytes that it cannot decode.

        I/O: reads the file once more, to find out which of the two it is.
        """
        if isinstance(error, PermissionError):
            return _unreachable(file, error)
        source: _Source | None = None
        try:
            with self._filesystem.open_input_file(self.place(file.path)) as opened:
                source = _Source(opened)
                _parquet(source).read()
        except (pa.ArrowException, OSError) as again:
            if source is not None and source.failure is None:
                return _unreadable(file, again)
        return _unreachable(file, error)  # also where it is read well this time


class _Source:
    """A file for pyarrow that remembers whether reading it failed."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self.failure: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._file.read(None if size < 0 else size))
        except OSError as error:
            self.failure = error
            raise

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self.closed = True


def _parquet(source: Any) -> pq.ParquetFile:
    # Spark's old INT96 timestamps reach further than nanoseconds do.
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")


def _unreadable(file: Add, error: Exception) -> Corrupt:
    return Corrupt(f"The data file {file.path} cannot be read: {error}", slug="data-file-unreadable")


def _unreachable(file: Add, error: OSError) -> Unavailable:
    return Unavailable(
        f"The storage did not give out the data file {file.path}, which may be whole: {error}. Check that the storage "
        "is up, and that this process may read it: the permissions of a folder; for S3 AWS_* and TARNLOG_S3_ENDPOINT.",
        slug="data-file-unreachable",
    )


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
