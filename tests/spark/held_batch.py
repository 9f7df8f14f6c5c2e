"""A stream whose batch writes one file and then waits: between its files and its commit, for as long as a test likes.

`python -m tests.spark.held_batch URL SOURCE SINK FOLDER` runs it on a Spark of its own, to be killed. The source has
two files, and the task of the one with id 2 waits for a file `go` in the folder; the checkpoint is there too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

import tarnlog_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HELD = 2
WAIT_SECONDS = 120


def start(spark: SparkSession, url: str, source: str, sink: str, folder: Path) -> StreamingQuery:
    go = str(folder / "go")

    def passed_on(number: int) -> int:
        give_up = time.monotonic() + WAIT_SECONDS
        while number == HELD and not Path(go).exists():
            assert time.monotonic() < give_up, "nobody let it go on"
            time.sleep(0.05)
        return number

    rows = spark.readStream.format("tarnlog").options(url=url, parallelism="2").load(source)
    held = rows.withColumn("id", F.udf(passed_on, "long")("id"))
    writer = held.writeStream.format("tarnlog").options(url=url, checkpointLocation=str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(sink)


def main(url: str, source: str, sink: str, folder: Path) -> None:
    spark = tarnlog_spark.session("held batch", master="local[2]", conf={"spark.driver.memory": "512m"})
    start(spark, url, source, sink, folder).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
