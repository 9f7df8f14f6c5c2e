"""The tests of `core.span_tests`, asked of columns of spans: the same answers, a whole column at once."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog_server.core.span_tests import Anything, Compared, NoneOf, OneOf, Prefixed, SpanTest

FEW_LITERALS = 16
"""Up to so many are compared one after the other; more, file by file with a binary search."""
_LEAST, _MOST = -(2**63), 2**63 - 1
_SCALE = 18
_WIDEST = 10**38 - 1


def admitted(test: SpanTest, low: pa.Array, high: pa.Array) -> pa.Array:
    """For each span whether the test holds. A null `low` is any value, a null `high` no upper end: both hold."""
    found = _mask(test, low, high)
    return pc.or_(pc.fill_null(found, True), low.is_null())


def _mask(test: SpanTest, low: pa.Array, high: pa.Array) -> pa.Array:
    match test:
        case Anything():
            return _all(low)
        case Compared(op, lo, hi):
            return _compared(op, lo, hi, low, high)
        case Prefixed():
            return _prefixed(test, low, high)
        case OneOf(spans):
            if len(spans) > FEW_LITERALS:
                return _one_by_one(test, low, high)
            return reduce(pc.or_kleene, [_compared("eq", lo, hi, low, high) for lo, hi in spans])
        case NoneOf(exact):
            if len(exact) > FEW_LITERALS:
                return _one_by_one(test, low, high)
            return reduce(pc.and_kleene, [_compared("ne", one, one, low, high) for one in exact], _all(low))
    raise TypeError(f"{type(test).__name__} is no test of spans")


def _compared(op: str, lo: Any, hi: Any, low: pa.Array, high: pa.Array) -> pa.Array:
    match op:
        case "eq":
            return pc.and_kleene(_at_most(low, hi), pc.fill_null(_at_least(high, lo), True))
        case "ne":
            if lo != hi:
                return _all(low)
            same = pc.and_kleene(_equal(low, lo), pc.fill_null(pc.equal(low, high), False))
            return pc.invert(pc.fill_null(same, False))
        case "lt":
            return _at_most(low, hi, strictly=True)
        case "le":
            return _at_most(low, hi)
        case "gt":
            return _at_least(high, lo, strictly=True)
        case _:
            return _at_least(high, lo)


def _prefixed(test: Prefixed, low: pa.Array, high: pa.Array) -> pa.Array:
    prefix = pa.scalar(test.prefix, pa.string())
    size = len(test.prefix)
    begins = pc.equal(pc.utf8_slice_codeunits(low, 0, size), prefix)
    if test.negated:
        ends = pc.fill_null(pc.equal(pc.utf8_slice_codeunits(high, 0, size), prefix), False)
        return pc.invert(pc.fill_null(pc.and_kleene(begins, ends), False))
    below = pc.or_kleene(begins, pc.less(low, prefix))
    return pc.and_kleene(below, pc.fill_null(pc.greater_equal(high, prefix), True))


def _one_by_one(test: SpanTest, low: pa.Array, high: pa.Array) -> pa.Array:
    pairs = zip(low.to_pylist(), high.to_pylist(), strict=True)
    return pa.array([least is None or test(least, greatest) for least, greatest in pairs], pa.bool_())


def _all(column: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(True), len(column))


def _equal(column: pa.Array, value: Any) -> pa.Array:
    return pc.and_kleene(_at_most(column, value), _at_least(column, value))


def _at_most(column: pa.Array, value: Any, *, strictly: bool = False) -> pa.Array:
    """column <= value, or < value; exact whatever kind of number the literal is."""
    step = _step(column.type)
    if step is None:
        return (pc.less if strictly else pc.less_equal)(column, pa.scalar(value, column.type))
    if isinstance(value, float) and math.isinf(value):
        return pa.repeat(pa.scalar(value > 0), len(column))
    scaled = Fraction(value) * step
    return _bounded(column, math.ceil(scaled) - 1 if strictly else math.floor(scaled), above=False)


def _at_least(column: pa.Array, value: Any, *, strictly: bool = False) -> pa.Array:
    """column >= value, or > value; exact likewise."""
    step = _step(column.type)
    if step is None:
        return (pc.greater if strictly else pc.greater_equal)(column, pa.scalar(value, column.type))
    if isinstance(value, float) and math.isinf(value):
        return pa.repeat(pa.scalar(value < 0), len(column))
    scaled = Fraction(value) * step
    return _bounded(column, math.floor(scaled) + 1 if strictly else math.ceil(scaled), above=True)


def _step(kind: pa.DataType) -> int | None:
    """How many values of a type lie between two whole numbers; None when they are not evenly spaced."""
    if pa.types.is_integer(kind):
        return 1
    return 10**_SCALE if pa.types.is_decimal(kind) else None


def _bounded(column: pa.Array, steps: int, *, above: bool) -> pa.Array:
    """column >= or <= a number of steps; one that the type cannot hold decides for all rows."""
    least, most = (_LEAST, _MOST) if pa.types.is_integer(column.type) else (-_WIDEST, _WIDEST)
    if not least <= steps <= most:
        return pa.repeat(pa.scalar((steps < least) is above), len(column))
    value = steps if pa.types.is_integer(column.type) else Decimal(steps).scaleb(-_SCALE, Context(prec=40))
    return (pc.greater_equal if above else pc.less_equal)(column, pa.scalar(value, column.type))
