"""pyiceberg with a SQL catalog on PostgreSQL: a writer fast-appends one data file a commit; nothing is behind its path.

It does not fsync local files; the catalog's row does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PRELOAD = ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "psycopg2")
DISTRIBUTIONS = ("pyiceberg", "psycopg2-binary")
DAY = 19723  # 2024-01-01 in days since 1970


def _catalog(setting: dict[str, Any]) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"postgresql+psycopg2://postgres@/{setting['database']}?host={setting['socket']}"
    return SqlCatalog("bench", uri=uri, warehouse=f"file://{setting['folder']}")


def prepare(setting: dict[str, Any]) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DateType, LongType, NestedField

    catalog = _catalog(setting)
    catalog.create_namespace("bench")
    fields = [NestedField(1, "id", LongType()), NestedField(2, "d", DateType()), NestedField(3, "x", LongType())]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "d"))
    for index in range(setting["tables"]):
        catalog.create_table(f"bench.t{index}", Schema(*fields), partition_spec=spec)


def _data_file(name: str) -> Any:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType

    def bounds(first: int, second: int) -> dict[int, bytes]:
        return {1: to_bytes(LongType(), first), 3: to_bytes(LongType(), second)}

    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///absent/d=2024-01-01/part-{name}.snappy.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(DAY),
        record_count=1000,
        file_size_in_bytes=1000,
        column_sizes={},
        value_counts={1: 1000, 3: 1000},
        null_value_counts={1: 0, 3: 0},
        nan_value_counts={},
        lower_bounds=bounds(1, 1),
        upper_bounds=bounds(9, 5),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    entry.spec_id = 0
    return entry


def open_writer(setting: dict[str, Any], index: int) -> Callable[[int], None]:
    table = _catalog(setting).load_table(f"bench.t{index % setting['tables']}")

    def commit(count: int) -> None:
        try:
            with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
                append.append_data_file(_data_file(f"{index}-{count}"))
        except Exception:
            table.refresh()  # what an application does before it tries again
            raise

    return commit


def landed(setting: dict[str, Any]) -> int:
    catalog = _catalog(setting)
    return sum(len(catalog.load_table(f"bench.t{index}").metadata.snapshots) for index in range(setting["tables"]))
