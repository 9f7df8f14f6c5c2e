"""What the Spark benchmark reads and writes: rows that any Spark makes alike, and a table of very many small files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tarnlog import Client
from tarnlog.protocol.actions import Add
from tarnlog.protocol.commits import Committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 8
"""Values of the column that partitioned writes split by."""
ROWS_OF_A_SMALL_FILE = 100
_BATCH = 2_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How far to go beside plain Parquet."""

    rounds: int
    write_rounds: int
    """More of them: a write takes seconds, and one differs from the next."""
    rows: int
    """Rows of the table that is scanned."""
    files: int
    small_files: int
    """Files of the table that only a plan makes bearable."""
    written: int
    """Rows of each write."""


def rows(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    """Numbers in order, numbers without, few and many texts."""
    return spark.range(0, count, 1, tasks).selectExpr(
        "id",
        f"CAST(id % {PARTITIONS} AS INT) AS p",
        "CAST(hash(id) % 1000 AS INT) AS k",
        "CAST(hash(id, 7) AS DOUBLE) / 1000 AS x",
        "concat('name-', CAST(hash(id) % 5000 AS STRING)) AS s",
    )


def small_files(client: Client, name: str, files: int) -> Path:
    """A table of many files of a few rows each, `id` in order; made with pyarrow. Returns its folder."""
    kinds = (("id", "long"), ("x", "double"))
    fields = [{"name": column, "type": kind, "nullable": True, "metadata": {}} for column, kind in kinds]
    info = client.create_table(name, {"type": "struct", "fields": fields})
    folder = Path(info.location.removeprefix("file://"))
    now = time.time_ns() // 1_000_000
    adds: list[Add] = []
    for number in range(files):
        low = number * ROWS_OF_A_SMALL_FILE
        ids = pa.array(range(low, low + ROWS_OF_A_SMALL_FILE), pa.int64())
        path = folder / f"part-{number:06d}.parquet"
        pq.write_table(pa.table({"id": ids, "x": ids.cast(pa.float64())}), path)
        adds.append(_add(path, low, now))
        if len(adds) == _BATCH or number == files - 1:
            outcome = client.commit(name, adds)
            if not isinstance(outcome, Committed):
                raise RuntimeError(f"the benchmark's own commit failed: {outcome}")
            adds = []
    return folder


def _add(path: Path, low: int, now: int) -> Add:
    high = low + ROWS_OF_A_SMALL_FILE - 1
    return Add(
        path=path.name,
        partition_values={},
        size=path.stat().st_size,
        modification_time=now,
        data_change=True,
        num_records=ROWS_OF_A_SMALL_FILE,
        min_values={"id": str(low)},
        max_values={"id": str(high)},
    )
