"""Streams that write a table: each row once, whatever fails between the commit and the checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Pipe:
    """A query from one table into another, run again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, url: str, source: str, sink: str, home: Path, **options: str) -> None:
        self.spark = spark
        self.url = url
        self.source = source
        self.sink = sink
        self.home = home
        self.options = options
        self.mode = "append"
        self.shape: Callable[[DataFrame], DataFrame] = lambda rows: rows

    def start(self) -> StreamingQuery:
        source = self.spark.readStream.format("tarnlog").option("url", self.url).option("maxFilesPerTrigger", "1")
        writer = self.shape(source.load(self.source)).writeStream.format("tarnlog").outputMode(self.mode)
        return (
            writer.options(url=self.url, **self.options)
            .option("checkpointLocation", str(self.home))
            .queryName(f"into {self.sink}")
            .trigger(availableNow=True)
            .start(self.sink)
        )

    def run(self) -> None:
        finished(self.start)

    def forget_last_commit(self) -> None:
        """The query died after the table had the batch, and before its checkpoint said so."""
        commits = self.home / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def pipe(
    spark: SparkSession, tarnlog_service: ServiceProcess, tmp_path: Path, names: Callable[[], str]
) -> Callable[..., Pipe]:
    def made(source: str, **options: str) -> Pipe:
        return Pipe(spark, tarnlog_service.url, source, names(), tmp_path / f"checkpoint of {source}", **options)

    return made


def ids(client: Client, spark: SparkSession, url: str, table: str) -> list[int]:
    rows = spark.read.format("tarnlog").option("url", url).load(table).select("id").collect()
    return sorted(row.id for row in rows)


def test_each_row_once_however_often_it_is_replayed(
    client: Client, spark: SparkSession, name: str, pipe: Callable[..., Pipe]
) -> None:
    table = HandMade(client, name)
    table.add([1], [2])
    query = pipe(name)
    query.run()  # makes the table
    assert ids(client, spark, query.url, query.sink) == [1, 2]
    head = client.get_table(query.sink).version
    query.forget_last_commit()
    query.run()
    assert client.get_table(query.sink).version == head, "the batch that came again was not committed again"
    assert ids(client, spark, query.url, query.sink) == [1, 2]

    table.add([3])
    query.forget_last_commit()
    query.run()
    assert ids(client, spark, query.url, query.sink) == [1, 2, 3]
    app_id = json.loads((query.home / "metadata").read_text())["id"]
    newest = next(iter(client.history(query.sink)))
    assert (newest.operation, newest.operation_parameters["queryId"]) == ("STREAMING UPDATE", app_id)
    assert client.txn(query.sink, app_id) is not None

    shutil.rmtree(query.home)  # a query with another checkpoint is another query
    query.run()
    assert ids(client, spark, query.url, query.sink) == [1, 1, 2, 2, 3, 3]


def test_a_name_of_its_own_outlives_the_checkpoint(
    client: Client, spark: SparkSession, name: str, pipe: Callable[..., Pipe]
) -> None:
    HandMade(client, name).add([1])
    query = pipe(name, txnAppId="mine")
    query.run()
    shutil.rmtree(query.home)
    query.run()
    assert ids(client, spark, query.url, query.sink) == [1]
    found = client.txn(query.sink, "mine")
    assert found is not None
    assert found.version == 0


def test_complete_mode_replaces_and_a_column_is_added_on_request(
    client: Client, spark: SparkSession, name: str, pipe: Callable[..., Pipe]
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

    table = HandMade(client, name)
    table.add([1], [2])
    query = pipe(name)
    query.mode = "complete"
    query.shape = lambda rows: rows.groupBy("day").agg(F.count("*").alias("id"))
    query.run()
    assert ids(client, spark, query.url, query.sink) == [2]

    other = pipe(name)
    other.sink, other.home = query.sink, other.home.with_name("other")
    other.shape = lambda rows: rows.withColumn("extra", F.lit("x"))
    with pytest.raises(Exception, match="extra: the table has no such column"):
        other.run()
    other.options = {"mergeSchema": "true"}
    other.run()
    assert ids(client, spark, query.url, query.sink) == [1, 2, 2]


def test_options_that_it_does_not_know_are_refused(name: str, client: Client, pipe: Callable[..., Pipe]) -> None:
    HandMade(client, name).add([1])
    query: Any = pipe(name, replaceWhere="id = 1")
    with pytest.raises(Exception, match="knows no option 'replacewhere'"):
        query.run()
