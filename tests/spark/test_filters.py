"""Filters that Spark pushes, as predicates: what is said means the same, what cannot be said is left out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import datasource as spark

from tarnlog.protocol.predicates import (
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Predicate,
    parse_predicate,
    to_builtins,
)
from tarnlog_spark._filters import predicate_of

A = ("a",)
NAIVE = dt.datetime.fromisoformat("2024-01-31T10:00:00")


@pytest.mark.parametrize(
    "pushed, said",
    [
        (spark.EqualTo(A, 1), Compare("eq", "a", 1)),
        (spark.GreaterThan(A, 1.5), Compare("gt", "a", 1.5)),
        (spark.GreaterThanOrEqual(A, Decimal("1.50")), Compare("ge", "a", "1.50")),
        (spark.LessThan(A, dt.date(2024, 1, 31)), Compare("lt", "a", "2024-01-31")),
        (spark.LessThanOrEqual(A, NAIVE), Compare("le", "a", "2024-01-31T10:00:00")),
        (spark.EqualTo(A, dt.datetime(2024, 1, 31, tzinfo=dt.UTC)), Compare("eq", "a", "2024-01-31T00:00:00+00:00")),
        (spark.EqualTo(A, True), Compare("eq", "a", True)),
        (spark.StringStartsWith(A, "x"), Compare("starts-with", "a", "x")),
        (spark.In(A, (1, 2)), In("a", (1, 2))),
        (spark.In(A, (1, None)), In("a", (1, None))),
        (spark.IsNull(A), IsNull("a")),
        (spark.IsNotNull(A), IsNotNull("a")),
        (spark.Not(spark.EqualTo(A, 1)), Not(Compare("eq", "a", 1))),
        (spark.EqualNullSafe(A, 1), And((IsNotNull("a"), Compare("eq", "a", 1)))),
        (spark.EqualNullSafe(A, None), None),
        (spark.EqualTo(("a", "b"), 1), None),
        (spark.EqualTo(A, float("nan")), None),
        (spark.EqualTo(A, b"x"), None),
        (spark.EqualTo(A, [1]), None),
        (spark.In(A, (None,)), None),
        (spark.In(A, (1, float("inf"))), None),
        (spark.StringContains(A, "x"), None),
        (spark.StringEndsWith(A, "x"), None),
        (spark.Not(spark.StringContains(A, "x")), None),
    ],
)
def test_each_filter(pushed: spark.Filter, said: Predicate | None) -> None:
    found = predicate_of([pushed])
    assert found == said
    assert found is None or parse_predicate(to_builtins(found)) == found


def test_several_hold_together() -> None:
    one, other = spark.EqualTo(A, 1), spark.IsNotNull(("b",))
    assert predicate_of([one, spark.StringContains(A, "x"), other]) == And((Compare("eq", "a", 1), IsNotNull("b")))
    assert predicate_of([]) is None
