"""Filters that Spark pushes down, as the predicates that the service plans with.

What cannot be said is left out: the plan then keeps more files, and Spark applies every filter to the rows anyway.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from tarnlog.protocol.predicates import (
    MAX_VALUES,
    And,
    Compare,
    CompareOp,
    In,
    IsNotNull,
    IsNull,
    Not,
    Predicate,
    Scalar,
)

_COMPARISONS: dict[type[spark.Filter], CompareOp] = {
    spark.EqualTo: "eq",
    spark.GreaterThan: "gt",
    spark.GreaterThanOrEqual: "ge",
    spark.LessThan: "lt",
    spark.LessThanOrEqual: "le",
}


def predicate_of(filters: Iterable[spark.Filter]) -> Predicate | None:
    """All filters that can be said, together; None when there is none."""
    said = tuple(found for found in map(_predicate, filters) if found is not None)
    if not said:
        return None
    return said[0] if len(said) == 1 else And(said)


def _predicate(pushed: spark.Filter) -> Predicate | None:
    if isinstance(pushed, spark.Not):
        inner = _predicate(pushed.child)
        return None if inner is None else Not(inner)
    column = _column(getattr(pushed, "attribute", ()))
    if column is None:
        return None
    if isinstance(pushed, spark.IsNull):
        return IsNull(column)
    if isinstance(pushed, spark.IsNotNull):
        return IsNotNull(column)
    if isinstance(pushed, spark.In):
        return _in(column, pushed.value)
    return _compare(column, pushed)


def _compare(column: str, pushed: spark.Filter) -> Predicate | None:
    found: Any = getattr(pushed, "value", None)
    if isinstance(pushed, spark.EqualNullSafe):
        # As `eq` it would be unknown where the column is null; a negation must not take that for false.
        value = _scalar(found)
        return None if value is None else And((IsNotNull(column), Compare("eq", column, value)))
    if isinstance(pushed, spark.StringStartsWith):
        return Compare("starts-with", column, pushed.value)
    op = _COMPARISONS.get(type(pushed))
    value = _scalar(found)
    return None if op is None or value is None else Compare(op, column, value)


def _in(column: str, values: tuple[Any, ...]) -> Predicate | None:
    known = [_scalar(value) for value in values if value is not None]
    if not known or len(values) > MAX_VALUES or None in known:
        return None
    # A null among the values is kept: it makes a negated IN true for no row.
    return In(column, tuple(known) + ((None,) if len(known) < len(values) else ()))


def _column(attribute: tuple[str, ...]) -> str | None:
    """Bounds are kept for whole columns only."""
    return attribute[0] if len(attribute) == 1 else None


def _scalar(value: Any) -> Scalar | None:
    """A value as the service reads it; None for what it has no words for."""
    if isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return None
