"""What batch reads and streams share: partitions of files, and their rows as Arrow batches in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

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

    def __init__(self, storage: Storage, files: tuple[DataFile, ...]) -> None:
        self.storage = storage
        self.files = files


def partitions_of(storage: Storage, files: Iterable[DataFile], splits: Splits) -> list[FilesPartition]:
    """One partition a task."""
    return [FilesPartition(storage, group) for group in shared_out(files, splits)]


def read_partition(partition: InputPartition, schema: StructType, *, feed: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Spark makes a partition of its own, without files, when there is none."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(partition, FilesPartition):
        return
    wanted = to_arrow_schema(schema, timezone="UTC")
    for file in partition.files:
        fixed = _change_values(file) if feed else {}
        yield from read_batches(partition.storage, file.path, wanted, absent=file.partition_values, fixed=fixed)


def _change_values(file: DataFile) -> dict[str, object]:
    moment = None if file.timestamp is None else file.timestamp * MICROS
    values = (file.change, file.version, moment)
    return {field.name: value for field, value in zip(CHANGE_FIELDS, values, strict=True)}


def table_schema(meta_data: MetaData, columns: tuple[str, ...] = (), *, feed: bool = False) -> StructType:
    """The schema of a read: the table's columns, or those that were asked for, and the change feed's."""
    import json

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
