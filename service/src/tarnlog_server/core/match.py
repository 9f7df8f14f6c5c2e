"""Whether a file can hold a row that makes a filter TRUE, by its partition values and bounds alone.

The answer is no only when it is certain. Nulls make a comparison unknown, and unknown is not TRUE on either side of a
NOT, so negation is pushed down to the leaves and each leaf asks one question: can some row make me TRUE? Rows are not
tracked across leaves, which keeps too many files, never too few.
"""

from __future__ import annotations

from collections.abc import Collection

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
from tarnlog_server.core.file_filter import (
    Bounds,
    Decider,
    Every,
    FileFilter,
    FileTest,
    Leaf,
    PartitionValues,
    Some,
)
from tarnlog_server.core.span_tests import NEGATED, Anything, Compared, OneOf, Prefixed, SpanTest, none_of

__all__ = ["Bounds", "FileTest", "PartitionValues", "check_predicate", "compile_predicate", "file_filter", "may_match"]
_OPAQUE = ColumnOrder()


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
    return file_filter(predicate, schema, partition_columns, truncation_length)


def file_filter(
    predicate: Predicate,
    schema: Schema,
    partition_columns: Collection[str],
    truncation_length: int = DEFAULT_TRUNCATION,
) -> FileFilter:
    """The same as a tree that can be walked. Raises PredicateError."""
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

    def node(self, predicate: Predicate, negated: bool, pointer: str) -> FileFilter:
        match predicate:
            case Not(arg):
                return self.node(arg, not negated, f"{pointer}/arg")
            case And(args) | Or(args):
                parts = tuple(self.node(arg, negated, f"{pointer}/args/{index}") for index, arg in enumerate(args))
                return Every(parts) if isinstance(predicate, And) is not negated else Some(parts)
            case IsNull(name) | IsNotNull(name):
                return self.null(self.column(name, pointer), isinstance(predicate, IsNull) is not negated, pointer)
            case Compare():
                return self.compare(predicate, negated, pointer)
            case In():
                return self.member(predicate, negated, pointer)

    def null(self, column: _Column, wants_null: bool, pointer: str) -> FileFilter:
        # Nulls of other columns are not counted in the log.
        decider = Decider.PARTITION if column.is_partition else Decider.NOTHING
        return Leaf(pointer, column.name, decider, column.order or _OPAQUE, null=wants_null)

    def compare(self, node: Compare, negated: bool, pointer: str) -> FileFilter:
        column = self.column(node.column, pointer)
        is_text = column.type_name.partition("(")[0] in ("string", "varchar", "char")
        if node.op == "starts-with" and not is_text:
            raise PredicateError(
                f"{pointer}/column", f"{column.name} is {column.type_name}: starts-with needs a text column"
            )
        span = _literal(column, node.value, f"{pointer}/value")
        if node.op == "starts-with":
            return self.leaf(column, Anything() if span is None else Prefixed(span[0], negated), True, pointer)
        # A NaN row makes `ne`, and in some readers every negated comparison, TRUE; in others NaN is above all numbers.
        nan_safe = (node.op == "eq" and not negated) or (node.op == "ne" and negated)
        nan_safe = nan_safe or (node.op in ("lt", "le") and not negated)
        op = NEGATED[node.op] if negated else node.op
        return self.leaf(column, Anything() if span is None else Compared(op, *span), nan_safe, pointer)

    def member(self, node: In, negated: bool, pointer: str) -> FileFilter:
        column = self.column(node.column, pointer)
        spans = [
            _literal(column, value, f"{pointer}/values/{index}")
            for index, value in enumerate(node.values)
            if value is not None
        ]
        if not spans or (negated and len(spans) < len(node.values)):
            # A null among the values leaves only unknown where no value is equal.
            return Leaf(pointer, column.name, Decider.NEVER, column.order or _OPAQUE)
        known = [span for span in spans if span is not None]
        if len(known) < len(spans):
            return self.leaf(column, Anything(), False, pointer)
        return self.leaf(column, none_of(known) if negated else OneOf(tuple(known)), not negated, pointer)

    def leaf(self, column: _Column, test: SpanTest, nan_safe: bool, pointer: str) -> FileFilter:
        """The test of one column's span; `nan_safe` says that a NaN row would not make this leaf TRUE."""
        order, decider = column.order, Decider.BOUNDS
        if order is None or not column.has_bounds:
            decider = Decider.NOTHING
        elif column.is_partition:
            decider = Decider.PARTITION
        elif isinstance(test, Anything) or (order.hides_nan and not nan_safe):
            decider = Decider.NOTHING
        return Leaf(pointer, column.name, decider, order or _OPAQUE, test, None, self.truncation)

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
