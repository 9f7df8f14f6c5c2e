"""The table property `targetFileSize`, by every way to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tarnlog import Client
from tarnlog_spark import Table
from tests.service_process import ServiceProcess
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET, ROWS = 100_000, 300_000


def test_files_end_near_it(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, names: Callable[[], str], tmp_path: Path
) -> None:
    """Two tasks write some 3 MB: a file for each 100 kB, and one that is left over of each task."""
    properties = {"targetFileSize": str(TARGET)}
    by_table, by_format, by_stream = (
        Table.create(spark, names(), "id long, v string", properties=properties, url=tarnlog_service.url)
        for _ in range(3)
    )
    rows = spark.range(0, ROWS, 1, 2).selectExpr("id", "concat('v', id) v")
    by_table.write(rows)
    rows.write.format("tarnlog").mode("append").option("url", client.url).save(by_format.name)
    source = spark.readStream.format("tarnlog").option("url", client.url).load(by_table.name)
    place = {"url": client.url, "checkpointLocation": str(tmp_path / "checkpoint")}
    finished(
        lambda: (
            source.coalesce(2)
            .writeStream.format("tarnlog")
            .options(**place)
            .trigger(availableNow=True)
            .start(by_stream.name)
        )
    )
    for table in (by_table, by_format, by_stream):
        files = list(client.files(table.name))
        assert sum(file.num_records or 0 for file in files) == ROWS
        assert sum(file.size < TARGET for file in files) <= 2, "what was left over"
        assert all(file.size < 1.4 * TARGET for file in files)
        assert len(files) >= 20
