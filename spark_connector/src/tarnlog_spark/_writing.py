"""The task's half of a write: Arrow batches in, data files out, one message for each file.

Nothing here needs a Spark session. Names are made fresh in every attempt, so a task that runs twice never overwrites
itself; only the messages that reach the driver are committed, and what other attempts left is vacuum's. Memory is
bounded: rows wait per partition until they fill a row group, and all that wait together stay below a budget. A file
ends with the row group that fills it, and a row group takes, in memory, half of what a file is to have, or less: so
files end near their target, small ones too.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct

from tarnlog.protocol.actions import Add
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._arrow_read import conform
from tarnlog_spark._arrow_types import arrow_schema
from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._statistics import is_ordered, plain_values, statistics_of, value_text
from tarnlog_spark._storage import Storage

MIB = 1024 * 1024
TARGET_BYTES = 128 * MIB
ROW_GROUP_BYTES = 64 * MIB
ROW_GROUP_ROWS = 1024 * 1024
LEAST_ROW_GROUP_BYTES = 1024
WAITING_BYTES = 256 * MIB
"""What all partitions of a task may hold back together, in memory."""

MAX_OPEN = 64
"""Files that a task has open at once; the one that waited longest is finished when there are more."""

STORED = {"partitionColumns": "stored"}
"""The tag of a file that holds its partition columns itself: Spark's own reader finds them there."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_FOLDER = 180

Values = tuple[str | None, ...]


class WriteTask(Struct, frozen=True, kw_only=True):
    """What a task must know to write files of a table. Picklable."""

    storage: Storage
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    target_bytes: int = TARGET_BYTES
    cut_at: int = 32
    compression: str = "snappy"
    data_change: bool = True
    rolls_files: bool = False
    """Whether somebody asked for files that end at `target_bytes`, and not only nobody for others."""

    def schema(self) -> pa.Schema:
        """The schema of the files."""
        return arrow_schema(parse_schema_string(self.schema_string))

    @property
    def row_group_bytes(self) -> int:
        """How much memory the rows of a row group take; a quarter more at most."""
        return max(LEAST_ROW_GROUP_BYTES, min(ROW_GROUP_BYTES, self.target_bytes // 2))


def target_of(configuration: Mapping[str, str]) -> int | None:
    """The size at which a table's files are to end, where it says one (`targetFileSize`)."""
    size = configuration.get("targetFileSize", "")
    return int(size) if size.isdecimal() and int(size) > 0 else None


def write_batches(task: WriteTask, batches: Iterable[pa.RecordBatch]) -> Iterator[Add]:
    """Write the rows to new files; yields the `add` of each file as it is finished. No rows, no file."""
    writer = _TaskWriter(task)
    for batch in batches:
        yield from writer.take(batch)
    yield from writer.finish()


def encode_message(add: Add) -> str:
    """An add as text, for the way from a task to the driver."""
    return msgspec.json.encode(add).decode()


def decode_message(text: str) -> Add:
    """The add that a task sent."""
    return msgspec.json.decode(text, type=Add)


class _OpenFile:
    """A file that still grows, and the rows that wait for its next row group."""

    def __init__(self, task: WriteTask, schema: pa.Schema, values: Values) -> None:
        self.path = new_path(task.partition_columns, values)
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.waiting_rows = 0
        self._task = task
        self._schema = schema
        self._values = values
        self._footers: list[Any] = []
        place = task.storage.path(self.path)
        filesystem = task.storage.filesystem
        if isinstance(filesystem, pafs.LocalFileSystem):  # object stores have no folders
            filesystem.create_dir(place.rpartition("/")[0], recursive=True)
        self._sink = filesystem.open_output_stream(place)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=task.compression,
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
            metadata_collector=self._footers,
        )

    def take(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.waiting_rows += batch.num_rows

    @property
    def has_row_group(self) -> bool:
        return self.waiting_bytes >= self._task.row_group_bytes or self.waiting_rows >= ROW_GROUP_ROWS

    @property
    def is_full(self) -> bool:
        return bool(self._sink.tell() >= self._task.target_bytes)

    def flush(self) -> None:
        """Write what waits as one row group."""
        if self.waiting:
            rows = pa.Table.from_batches(self.waiting, schema=self._schema)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0

    def finish(self) -> Add:
        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        found = statistics_of(self._footers[0], self._schema, cut_at=self._task.cut_at)
        return Add(
            path=self.path,
            partition_values=dict(zip(self._task.partition_columns, self._values, strict=True)),
            size=size,
            modification_time=time.time_ns() // 1_000_000,
            data_change=self._task.data_change,
            stats=found.json,
            min_values=found.min_values or None,
            max_values=found.max_values or None,
            num_records=found.num_records,
            tags=dict(STORED) if self._values else None,
        )


class _TaskWriter:
    """Shares rows out to the files of their partitions. The dict's order is from longest unused to last used."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task
        self._schema = task.schema()
        self._open: dict[Values, _OpenFile] = {}
        check_partition_columns(self._schema, task.partition_columns)

    def take(self, batch: pa.RecordBatch) -> Iterator[Add]:
        fitted = _fitted(batch, self._schema)
        parts = split(fitted, self._task.partition_columns)
        most = self._task.row_group_bytes // 4
        for values, rows in ((values, piece) for values, part in parts for piece in _pieces(part, most)):
            file = self._open.pop(values, None) or _OpenFile(self._task, self._schema, values)
            self._open[values] = file
            file.take(rows)
            if file.has_row_group:
                file.flush()
                if file.is_full:
                    del self._open[values]
                    yield file.finish()
            if len(self._open) > MAX_OPEN:
                yield self._open.pop(next(iter(self._open))).finish()
        self._keep_budget()

    def finish(self) -> Iterator[Add]:
        while self._open:
            yield self._open.pop(next(iter(self._open))).finish()

    def _keep_budget(self) -> None:
        waiting = sum(file.waiting_bytes for file in self._open.values())
        while waiting > WAITING_BYTES:
            largest = max(self._open.values(), key=lambda file: file.waiting_bytes)
            waiting -= largest.waiting_bytes
            largest.flush()


def _pieces(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about so many bytes, without a copy."""
    step = max(1, batch.num_rows * most // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def split(batch: pa.RecordBatch, partition_columns: tuple[str, ...]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The batch by partition, each once, with the partition's values as the log spells them. Costs a sort at most."""
    if batch.num_rows == 0:
        return
    if not partition_columns:
        yield (), batch
        return
    codes, count = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows), 1
    for name in partition_columns:
        encoded = pc.dictionary_encode(_canonical(batch.column(name)), null_encoding="encode")
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        count *= len(encoded.dictionary)
        if count > 2**40:  # the codes so far, made small again: their number is at most the rows'
            codes = pc.dictionary_encode(codes).indices.cast(pa.int64())
            count = batch.num_rows
    runs = pc.run_end_encode(codes)
    if len(runs.values) > len(pc.unique(runs.values)):
        order = pc.sort_indices(codes)
        batch, runs = batch.take(order), pc.run_end_encode(codes.take(order))
    start = 0
    for end in runs.run_ends.to_pylist():
        rows = batch.slice(start, end - start)
        yield tuple(_value_text(rows.column(name)) for name in partition_columns), rows
        start = end


def new_path(partition_columns: tuple[str, ...], values: Values) -> str:
    """A path that nobody else uses, as the log writes it: Hive-style folders whose names are percent-encoded.

    The folders are for people: readers take partition values from the log. So a long value may be cut there.
    """
    folders = [_folder(name, value) for name, value in zip(partition_columns, values, strict=True)]
    return quote("/".join([*folders, f"part-{uuid.uuid4()}.parquet"]), safe="/=")


def check_partition_columns(schema: pa.Schema, partition_columns: tuple[str, ...]) -> None:
    """SchemaMismatch for a column that cannot name partitions."""
    faults = {
        name: f"{schema.field(name).type} cannot name partitions"
        for name in partition_columns
        if not is_ordered(schema.field(name).type)
    }
    if faults:
        raise SchemaMismatch(faults, advice="Partition by text, numbers, dates, timestamps or booleans.")


def _folder(name: str, value: str | None) -> str:
    text = f"{quote(name, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}"
    if len(text) <= _LONGEST_FOLDER:
        return text
    return f"{text[: _LONGEST_FOLDER - 20]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _canonical(column: pa.Array) -> pa.Array:
    """Zero has one sign, as SQL's equality has it: two partitions of one value would be a surprise."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _value_text(column: pa.Array) -> str | None:
    value = plain_values(_canonical(column.slice(0, 1)))[0]
    return None if value is None else value_text(value, column.type)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [conform(batch.column(field.name), field.type) for field in schema]
    faults = {
        field.name: "null where the table allows none"
        for field, column in zip(schema, columns, strict=True)
        if not field.nullable and column.null_count
    }
    if faults:
        raise SchemaMismatch(faults)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
