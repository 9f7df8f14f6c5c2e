"""Whether a file can hold a row that makes a filter TRUE, by its partition values and bounds alone.

The answer is no only when it is certain. Nulls make a comparison unknown, and unknown is not TRUE on either side of a
NOT, so negation is pushed down to the leaves and each leaf asks one question: can some row make me TRUE? Rows are not
tracked across leaves, which keeps too many files, never too few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

import msgspec

from tarnlog.protocol.predicates import (
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    PredicateError,
    Scalar,
)
from tarnlog.protocol.schema import Field, Schema, StructType
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION, ColumnOrder, Span, column_order

PartitionValues: TypeAlias = Mapping[str, str | None]
Bounds: TypeAlias = Mapping[str, str] | None
FileTest: TypeAlias = Callable[[PartitionValues, Bounds, Bounds], bool]
"""(partition values, least values, greatest values) -> whether the file may hold a match."""

_SpanTest: TypeAlias = Callable[[Any, Any], bool]

_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
# Texts that some writers use for null and others for themselves.
_MAYBE_NULL = ("", "__HIVE_DEFAULT_PARTITION__")


def check_predicate(predicate: Predicate, schema: Schema, *, pointer: str = "") -> None:
    """PredicateError for an unknown column or a value that does not fit its column's type."""
    _Compiler(schema, (), DEFAULT_TRUNCATION).node(predicate, False, pointer)


def may_match(
    predicate: Predicate,
    schema: Schema,
    partition_columns: Collection[str],
    partition_values: PartitionValues,
    min_values: Bounds,
    max_values: Bounds,
    truncation_length: int = DEFAULT_TRUNCATION,
) -> bool:
    """False only if no row of the file can make the predicate TRUE."""
    test = compile_predicate(predicate, schema, partition_columns, truncation_length)
    return test(partition_values, min_values, max_values)


def compile_predicate(
    predicate: Predicate,
    schema: Schema,
    partition_columns: Collection[str],
    truncation_length: int = DEFAULT_TRUNCATION,
) -> FileTest:
    """The test of `may_match` for many files: columns, types and values are looked up once.

    `truncation_length` is the smallest at which any writer of the table cut its text bounds.
    """
    return _Compiler(schema, partition_columns, truncation_length).node(predicate, False, "")


class _Column(msgspec.Struct, frozen=True):
    """A resolved column. `has_bounds` is false for a member of a struct: bounds are kept for columns only."""

    name: str
    order: ColumnOrder | None
    type_name: str
    is_partition: bool
    has_bounds: bool


class _Compiler:
    """Walks the tree once; each method returns the test for its node, negated or not."""

    def __init__(self, schema: Schema, partition_columns: Collection[str], truncation: int) -> None:
        self.fields = schema.by_name()
        self.partitions = {name.lower(): name for name in partition_columns}
        self.truncation = truncation

    def node(self, predicate: Predicate, negated: bool, pointer: str) -> FileTest:
        match predicate:
            case Not(arg):
                return self.node(arg, not negated, f"{pointer}/arg")
            case And(args) | Or(args):
                tests = [self.node(arg, negated, f"{pointer}/args/{index}") for index, arg in enumerate(args)]
                return _all_of(tests) if isinstance(predicate, And) is not negated else _any_of(tests)
            case IsNull(name) | IsNotNull(name):
                column = self.column(name, pointer)
                return _null_test(column, isinstance(predicate, IsNull) is not negated)
            case Compare():
                return self.compare(predicate, negated, pointer)
            case In():
                return self.member(predicate, negated, pointer)

    def compare(self, node: Compare, negated: bool, pointer: str) -> FileTest:
        column = self.column(node.column, pointer)
        is_text = column.type_name.partition("(")[0] in ("string", "varchar", "char")
        if node.op == "starts-with" and not is_text:
            raise PredicateError(
                f"{pointer}/column", f"{column.name} is {column.type_name}: starts-with needs a text column"
            )
        span = _literal(column, node.value, f"{pointer}/value")
        if node.op == "starts-with":
            return self.leaf(column, _anything if span is None else _prefix_test(span[0], negated), True)
        # A NaN row makes `ne`, and in some readers every negated comparison, TRUE; in others NaN is above all numbers.
        nan_safe = (node.op == "eq" and not negated) or (node.op == "ne" and negated)
        nan_safe = nan_safe or (node.op in ("lt", "le") and not negated)
        op = _NEGATED[node.op] if negated else node.op
        return self.leaf(column, _anything if span is None else _compare_test(op, span), nan_safe)

    def member(self, node: In, negated: bool, pointer: str) -> FileTest:
        column = self.column(node.column, pointer)
        spans = [
            _literal(column, value, f"{pointer}/values/{index}")
            for index, value in enumerate(node.values)
            if value is not None
        ]
        if not spans or (negated and len(spans) < len(node.values)):
            return _never  # a null among the values leaves only unknown where no value is equal
        known = [span for span in spans if span is not None]
        if len(known) < len(spans):
            return self.leaf(column, _anything, False)
        return self.leaf(column, _none_equal(known) if negated else _some_equal(known), not negated)

    def leaf(self, column: _Column, test: _SpanTest, nan_safe: bool) -> FileTest:
        """The test of one column's span; `nan_safe` says that a NaN row would not make this leaf TRUE."""
        name, order, truncation = column.name, column.order, self.truncation
        if order is None or not column.has_bounds:
            return _always
        if column.is_partition:

            def by_partition(values: PartitionValues, _low: Bounds, _high: Bounds) -> bool:
                text = values.get(name)
                if text is None:
                    return False
                span = None if text in _MAYBE_NULL else order.exact(text)
                return span is None or test(*span)

            return by_partition
        if test is _anything or (order.hides_nan and not nan_safe):
            return _always

        def by_bounds(_values: PartitionValues, low: Bounds, high: Bounds) -> bool:
            least = low.get(name) if low else None
            greatest = high.get(name) if high else None
            if least is None or greatest is None:
                return True
            span = order.bounds(least, greatest, truncation)
            return span is None or test(*span)

        return by_bounds

    def column(self, name: str, pointer: str) -> _Column:
        """A column by name as Spark resolves it: case does not count, and dots lead into structs."""
        key = name.lower()
        field = self.fields.get(key)
        if field is not None:
            partition = self.partitions.get(key)
            return _Column(partition or field.name, column_order(field), str(field.type), partition is not None, True)
        nested = _nested(self.fields, key.split("."))
        if nested is None:
            raise PredicateError(
                f"{pointer}/column", f"there is no column {name[:200]!r}: use one of the table's schema"
            )
        return _Column(name, column_order(nested), str(nested.type), False, False)


def _nested(fields: dict[str, Field], parts: list[str]) -> Field | None:
    field = fields.get(parts[0])
    for part in parts[1:]:
        if field is None or not isinstance(field.type, StructType):
            return None
        field = field.type.by_name().get(part)
    return field


def _literal(column: _Column, value: Scalar, pointer: str) -> Span | None:
    if column.order is None:
        message = f"{column.name} is {column.type_name[:200]}: only is-null and is-not-null can be asked of it"
        raise PredicateError(pointer, message)
    try:
        return column.order.literal(value)
    except ValueError as error:
        raise PredicateError(pointer, f"{column.name} is {column.type_name}: {error}") from None


def _null_test(column: _Column, wants_null: bool) -> FileTest:
    if not column.is_partition:
        return _always  # nulls are not counted in the log
    name = column.name

    def test(values: PartitionValues, _low: Bounds, _high: Bounds) -> bool:
        text = values.get(name)
        return text in _MAYBE_NULL or (text is None) is wants_null

    return test


def _compare_test(op: str, literal: Span) -> _SpanTest:
    lo, hi = literal
    tests: dict[str, _SpanTest] = {
        "eq": lambda low, high: low <= hi and (high is None or high >= lo),
        "ne": lambda low, high: not (low == high and lo == hi and low == lo),
        "lt": lambda low, high: low < hi,
        "le": lambda low, high: low <= hi,
        "gt": lambda low, high: high is None or high > lo,
        "ge": lambda low, high: high is None or high >= lo,
    }
    return tests[op]


def _prefix_test(prefix: str, negated: bool) -> _SpanTest:
    size = len(prefix)
    if negated:
        return lambda low, high: not (high is not None and low[:size] == prefix and high[:size] == prefix)
    return lambda low, high: low[:size] <= prefix and (high is None or high >= prefix)


def _some_equal(spans: list[Span]) -> _SpanTest:
    spans = sorted(spans, key=lambda span: span[0])
    starts = [lo for lo, _ in spans]
    ends = list(accumulate((hi for _, hi in spans), max))

    def test(low: Any, high: Any) -> bool:
        reached = len(starts) if high is None else bisect_right(starts, high)
        return reached > 0 and bool(ends[reached - 1] >= low)

    return test


def _none_equal(spans: list[Span]) -> _SpanTest:
    exact = frozenset(lo for lo, hi in spans if lo == hi)
    return lambda low, high: not (low == high and low in exact)


def _all_of(tests: list[FileTest]) -> FileTest:
    needed = [test for test in tests if test is not _always]
    if len(needed) < 2:
        return needed[0] if needed else _always
    return lambda values, low, high: all(test(values, low, high) for test in needed)


def _any_of(tests: list[FileTest]) -> FileTest:
    if len(tests) == 1 or _always in tests:
        return tests[0] if len(tests) == 1 else _always
    return lambda values, low, high: any(test(values, low, high) for test in tests)


def _always(_values: PartitionValues, _low: Bounds, _high: Bounds) -> bool:
    return True


def _never(_values: PartitionValues, _low: Bounds, _high: Bounds) -> bool:
    return False


def _anything(_low: Any, _high: Any) -> bool:
    return True
