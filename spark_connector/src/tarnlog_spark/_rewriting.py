"""What every optimize is made of: files that go together, what became of them, and reading them with suspicion."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct

from tarnlog import Corrupt, Unavailable
from tarnlog.protocol.actions import Add
from tarnlog_spark._arrow_read import read_batches
from tarnlog_spark._writing import WriteTask


class Group(Struct, frozen=True):
    """Files of one partition that are replaced together, or not at all."""

    files: tuple[Add, ...]


class Merged(Struct, frozen=True):
    """What was made of a group; `skipped` maps files that could not be read to why."""

    used: tuple[str, ...]
    added: tuple[Add, ...]
    skipped: dict[str, str]


def whole_file(task: WriteTask, schema: pa.Schema, file: Add) -> Iterator[pa.RecordBatch]:
    """The rows of a file; Corrupt, at the latest at its end, when they are not what the log says."""
    found = 0
    for batch in read_batches(task.storage, file.path, schema, absent=file.partition_values):
        found += batch.num_rows
        yield batch
    if file.num_records is not None and found != file.num_records:
        raise Corrupt(f"it holds {found} rows, and the log says {file.num_records}")


@contextlib.contextmanager
def storage_failures() -> Iterator[None]:
    """Spark keeps only the text of what a task raises: storage that did not answer there is an Unavailable here."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        told = re.search(rf"{Unavailable.__name__}: (The storage did not .*)", str(error))
        if told is None:
            raise
        raise Unavailable(f"{told[1]} Nothing was committed.", slug="data-file-unreachable") from error
