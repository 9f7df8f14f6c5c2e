"""Batch reads through the format: versions, times, columns, schemas, change feeds, filters, views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONGS = {"type": "array", "elementType": "long", "containsNull": True}
WIDE = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "Col with spaces", "type": "string", "nullable": True, "metadata": {"comment": "x"}},
        {"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        {"name": "t", "type": "timestamp", "nullable": True, "metadata": {}},
        {"name": "n", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
        {
            "name": "l",
            "type": {"type": "array", "elementType": "long", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ],
}


class Reads:
    """What the format reads of the test's service."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark = spark
        self.url = url

    def frame(self, table: str, **options: Any) -> DataFrame:
        return self.spark.read.format("tarnlog").options(url=self.url, **options).load(table)

    def ids(self, table: str, **options: Any) -> list[int]:
        return sorted(row.id for row in self.frame(table, **options).collect())

    def fails(self, table: str, **options: Any) -> str:
        with pytest.raises(Exception) as caught:
            self.frame(table, **options).collect()
        return str(caught.value)


@pytest.fixture
def reads(spark: SparkSession, tarnlog_service: ServiceProcess) -> Reads:
    return Reads(spark, tarnlog_service.url)


def test_versions_and_times(reads: Reads, client: Client, name: str) -> None:
    table = HandMade(client, name)
    assert reads.ids(name) == []
    first = table.add([1, 2], [3])
    table.add([4])
    assert reads.ids(name) == [1, 2, 3, 4]
    assert reads.ids(name, versionAsOf=1) == [1, 2, 3]
    assert reads.ids(name, timestampAsOf=first.timestamp) == [1, 2, 3]
    frame = reads.frame(name)
    table.add([5])
    assert frame.count() == frame.count() == 4, "a DataFrame stays at the version at which it was made"
    assert reads.frame(name).count() == 5
    assert "newest" in reads.fails(name, versionAsOf=99)
    assert "there is no table" in reads.fails("no.where")
    assert "did you mean versionAsOf" in reads.fails(name, versionAsOff=1)


def test_columns_types_and_schemas(reads: Reads, client: Client, name: str) -> None:
    """One file has narrower types, other names' case, and lacks columns; Spark must see the table's schema."""
    table = HandMade(client, name, WIDE)
    table.commit(
        table.parquet(pa.table({"L": pa.array([[1, None]], pa.list_(pa.int32())), "ID": pa.array([1], pa.int32())}))
    )
    rows = reads.frame(name).collect()
    assert [tuple(row) for row in rows] == [(1, None, None, None, None, [1, None])]
    assert reads.frame(name).schema.jsonValue() == WIDE
    assert reads.frame(name, columns="l, ID").schema.names == ["l", "id"]
    assert "no column 'nope'" in reads.fails(name, columns="nope")
    given = reads.spark.read.format("tarnlog").option("url", reads.url).schema("new string, id long").load(name)
    assert [tuple(row) for row in given.collect()] == [(None, 1)]


def test_filters_leave_out_files_and_never_rows(reads: Reads, client: Client, name: str) -> None:
    """The file that a filter leaves out is not there at all, so reading it would fail."""
    table = HandMade(client, name)
    table.add([1, 2, 3])
    gone = table.file([100, 200])
    table.commit(gone)
    (table.location / gone.path).unlink()
    assert reads.ids(name, filter="id < 3 AND day = 'a'") == [1, 2], "the option decides which rows there are"
    assert [row.day for row in reads.frame(name, filter="id = 2", columns="day").collect()] == ["a"]
    assert "nope" in reads.fails(name, filter="nope = 1")
    conf = "spark.sql.python.filterPushdown.enabled"
    reads.spark.conf.set(conf, "true")
    try:
        for condition in ("id < 50", "id IN (1, 7)", "id = 1 AND day IS NOT NULL", "NOT (id > 20) AND day LIKE 'a%'"):
            frame = reads.frame(name, pushFilters="true").where(condition).where("id = 1")
            assert frame.count() == 1, condition
        with pytest.raises(Exception, match="is gone"):
            reads.frame(name, pushFilters="true").where("id > 50 OR id < 3").collect()
        with pytest.raises(Exception, match="is gone"):
            reads.frame(name).where("id < 50").collect()
    finally:
        reads.spark.conf.unset(conf)
    with pytest.raises(Exception, match="is gone"):
        reads.frame(name, pushFilters="true").where("id < 50").collect()


def test_queries_over_one_frame_do_not_share_their_filters(reads: Reads, client: Client, name: str) -> None:
    """Spark keeps what the last query pushed for all of them; that must not cost rows."""
    table = HandMade(client, name)
    table.add([1, 2])
    table.add([100, 200])
    conf = "spark.sql.python.filterPushdown.enabled"
    reads.spark.conf.set(conf, "true")
    try:
        frame = reads.frame(name)
        assert frame.where("id < 50").count() == 2
        assert frame.count() == 4
        both = frame.where("id < 50").union(frame.where("id > 150"))
        assert sorted(row.id for row in both.collect()) == [1, 2, 200]
    finally:
        reads.spark.conf.unset(conf)


def test_the_change_feed(reads: Reads, client: Client, name: str) -> None:
    table = HandMade(client, name)
    one = table.file([1, 2])
    first = table.commit(one)
    table.add([3])
    moved = table.file([1, 2], data_change=False)
    table.remove(one, data_change=False, adds=[moved], operation="OPTIMIZE")
    table.remove(moved, adds=[table.file([1, 20])], operation="UPDATE")

    def feed(**options: Any) -> list[tuple[Any, ...]]:
        frame = reads.frame(name, readChangeFeed="true", **options)
        return sorted(tuple(row) for row in frame.select("_commit_version", "_change_type", "id").collect())

    inserts = [(1, "insert", 1), (1, "insert", 2), (2, "insert", 3)]
    update = [(4, "delete", 1), (4, "delete", 2), (4, "insert", 1), (4, "insert", 20)]
    assert feed(startingVersion=0) == [*inserts, *update]
    assert feed(startingVersion=3) == update
    assert feed(startingVersion=1, endingVersion=2) == inserts
    assert feed(startingTimestamp=first.timestamp, endingTimestamp=first.timestamp) == inserts[:2]
    frame = reads.frame(name, readChangeFeed="true", startingVersion=1, endingVersion=1)
    assert {int(row._commit_timestamp.timestamp() * 1000) for row in frame.collect()} == {first.timestamp}
    for options, sentence in (
        ({"startingVersion": 9}, "is not there yet"),
        ({"startingVersion": 2, "endingVersion": 1}, "end before it"),
        ({}, "needs startingVersion"),
    ):
        assert sentence in reads.fails(name, readChangeFeed="true", **options)


def test_sql_through_views(reads: Reads, client: Client, name: str) -> None:
    table = HandMade(client, name)
    table.add([1, 2])
    table.add([3])
    for view, version in (("newest_rows", None), ("first_rows", 1)):
        options = {"table": name, "url": reads.url, **({} if version is None else {"versionAsOf": str(version)})}
        listed = ", ".join(f"'{key}' '{value}'" for key, value in options.items())
        reads.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING tarnlog OPTIONS ({listed})")
    counts = reads.spark.sql("SELECT (SELECT count(*) FROM newest_rows), (SELECT count(*) FROM first_rows)").collect()
    assert tuple(counts[0]) == (3, 2)


def test_tasks_share_the_files(reads: Reads, client: Client, name: str) -> None:
    HandMade(client, name).add(*([number] for number in range(6)))
    assert reads.frame(name, parallelism=3).rdd.getNumPartitions() == 3
    assert reads.frame(name, maxPartitionBytes=1).rdd.getNumPartitions() == 6
    assert reads.ids(name, parallelism=3) == list(range(6))
