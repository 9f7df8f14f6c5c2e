"""Filters on times in a session whose zone is not UTC: what Spark takes a time for is what files are chosen by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tarnlog import Client
from tarnlog_spark import Table
from tests.service_process import ServiceProcess
from tests.spark.test_table import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZONES = ["America/New_York", "Asia/Kolkata", "+02:00"]
CONDITIONS = [
    "ts < timestamp'2024-03-10 00:00:00'",
    "ts >= '2024-03-10'",
    "ts >= DATE'2024-03-10'",
    "ts BETWEEN '2024-03-10 01:00:00' AND '2024-03-10 02:30:00.5'",
    "ts = timestamp'2024-03-10 02:30:00'",
    "ts IN ('2024-03-10 04:00:00', timestamp'2024-03-10 05:00:00')",
    "ts > '2024-03-10T05:00:00Z'",
    "ts <= timestamp'2024-03-10 05:00:00+01:00'",
    "ts >= '2024-03-10 '",
    "ts < timestamp_ntz'2024-03-10 04:00:00'",
    "n < '2024-03-10 02:00:00'",
    "n < timestamp'2024-03-10 03:00:00'",
    "n > timestamp'2024-03-10 03:00:00'",
    "n >= timestamp_ntz'2024-03-10 03:00:00'",
    "n >= DATE'2024-03-10'",
    "d < '2024-03-10'",
    "d = DATE'2024-03-10'",
    "d >= timestamp'2024-03-10 00:00:00'",
    "NOT (ts < '2024-03-10 03:00:00')",
]


@pytest.fixture(params=ZONES)
def zoned(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """A session in another zone. The clocks of New York go from 2 to 3 o'clock on the day of these times."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", request.param)
    return session


def hours(session: SparkSession) -> DataFrame:
    """A row for each hour of three days, as a moment, as clocks show it, and as a day."""
    begin = "timestamp'2024-03-09 00:00:00Z'"
    moments = f"timestamp_seconds(unix_seconds({begin}) + 1800 * id) AS ts"
    clocks = "timestamp_ntz'2024-03-09 00:00:00' + make_dt_interval(0, 0, 30 * CAST(id AS INT)) AS n"
    return session.range(144).selectExpr("id", moments, clocks).selectExpr("*", "CAST(n AS DATE) AS d")


def test_filters_choose_by_the_sessions_zone(
    zoned: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    rows = hours(zoned)
    table = Table.for_name(zoned, name, url=tarnlog_service.url)
    table.write(rows.repartitionByRange(24, "id"))
    zone = zoned.conf.get("spark.sql.session.timeZone")
    assert len(table.read().inputFiles()) == 24
    for condition in CONDITIONS:
        assert rows_of(table.read(condition)) == rows_of(rows.where(condition)), condition
    pruned = client.plan(name, "ts < timestamp'2024-03-10 00:00:00'", time_zone=zone).files
    assert 0 < len(pruned) < 24, "and files are left out"


@pytest.mark.parametrize("zoned", ZONES[:1], indirect=True)
def test_rows_are_deleted_and_replaced_by_the_sessions_zone(
    zoned: SparkSession, tarnlog_service: ServiceProcess, name: str
) -> None:
    rows = hours(zoned)
    table = Table.for_name(zoned, name, url=tarnlog_service.url)
    table.write(rows.repartitionByRange(12, "id"))
    early, late = "ts < timestamp'2024-03-10 00:00:00'", "ts >= '2024-03-11'"
    assert table.delete(early).num_rows == rows.where(early).count() > 0
    left = rows.where(f"NOT ({early})")
    assert rows_of(table.read()) == rows_of(left)
    moved = rows.where(late).selectExpr("id + 1000 AS id", "ts", "n", "d")
    table.write(moved, mode="overwrite", replace_where=late)
    assert rows_of(table.read()) == rows_of(left.where(f"NOT ({late})").union(moved))


@pytest.mark.parametrize("zoned", ZONES[:1], indirect=True)
@pytest.mark.parametrize("writer", ["native", "arrow"])
def test_a_partition_by_time_is_the_same_moment_in_every_zone(
    zoned: SparkSession, spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str, writer: str
) -> None:
    rows = hours(zoned).where("id % 36 = 5")
    table = Table.for_name(zoned, name, url=tarnlog_service.url)
    table.write(rows, partition_by=["ts"], writer=writer)  # type: ignore[arg-type]
    for condition in CONDITIONS[:5]:
        assert rows_of(table.read(condition)) == rows_of(rows.where(condition)), condition
    elsewhere = Table.for_name(spark, name, url=tarnlog_service.url)
    assert rows_of(elsewhere.read().selectExpr("id", "unix_micros(ts)")) == rows_of(
        rows.selectExpr("id", "unix_micros(ts)")
    )
    assert len(list(client.files(name))) == 4


@pytest.mark.parametrize("zoned", ZONES[:1], indirect=True)
def test_an_optimize_chooses_by_the_sessions_zone(
    zoned: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    rows, condition = hours(zoned), "ts < timestamp'2024-03-10 00:00:00'"
    table = Table.for_name(zoned, name, url=tarnlog_service.url)
    table.write(rows.repartitionByRange(12, "id"))
    chosen = len(client.plan(name, condition, time_zone=ZONES[0]).files)
    assert chosen != len(client.plan(name, condition).files)
    assert table.optimize().where(condition).execute_compaction().num_removed_files == chosen


@pytest.mark.parametrize("zoned", ZONES[:1], indirect=True)
def test_filters_that_spark_pushes_are_moments(zoned: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    rows = hours(zoned)
    Table.for_name(zoned, name, url=tarnlog_service.url).write(rows.repartitionByRange(24, "id"))
    zoned.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    options = {"url": tarnlog_service.url, "pushFilters": "true"}
    for condition in CONDITIONS[::6]:  # each takes as long as starting Python does
        found = zoned.read.format("tarnlog").options(**options).load(name).where(condition)
        assert rows_of(found) == rows_of(rows.where(condition)), condition
