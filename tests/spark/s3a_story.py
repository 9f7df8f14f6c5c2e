"""Spark with the hadoop-aws jar in a process of its own: the jar must be there when its Java starts.

`python -m tests.spark.s3a_story TABLE`, with the service and the S3 server in the environment; prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

import tarnlog_spark
from tarnlog import Client
from tarnlog_spark import _kept_plans, _planned_index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAR = "org.apache.hadoop:hadoop-aws:3.5.0"
DDL = "id long, p string"


def started() -> SparkSession:
    conf = {
        "spark.jars.packages": JAR,
        "spark.hadoop.fs.s3a.endpoint": os.environ["TARNLOG_S3_ENDPOINT"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "spark.tarnlog.scan": "native",
        "spark.log.level": "ERROR",
    }
    return tarnlog_spark.session("s3a", master="local[2,2]", conf=conf)


def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of a task dies after its rows: what it wrote must not be taken for the table's."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
        raise RuntimeError("lost on purpose")


def indexed_reads(table: tarnlog_spark.Table, more: DataFrame) -> tuple[list[str], int]:
    """How Spark lists the files of a read, and of one of a newer version, as those of very many; and rows that came."""
    _kept_plans.KEPT_FROM = 1
    _planned_index.WAIT_FROM = 0
    reads = [table.read()]
    table.write(more, writer="arrow")
    reads.append(table.read())
    before, after = (one.count() for one in reads)
    locations = (cast(Any, one)._jdf.queryExecution().analyzed().relation().location() for one in reads)
    return [location.getClass().getSimpleName() for location in locations], after - before


def main(name: str) -> None:
    spark = started()
    table = tarnlog_spark.Table.create(spark, name, DDL, partition_by=["p"])
    client = Client(os.environ["TARNLOG_URL"])

    def rows(first: int) -> DataFrame:
        return spark.createDataFrame([(n, "a b" if n % 2 else "ü%") for n in range(first, first + 10)], DDL)

    def ids() -> list[int]:
        return sorted(row.id for row in table.read("p = 'a b'").collect())

    def paths() -> set[str]:
        return {file.path for file in client.files(name)}

    table.write(rows(0))
    by_arrow = paths()
    table.delete("id = 3")
    native, files, before = ids(), table.read().inputFiles(), paths()

    written = table.write(rows(10).repartition(2).mapInArrow(fails_once, DDL), writer="native")
    staged = paths() - before
    spark.conf.set("spark.tarnlog.write", "native")
    table.update({"id": "id + 1000"}, "p = 'a b' AND id > 10")
    updated = paths() - before - staged
    told = {"native": native, "files": files, "after": ids(), "rows": written.num_rows}
    spark.conf.set("spark.tarnlog.scan", "arrow")
    told["arrow"] = ids()
    spark.conf.set("spark.tarnlog.scan", "native")
    told["indexed"], told["grown"] = indexed_reads(table, rows(30))
    by = {"by_arrow": sorted(by_arrow), "staged": sorted(staged), "updated": sorted(updated)}
    print(json.dumps({**told, **by}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
