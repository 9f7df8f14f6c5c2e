"""Made-up rows of every type through a table and back, and everything that changes them, against plain Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tarnlog import Client
from tarnlog_spark import Table
from tarnlog_spark._scanning import SCAN_CONF
from tarnlog_spark._staging import WRITE_CONF
from tests.conftest import LONG
from tests.service_process import ServiceProcess
from tests.spark.oracle import DDL, FILTERS, PARTITIONS, ROW, check_same, counted, rows_of
from tests.spark.oracle_steps import STEPS, Step, configured
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAYS = ("native", "arrow", "format")


def some(few: int, many: int) -> settings:
    """Each example is several Spark jobs: a failing one is shown as it was made, not made small."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(max_examples=many if LONG else few, phases=phases, suppress_health_check=list(HealthCheck))


def read(spark: SparkSession, table: Table, url: str, way: str) -> DataFrame:
    """The newest rows, in one of the ways to read them."""
    if way == "format":
        return spark.read.format("tarnlog").option("url", url).load(table.name)
    with configured(spark, {SCAN_CONF: way}):
        return table.read()


@pytest.mark.timeout(7200)  # a long run has hundreds of examples
@some(2, 300)
@given(
    rows=st.lists(ROW, max_size=8),
    more=st.lists(ROW, max_size=3),
    filters=st.lists(st.sampled_from(FILTERS), min_size=3, max_size=3, unique=True),
)
def test_what_is_written_is_read(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    names: Callable[[], str],
    rows: list[Any],
    more: list[Any],
    filters: list[str],
) -> None:
    table = Table.create(spark, names(), DDL, partition_by=PARTITIONS, url=tarnlog_service.url)
    both = spark.createDataFrame([*rows, *more], DDL)
    table.write(spark.createDataFrame(rows, DDL))
    table.write(spark.createDataFrame(more, DDL), writer="arrow")
    expected = rows_of(both)
    for way in WAYS:
        check_same(rows_of(read(spark, table, tarnlog_service.url, way)), expected, way)
    for text in filters:
        check_same(rows_of(table.read(text)), rows_of(both.where(text)), text)


@pytest.mark.timeout(7200)
@some(2, 200)
@given(
    rows=st.lists(ROW, min_size=5, max_size=8),
    steps=STEPS,
    writer=st.sampled_from(["native", "arrow"]),
    back=st.integers(0, 6),
)
def test_every_change_is_what_plain_spark_makes_of_the_rows(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    tmp_path_factory: pytest.TempPathFactory,
    names: Callable[[], str],
    rows: list[Any],
    steps: list[Step],
    writer: str,
    back: int,
) -> None:
    """One table, every kind of change once, in any order; then its past, its change feed, and a stream of it."""
    url = tarnlog_service.url
    table = Table.create(spark, names(), DDL, partition_by=PARTITIONS, url=url)
    given = spark.createDataFrame(rows, DDL)
    table.write(given)
    now: list[Any] = given.collect()
    states = {0: Counter[str](), 1: counted(now)}
    for step, way in zip(steps, itertools.cycle(WAYS), strict=False):
        now = step.on_rows(spark.createDataFrame(now, DDL)).collect()
        with configured(spark, {WRITE_CONF: writer}):
            step.on_table(table, url)
        found = rows_of(read(spark, table, url, way))
        check_same(found, counted(now), f"{step} by {writer}, read by {way}")
        states[table.version] = found

    version = sorted(states)[back % len(states)]
    check_same(rows_of(table.read(version=version)), states[version], f"version {version}")
    check_feed(table.changes(0), states)
    feed = spark.read.format("tarnlog").options(url=url, readChangeFeed="true", startingVersion="0")
    check_feed(feed.load(table.name), states)
    copied = copy(spark, table, url, names(), tmp_path_factory.mktemp("checkpoint"))
    check_same(rows_of(copied.read()), counted(now), "the stream's copy")
    table.restore(version)
    check_same(rows_of(table.read()), states[version], f"restored to {version}")


def check_feed(feed: DataFrame, states: dict[int, Counter[str]]) -> None:
    """From each version to the next, the rows that the feed says went and came are the difference."""
    told: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
    for row in feed.collect():
        told[row["_commit_version"], row["_change_type"]].append(tuple(row)[:-3])
    assert {version for version, _ in told} <= set(states)
    rows = Counter[str]()
    for version in sorted(states):
        gone, new = counted(told[version, "delete"]), counted(told[version, "insert"])
        check_same(gone - rows, Counter(), f"what version {version} took away that was not there")
        rows = rows - gone + new
        check_same(rows, states[version], f"the changes of version {version}")


def copy(spark: SparkSession, table: Table, url: str, name: str, checkpoint: Path) -> Table:
    """The table through a stream into another one, which the stream makes."""
    finished(
        lambda: (
            spark.readStream.format("tarnlog")
            .option("url", url)
            .load(table.name)
            .writeStream.format("tarnlog")
            .options(url=url, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start(name)
        )
    )
    return Table.for_name(spark, name, url=url)


def test_filters_leave_out_files_and_no_row(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    """Values of every type in files of their own, so that a filter which lies about one would lose it."""
    made = Table.create(spark, name, DDL, partition_by=PARTITIONS, url=tarnlog_service.url)
    columns = made.schema.names
    examples: list[tuple[Any, ...]] = []
    for n in range(6):
        moment = dt.datetime(1990 + n * 5, 1, 1)  # noqa: DTZ001
        row: dict[str, Any] = {
            "k": n,
            "b": n % 2 == 0,
            "i4": n,
            "i8": n * 10**12,
            "f": float(n),
            "d": [0.5, -0.0, math.nan][n % 3],
            "s": "abcdef"[n] * 40,
            "dec": Decimal(n),
            "day": dt.date(1960 + n * 5, 1, 1),
            "ts": moment,
            "ntz": moment,
            "part": ["a b", None, ".."][n % 3],
            "p2": dt.date(2024, 1, 1 + n % 3),
            "pi": [None, -1, 0, 1][n % 4],
            "p ü": [True, None, False][n % 3],
            "pdec": Decimal(n) / 4,
            "p time": [dt.datetime(2024, 6, 30, 12, 34, 56, 100_000), None, moment][n % 3],  # noqa: DTZ001
        }
        examples.append(tuple(row.get(column) for column in columns))
    rows = spark.createDataFrame(examples, DDL)
    made.write(rows)
    passed = rows.selectExpr("i4", *(f"coalesce({text}, false) f{n}" for n, text in enumerate(FILTERS))).collect()
    for number, text in enumerate(FILTERS):
        expected = {row.i4 for row in passed if row[f"f{number}"]}
        assert {row.i4 for row in made.read(text, columns=["i4"]).collect()} == expected, text


def test_the_plan_prunes_what_a_filter_excludes(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    made = Table.create(spark, name, "id long, part string", partition_by=["part"], url=tarnlog_service.url)
    made.write(spark.createDataFrame([(n, f"p {n % 4}") for n in range(8)], "id long, part string").repartition(1))
    assert len(made._target.pin(filter="part = 'p 1'").files) == 1
    assert len(made._target.pin(filter="id >= 7").files) == 1
    assert len(made._target.pin(filter="length(part) = 3").files) == 4


@pytest.mark.parametrize("empty", [True, False])
def test_a_table_of_nothing(spark: SparkSession, tarnlog_service: ServiceProcess, name: str, empty: bool) -> None:
    made = Table.for_name(spark, name, url=tarnlog_service.url)
    rows = spark.createDataFrame([] if empty else [(None,)], "x struct<y: array<int>>")
    made.write(rows)
    assert [tuple(row) for row in made.read().collect()] == ([] if empty else [(None,)])
