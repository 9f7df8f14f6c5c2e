"""What batch reads and streams share: partitions of files, and their rows as Arrow batches in a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from tarnlog._row_filter import check_collations, columns_of, matching_rows
from tarnlog.protocol.predicates import Predicate, parse_predicate, to_builtins
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._arrow_read import read_batches
from tarnlog_spark._files import DataFile, shared_out
from tarnlog_spark._options import Splits, option_error
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from tarnlog.protocol.actions import MetaData

CHANGE_FIELDS = (
    StructField("_change_type", StringType(), False),
    StructField("_commit_version", LongType(), False),
    StructField("_commit_timestamp", TimestampType(), False),
)
"""What a change feed adds to a table's columns."""

MICROS = 1000


class FilesPartition(InputPartition):
    """The files of one task, and how to reach them."""

    def __init__(self, storage: Storage, files: tuple[DataFile, ...], rows: Rows | None = None) -> None:
        self.storage = storage
        self.files = files
        self.rows = rows


class Rows(Struct, frozen=True):
    """Which rows are wanted; `schema` has the columns that the predicate asks of, as JSON of Spark's."""

    predicate: dict[str, Any]
    schema: str


def partitions_of(
    storage: Storage, files: Iterable[DataFile], splits: Splits, rows: Rows | None = None
) -> list[FilesPartition]:
    """One partition a task."""
    return [FilesPartition(storage, group, rows) for group in shared_out(files, splits)]


def rows_matching(predicate: Predicate, meta_data: MetaData) -> Rows:
    """The rows of a table for which a predicate is true. InvalidRequest where it compares text under a collation."""
    check_collations(predicate, parse_schema_string(meta_data.schema_string))
    whole = table_schema(meta_data)
    asked = {name.partition(".")[0].lower() for name in columns_of(predicate)}
    asked |= {name.lower() for name in columns_of(predicate)}
    fields = [field for field in whole.fields if field.name.lower() in asked]
    return Rows(to_builtins(predicate), StructType(fields).json())


def read_partition(partition: InputPartition, schema: StructType, *, feed: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Spark makes a partition of its own, without files, when there is none."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(partition, FilesPartition):
        return
    wanted = to_arrow_schema(schema, timezone="UTC")
    stored, rows = wanted, partition.rows
    if rows is not None:
        asked = StructType.fromJson(json.loads(rows.schema))
        more = [field for field in asked.fields if field.name not in schema.names]
        stored = to_arrow_schema(StructType([*schema.fields, *more]), timezone="UTC")
    for file in partition.files:
        fixed = _change_values(file) if feed else {}
        for batch in read_batches(partition.storage, file.path, stored, absent=file.partition_values, fixed=fixed):
            yield from [batch] if rows is None else _matching(batch, rows, wanted)


def _matching(batch: pa.RecordBatch, rows: Rows, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    table = matching_rows(pa.Table.from_batches([batch]), parse_predicate(rows.predicate))
    yield from table.select(wanted.names).cast(wanted).to_batches()


def _change_values(file: DataFile) -> dict[str, object]:
    moment = None if file.timestamp is None else file.timestamp * MICROS
    values = (file.change, file.version, moment)
    return {field.name: value for field, value in zip(CHANGE_FIELDS, values, strict=True)}


def table_schema(meta_data: MetaData, columns: tuple[str, ...] = (), *, feed: bool = False) -> StructType:
    """The schema of a read: the table's columns, or those that were asked for, and the change feed's."""
    if meta_data.format.provider.lower() != "parquet":
        raise option_error(
            f"The table's data files are {meta_data.format.provider!r}, and this connector reads only Parquet. Its "
            "log can be read: tarnlog_files, tarnlog_history and tarnlog_log."
        )
    whole = StructType.fromJson(json.loads(meta_data.schema_string))
    fields = list(whole.fields) if not columns else [_field(whole, name) for name in columns]
    if feed:
        fields += CHANGE_FIELDS
    return StructType(fields)


def _field(schema: StructType, name: str) -> StructField:
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field
    raise option_error(f"The table has no column {name!r}; it has {', '.join(schema.names)}.")
