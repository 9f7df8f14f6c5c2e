"""Dates before the Gregorian calendar: the same by all ways of reading, in a session that reads by another calendar."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarnlog.protocol.actions import Add
from tarnlog_spark import Table, _planned_index, _scanning
from tarnlog_spark._scan_lists import list_of_adds
from tarnlog_spark._scanning import SCAN_CONF, scan, scan_rows
from tarnlog_spark._storage import storage_at
from tests.service_process import ServiceProcess
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ, INT96 = "spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead"
WRITE = "spark.sql.parquet.datetimeRebaseModeInWrite"
DAY, MOMENT = dt.date(1500, 2, 20), dt.datetime(1500, 2, 20, 12, tzinfo=dt.UTC)


@pytest.fixture(params=["LEGACY", "EXCEPTION", "CORRECTED"])
def calendar(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A session with another mode for files that name no calendar, and, where there is one, for writing."""
    for key in (READ, INT96, WRITE):
        spark.conf.set(key, request.param)
    yield str(request.param)
    for key in (READ, INT96, WRITE, SCAN_CONF, _scanning._IGNORES_MANIFESTS):
        spark.conf.unset(key)


def ways(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The ways of scanning, one after the other."""
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    yield "index"
    with monkeypatch.context() as patch:
        patch.setattr(_scanning, "indexed", lambda *_: None)
        yield "manifest"
        spark.conf.set(_scanning._IGNORES_MANIFESTS, "true")
        yield "paths"
        spark.conf.unset(_scanning._IGNORES_MANIFESTS)
    spark.conf.set(SCAN_CONF, "arrow")
    yield "arrow"
    spark.conf.unset(SCAN_CONF)


def found(rows: DataFrame) -> list[Any]:
    """As text, made by Spark: Python's times are shifted by the zone of old."""
    return sorted(tuple(row) for row in rows.selectExpr("id", "string(d)", "string(t)").collect())


def test_old_dates_are_read_as_they_were_written(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    name: str,
    calendar: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    table = Table.create(spark, name, "id long, d date, t timestamp", url=tarnlog_service.url)
    old = "date'1500-02-20' d, timestamp'1500-02-20 12:00:00Z' t"
    table.write(spark.sql(f"select 1L id, {old}"), writer="arrow")
    table.write(spark.sql(f"select 2L id, {old}"), writer="native")
    expected = [(number, "1500-02-20", "1500-02-20 12:00:00") for number in (1, 2)]
    for way in ways(spark, monkeypatch):
        assert found(table.read()) == expected, way
        assert found(table.read("d = date'1500-02-20' AND t <= timestamp'1500-02-20 12:00:00Z'")) == expected, way
        assert found(table.changes(1)) == expected, way
    assert table.update({"d": "d + 1"}, "id = 1 AND d < date'1500-02-21'").num_rows == 1
    expected = [(1, "1500-02-21", "1500-02-20 12:00:00"), expected[1]]
    loaded = spark.read.format("tarnlog").option("url", tarnlog_service.url).load(name)
    assert found(loaded) == expected
    if calendar != "LEGACY":
        return  # a stream reads as the format does, and takes longest
    stream = spark.readStream.format("tarnlog").option("url", tarnlog_service.url).load(name)
    sink = f"calendar_{calendar}".lower()
    begun = stream.writeStream.format("memory").queryName(sink).trigger(availableNow=True)
    finished(begun.option("checkpointLocation", str(tmp_path)).start)
    assert found(spark.table(sink)) == expected


def test_old_times_of_96_bits_too(
    spark: SparkSession, calendar: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1], "d": [DAY], "t": pa.array([MOMENT], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "x", use_deprecated_int96_timestamps=True)
    add = Add(
        path="x", partition_values={}, size=(tmp_path / "x").stat().st_size, modification_time=0, data_change=True
    )
    schema = spark.createDataFrame([], "id long, d date, t timestamp").schema
    for way in ways(spark, monkeypatch):
        for scanning in (scan, scan_rows):
            read = scanning(spark, storage_at(tmp_path.as_uri()), list_of_adds([add]), schema)
            assert found(read) == [(1, "1500-02-20", "1500-02-20 12:00:00")], way
