"""What the tests against plain Spark share: rows of every type, conditions on them, and how rows are compared."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from msgspec import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "ein Name.mit `allem` ü%/=,;{}"
"""A column's name, as SQL quotes it below."""

DDL = """
    k bigint, b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string, bin binary,
    dec decimal(20,4), big decimal(38,10), day date, ts timestamp, ntz timestamp_ntz,
    arr array<struct<x: int, y: array<string>>>, m map<string, decimal(5,2)>,
    st struct<`a b`: string, inner: struct<z: double>>, `ein Name.mit ``allem`` ü%/=,;{}` string,
    part string, p2 date, pi int, `p ü` boolean, pdec decimal(10,2), `p time` timestamp
"""
PARTITIONS = ["part", "p2", "pi", "p ü", "pdec", "p time"]


class Shape(Struct, frozen=True):
    """The columns of a table, and how its rows are written down in Python.

    `into` and `back` are the SQL of each column that Python does not hold as Spark does (times before 1900), from
    columns of the types in `raw` and to them. Without them the rows are Spark's own.
    """

    ddl: str
    partitions: tuple[str, ...]
    raw: str = ""
    into: tuple[str, ...] = ()
    back: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.ddl[:20].strip()} ...>"

    def frame(self, session: SparkSession, rows: list[Any]) -> DataFrame:
        made = session.createDataFrame(rows, self.raw or self.ddl)
        return made.selectExpr(*self.into) if self.into else made

    def collected(self, rows: DataFrame) -> list[Any]:
        """The rows of a DataFrame of this shape, as `frame` takes them."""
        return (rows.selectExpr(*self.back) if self.back else rows).collect()


WIDE = Shape(DDL, tuple(PARTITIONS))

_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
# Spark's Python side converts times through the C library, which does not know the first years.
_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
_specials = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
_doubles = _specials | st.floats(allow_subnormal=False)
_floats = _specials.filter(lambda x: x == 0 or math.isnan(x) or math.isinf(x)) | st.floats(width=32)
_parts = st.sampled_from(["", " ", "a b", "ü/=%", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "a%20b", "..", "😀"])
_part_times = st.sampled_from(
    [
        dt.datetime(2024, 1, 1),  # noqa: DTZ001
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
        dt.datetime(2024, 6, 30, 12, 34, 56, 100_000),  # noqa: DTZ001
    ]
)
# Few keys and partitions, so that rows meet.
ROW = st.tuples(
    st.none() | st.integers(0, 7),
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
    st.none() | st.integers(-1, 1),
    st.none() | st.booleans(),
    st.none() | st.decimals(-1, 1, places=2),
    st.none() | _part_times,
)
PARTITION_FILTERS = (
    "part = 'a b'",
    "part IS NULL OR p2 = date'2024-01-02'",
    "part IN ('', 'ü/=%', '..')",
    "pi >= 0",
    "NOT `p ü`",
    "pdec < 0.5 AND pdec IS NOT NULL",
    "`p time` < timestamp'2024-01-01 00:00:00' OR pi = 1",
)
FILTERS = (
    "i8 > 0",
    "NOT (i4 <= 5)",
    "d > 1.5 OR d IS NULL",
    "d = double('NaN')",
    "f <= 0",
    "s >= 'a' AND s < 'zz'",
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
    "`p time` = timestamp'2024-06-30 12:34:56.1' OR k < 4",
    *PARTITION_FILTERS,
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


def counted(rows: list[Any]) -> Counter[str]:
    """Rows without an order, each with how often it is there."""
    return Counter(repr(plain(tuple(row))) for row in rows)


def rows_of(rows: DataFrame) -> Counter[str]:
    return counted(rows.collect())


def check_same(found: Counter[str], expected: Counter[str], what: str) -> None:
    """Rows that are too many or missing are shown, and no others."""
    more, fewer = dict(found - expected), dict(expected - found)
    assert (more, fewer) == ({}, {}), f"{what}\ntoo many: {more}\nmissing: {fewer}"
