"""No file with a matching row is ever dropped: random tables, files and filters against row-by-row evaluation.

The evaluation here is the dumb one: three-valued SQL over Python values, once with NaN as the greatest number (Spark)
and once with IEEE comparisons (Arrow). The statistics are written the way different writers write them.
"""

from __future__ import annotations

import math
import operator
import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.predicates import And, Compare, CompareOp, In, IsNotNull, IsNull, Not, Or, Predicate
from tarnlog.protocol.schema import Field, Primitive, StructType
from tarnlog_server.core.match import compile_predicate

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = ["long", "decimal", "double", "float", "boolean", "date", "timestamp", "string"]
TYPES = {kind: Primitive("decimal", (10, 2)) if kind == "decimal" else Primitive(kind) for kind in KINDS}

OPS: tuple[CompareOp, ...] = ("eq", "ne", "lt", "le", "gt", "ge")

Row = dict[str, Any]


class File(NamedTuple):
    """A file with its rows, what its log entry says, and filters to ask."""

    columns: dict[str, str]
    rows: list[Row]
    partition_values: dict[str, str | None]
    low: dict[str, str]
    high: dict[str, str]
    truncation: int
    predicates: list[Predicate]


def single(value: float) -> float:
    """The nearest 32-bit float, as a double."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def utc(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


DAYS = st.integers(-400, 20_000).map(lambda days: date(1970, 1, 1) + timedelta(days)) | st.dates(
    date(2024, 1, 1), date(2024, 1, 5)
)
LETTERS = st.sampled_from(["a", "B", "\ue000", "\uffee", "😀"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(0, 4) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "decimal": st.integers(-300, 1200).map(lambda cents: Decimal(cents) / 100),
    "double": st.just(math.nan)
    | st.sampled_from([-0.0, math.inf, -math.inf, 0.1, 1e300, 2.0**53])
    | st.integers(0, 3).map(float),
    "float": st.just(math.nan)
    | st.sampled_from([-0.0, 0.1, 0.7, 3.3, 1e30]).map(single)
    | st.integers(0, 3).map(float),
    "boolean": st.booleans(),
    "date": DAYS,
    "timestamp": st.integers(0, 10_000_000).map(lambda micros: utc(1_704_067_200_000_000 + micros))
    | st.integers(-(10**9), 10**9).map(utc),
    "string": st.lists(LETTERS, max_size=3).map("".join)
    | st.lists(LETTERS, max_size=2).map(lambda tail: "a" * 31 + "".join(tail)),
}


def literal(kind: str, value: Any, draw: st.DrawFn) -> Any:
    """A row's value as a filter may spell it."""
    if kind == "decimal":
        return draw(st.sampled_from([str(value), float(value)]))
    if kind == "long":
        return draw(st.sampled_from([value, float(value)]))
    if kind in ("double", "float"):
        if math.isfinite(value):
            return draw(st.sampled_from([value, int(value)])) if abs(value) < 1e37 else value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind == "date":
        return value.isoformat()
    if kind == "timestamp":
        return draw(st.sampled_from([value.isoformat(), value.replace(tzinfo=None).isoformat(" ")]))
    return value


def text(kind: str, value: Any, draw: st.DrawFn, *, greatest: bool = False) -> str:
    """A row's value as some writer puts it into statistics or a partition value."""
    if kind in ("double", "float"):
        return f"{value:.7g}" if kind == "float" and math.isfinite(value) else repr(value).replace("inf", "Infinity")
    if kind == "boolean":
        return draw(st.sampled_from([str(value), str(value).lower()]))
    if kind == "date":
        days = (value - date(1970, 1, 1)).days
        return str(draw(st.sampled_from([value.isoformat(), str(days), str(days * 86_400_000_000)])))
    if kind == "timestamp":
        zone = timedelta(hours=draw(st.integers(-12, 14)))
        local = (value + zone).replace(tzinfo=None)
        shown = [str((value - EPOCH) // timedelta(microseconds=1)), local.isoformat(" ", "microseconds")]
        if greatest:
            shown.append(value.isoformat(timespec="milliseconds"))  # cut, not rounded
        return str(draw(st.sampled_from(shown)))
    return str(value)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def utf16(value: str) -> bytes:
    return value.encode("utf-16-be")


def bounds(kind: str, present: list[Any], truncation: int, draw: st.DrawFn) -> tuple[str, str] | None:
    """Least and greatest of the values that statistics see: no nulls, and NaN only for some writers."""
    numbers = [value for value in present if not is_nan(value)]
    if not numbers:
        return None
    if kind != "string":
        low, high = text(kind, min(numbers), draw), text(kind, max(numbers), draw, greatest=True)
        hidden = len(numbers) == len(present) or draw(st.booleans())
        return low, high if hidden else "NaN"
    key = utf16 if draw(st.booleans()) else None
    low, high = min(numbers, key=key), max(numbers, key=key)
    cut = [utf16(value)[: 2 * truncation].decode("utf-16-be", "replace") for value in (low, high)]
    return cut[0], cut[1]


def leaves(name: str, kind: str, values: list[Any]) -> list[Predicate]:
    """Every operator with every value, and some lists of them: cheap to try, so all are tried for each file."""
    found: list[Predicate] = [IsNull(name), IsNotNull(name), In(name, (values[0], None))]
    found += [In(name, tuple(values[:size])) for size in range(1, len(values) + 1)]
    found += [Compare(op, name, value) for op in OPS for value in values]
    if kind == "string":
        found += [Compare("starts-with", name, value[:size]) for value in values for size in (0, 1, 2, 40)]
    return found + [Not(leaf) for leaf in found]


def trees(found: list[Predicate], rng: random.Random) -> list[Predicate]:
    """Combinations of the leaves, two levels deep."""
    for _ in range(40):
        args = tuple(rng.choices(found, k=rng.randint(1, 3)))
        tree = And(args) if rng.random() < 0.5 else Or(args)
        found = [*found, tree if rng.random() < 0.5 else Not(tree)]
    return found


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {name: getattr(operator, name) for name in OPS}


def meaning(kind: str, value: Any) -> Any:
    """A filter's value as a Python value that compares with rows."""
    if kind == "decimal":
        return Decimal(value) if isinstance(value, str) else Decimal(repr(value))
    if kind in ("double", "float"):
        return float(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "timestamp":
        parsed = datetime.fromisoformat(value)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return value


def compare(op: str, left: Any, right: Any, nan_is_greatest: bool) -> bool:
    if nan_is_greatest and isinstance(left, float):
        left, right = ((math.isnan(side), 0.0 if math.isnan(side) else side) for side in (left, right))
    return OPERATORS[op](left, right)


def evaluate(predicate: Predicate, row: Row, columns: dict[str, str], nan_is_greatest: bool) -> bool | None:
    """SQL's TRUE, FALSE or unknown (None)."""
    match predicate:
        case Not(arg):
            inner = evaluate(arg, row, columns, nan_is_greatest)
            return None if inner is None else not inner
        case And(args) | Or(args):
            results = {evaluate(arg, row, columns, nan_is_greatest) for arg in args}
            decisive = isinstance(predicate, Or)
            return decisive if decisive in results else None if None in results else not decisive
        case IsNull(name):
            return row[name] is None
        case IsNotNull(name):
            return row[name] is not None
        case In(name, values):
            options = tuple(None if value is None else Compare("eq", name, value) for value in values)
            answers = {None if leaf is None else evaluate(leaf, row, columns, nan_is_greatest) for leaf in options}
            return True if True in answers else None if None in answers else False
        case Compare(op, name, value):
            left, right = row[name], meaning(columns[name], value)
            if left is None:
                return None
            return left.startswith(right) if op == "starts-with" else compare(op, left, right, nan_is_greatest)


@st.composite
def files(draw: st.DrawFn) -> File:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    columns = {f"c{index}": kind for index, kind in enumerate(kinds)}
    fixed = {name: draw(st.none() | VALUES[kind]) for name, kind in columns.items() if draw(st.integers(0, 4)) == 0}
    nullable = {
        name: st.none() | VALUES[kind] if draw(st.booleans()) else VALUES[kind] for name, kind in columns.items()
    }
    size = draw(st.integers(1, 3))
    rows = [{name: fixed[name] if name in fixed else draw(nullable[name]) for name in columns} for _ in range(size)]
    truncation = draw(st.sampled_from([3, 32]))
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    found: list[Predicate] = []
    for name, kind in columns.items():
        present = [row[name] for row in rows if row[name] is not None]
        span = bounds(kind, present, truncation, draw) if name not in fixed else None
        if span is not None:
            low[name], high[name] = span
        probes = [*present, draw(VALUES[kind]), draw(VALUES[kind])]
        found += leaves(name, kind, [literal(kind, value, draw) for value in probes])
    partition_values = {name: None if v is None else text(columns[name], v, draw) for name, v in fixed.items()}
    seed = draw(st.integers(0, 2**32))  # an argument of the test, so a failure prints what it needs to be replayed
    return File(columns, rows, partition_values, low, high, truncation, trees(found, random.Random(seed)))


@settings(max_examples=500, deadline=None)
@given(files())
def test_a_file_with_a_matching_row_is_never_dropped(file: File) -> None:
    schema = StructType(tuple(Field(name, TYPES[kind]) for name, kind in file.columns.items()))
    for predicate in file.predicates:
        test = compile_predicate(predicate, schema, list(file.partition_values), file.truncation)
        if not test(file.partition_values, file.low, file.high):
            for row in file.rows:
                for nan_is_greatest in (True, False):
                    assert not evaluate(predicate, row, file.columns, nan_is_greatest), (predicate, row, file)
