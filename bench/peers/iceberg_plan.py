"""Iceberg: a table of many entries as its hadoop catalog keeps tables, made with pyiceberg; no data file is there.

Run in the peer's own environment: `python -m bench.peers.iceberg_plan FOLDER FILES` makes FOLDER/bench/plan.
"""

from __future__ import annotations

import shutil
import sys
from datetime import date
from pathlib import Path
from typing import Any

from bench.plan_layout import ROWS, Entry, entries, path_of

BATCH = 10_000
"""Entries of a manifest: about what Iceberg aims at by itself."""


def build(folder: str, files: int) -> None:
    """Appends of many entries each; then the newest metadata gets the name that a hadoop catalog looks for."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DateType, LongType, NestedField

    place = Path(folder) / "bench" / "plan"
    place.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    fields = [NestedField(1, "id", LongType()), NestedField(2, "d", DateType()), NestedField(3, "x", LongType())]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "d"))
    table = catalog.create_table("bench.plan", Schema(*fields), location=f"file://{place}", partition_spec=spec)
    batch: list[Any] = []
    for entry in entries(files):
        batch.append(_data_file(entry, str(place)))
        if len(batch) == BATCH or entry.number == files - 1:
            with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
                for one in batch:
                    append.append_data_file(one)
            batch = []
    shutil.copy(table.metadata_location.removeprefix("file://"), place / "metadata" / "v1.metadata.json")
    (place / "metadata" / "version-hint.text").write_text("1")


def _data_file(entry: Entry, place: str) -> Any:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType

    def bounds(first: int, second: int) -> dict[int, bytes]:
        return {1: to_bytes(LongType(), first), 3: to_bytes(LongType(), second)}

    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{place}/data/{path_of(entry)}",
        file_format=FileFormat.PARQUET,
        partition=Record((date.fromisoformat(entry.day) - date(1970, 1, 1)).days),
        record_count=ROWS,
        file_size_in_bytes=100_000 + entry.number,
        column_sizes={},
        value_counts={1: ROWS, 3: ROWS},
        null_value_counts={1: 0, 3: 0},
        nan_value_counts={},
        lower_bounds=bounds(entry.number * ROWS, entry.low),
        upper_bounds=bounds(entry.number * ROWS + ROWS - 1, entry.high),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = 0
    return made


if __name__ == "__main__":
    build(sys.argv[1], int(sys.argv[2]))
