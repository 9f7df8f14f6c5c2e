"""Made-up DataFrames through a table and back, against the DataFrame itself: every type, awkward names and values."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tarnlog import Client
from tarnlog_spark import Table
from tarnlog_spark._scanning import SCAN_CONF
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "ein Name.mit `allem` ü%/=,;{}"
"""A column's name, as SQL quotes it below."""

DDL = """
    b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string, bin binary,
    dec decimal(20,4), big decimal(38,10), day date, ts timestamp, ntz timestamp_ntz,
    arr array<struct<x: int, y: array<string>>>, m map<string, decimal(5,2)>,
    st struct<`a b`: string, inner: struct<z: double>>, `ein Name.mit ``allem`` ü%/=,;{}` string, part string, p2 date
"""

_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
# Spark's Python side converts times through the C library, which does not know the first years.
_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
_specials = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
_doubles = _specials | st.floats(allow_subnormal=False)
_floats = _specials.filter(lambda x: x == 0 or math.isnan(x) or math.isinf(x)) | st.floats(width=32)
_parts = st.sampled_from(["", " ", "a b", "ü/=%", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "a%20b", "..", "😀"])

ROW = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.integers(-128, 127),
    st.none() | st.integers(-(2**15), 2**15 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | _floats,
    st.none() | _doubles,
    st.none() | _text,
    st.none() | st.binary(max_size=8),
    st.none() | st.decimals(-(10**15), 10**15, places=4),
    st.none() | st.decimals(-(10**27), 10**27, places=10),
    st.none() | st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    st.none() | _moments,
    st.none() | _moments,
    st.none() | st.lists(st.none() | st.tuples(st.none() | st.integers(0, 9), st.none() | st.lists(_text, max_size=2))),
    st.none() | st.dictionaries(_text, st.none() | st.decimals(-99, 99, places=2), max_size=3),
    st.none() | st.tuples(st.none() | _text, st.none() | st.tuples(st.none() | _doubles)),
    st.none() | _text,
    st.none() | _parts,
    st.none() | st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 3)),
)
FILTERS = (
    "i8 > 0",
    "NOT (i4 <= 5)",
    "d > 1.5 OR d IS NULL",
    "d = double('NaN')",
    "f <= 0",
    "s >= 'a' AND s < 'zz'",
    "part = 'a b'",
    "part IS NULL OR p2 = date'2024-01-02'",
    "part IN ('', 'ü/=%', '..')",
    "p2 >= date'2024-01-02' AND i8 IS NOT NULL",
    "dec BETWEEN -10 AND 100000.5",
    "day < date'1970-01-01'",
    "ts >= timestamp'2000-01-01 00:00:00'",
    "ntz < timestamp_ntz'2000-01-01 00:00:00'",
    "b",
    "NOT b",
    "st.`a b` = 'x' OR size(arr) > 0",
    "s LIKE 'a%'",
    f"`{ODD.replace('`', '``')}` IS NOT NULL",
)


def plain(value: Any) -> Any:
    """A value that equals another exactly when SQL would say that nothing changed."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list):
        return ["list", *(plain(item) for item in value)]
    if isinstance(value, dict):
        return ("map", *sorted((key, plain(item)) for key, item in value.items()))
    return value


def rows_of(rows: DataFrame) -> Counter[str]:
    return Counter(repr(plain(tuple(row))) for row in rows.collect())


# Each example is several Spark jobs: a failing one is shown as it was made, not made small.
@settings(max_examples=3, phases=(Phase.reuse, Phase.generate), suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(ROW, max_size=8),
    more=st.lists(ROW, max_size=3),
    filters=st.lists(st.sampled_from(FILTERS), min_size=2, max_size=2, unique=True),
)
def test_what_is_written_is_read(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    names: Any,
    rows: list[Any],
    more: list[Any],
    filters: list[str],
) -> None:
    table = Table.create(spark, names(), DDL, partition_by=["part", "p2"], url=tarnlog_service.url)
    both = spark.createDataFrame([*rows, *more], DDL)
    table.write(spark.createDataFrame(rows, DDL))
    table.write(spark.createDataFrame(more, DDL))
    expected = rows_of(both)
    try:
        for way in ("native", "arrow"):
            spark.conf.set(SCAN_CONF, way)
            assert rows_of(table.read()) == expected, way
    finally:
        spark.conf.unset(SCAN_CONF)
    for text in filters:
        assert table.read(text).count() == both.where(text).count(), text


def test_filters_leave_out_files_and_no_row(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    """Values of every type in files of their own, so that a filter which lies about one would lose it."""
    made = Table.create(spark, name, DDL, partition_by=["part", "p2"], url=tarnlog_service.url)
    examples: list[list[Any]] = []
    for n in range(6):
        row: list[Any] = [None] * 20
        row[0], row[3], row[4], row[5], row[6] = n % 2 == 0, n, n * 10**12, float(n), [0.5, -0.0, math.nan][n % 3]
        row[7], row[9], row[11] = "abcdef"[n] * 40, Decimal(n), dt.date(1960 + n * 5, 1, 1)
        row[12] = row[13] = dt.datetime(1990 + n * 5, 1, 1)  # noqa: DTZ001
        row[18], row[19] = ["a b", None, ".."][n % 3], dt.date(2024, 1, 1 + n % 3)
        examples.append(row)
    rows = spark.createDataFrame([tuple(row) for row in examples], DDL)
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
