"""A filter applied to rows, exactly: three-valued, typed by the columns, as Spark compares. Needs pyarrow.

Text compares by code point; text under a collation, which does not, is refused by `check_collations`. NaN equals itself
and is above every number. A constant that a column's type cannot hold (5.5 for a whole number) is compared by its true
value, never rounded.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import ROUND_FLOOR, Context, Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog._errors import InvalidRequest
from tarnlog.protocol.predicates import And, Compare, In, IsNotNull, IsNull, Not, Or, Predicate, Scalar
from tarnlog.protocol.schema import Schema

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(\.\d{1,9})")
_ARROW_OPS = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}
_MOST_DIGITS = 100
_WIDE = Context(prec=2 * _MOST_DIGITS)
"""Python's own precision would round numbers of a decimal column."""
_INT64 = range(-(2**63), 2**63)


def matching_rows(rows: pa.Table, tree: Predicate) -> pa.Table:
    """The rows for which the filter is TRUE."""
    return rows.filter(evaluate(rows, tree), null_selection_behavior="drop")


def columns_of(tree: Predicate) -> set[str]:
    """The names that a filter asks of, as it writes them."""
    match tree:
        case And(args) | Or(args):
            return set().union(*map(columns_of, args))
        case Not(arg):
            return columns_of(arg)
        case leaf:
            return {leaf.column}


def compared_columns(tree: Predicate) -> set[str]:
    """The names whose values a filter compares, which is more than to test them for null."""
    match tree:
        case And(args) | Or(args):
            return set().union(*map(compared_columns, args))
        case Not(arg):
            return compared_columns(arg)
        case IsNull() | IsNotNull():
            return set()
        case leaf:
            return {leaf.column}


def check_collations(tree: Predicate, schema: Schema) -> None:
    """InvalidRequest for a filter that compares text under a collation: here only its bytes are known."""
    for name in sorted(compared_columns(tree)):
        field = schema.find(name)
        if field is not None and field.collation is not None:
            raise InvalidRequest(
                f"{name} has the collation {field.collation}, so that its text cannot be compared here. Read without "
                "that condition, and apply it to the rows in an engine that knows the collation, such as Spark.",
                slug="filter-invalid",
            )


def evaluate(rows: pa.Table, tree: Predicate) -> Any:
    """TRUE, FALSE or null for each row."""
    match tree:
        case And(args):
            return reduce(pc.and_kleene, [evaluate(rows, arg) for arg in args])
        case Or(args):
            return reduce(pc.or_kleene, [evaluate(rows, arg) for arg in args])
        case Not(arg):
            return pc.invert(evaluate(rows, arg))
        case IsNull(name):
            return pc.is_null(_column(rows, name))
        case IsNotNull(name):
            return pc.is_valid(_column(rows, name))
        case Compare("starts-with", name, value):
            return pc.starts_with(_column(rows, name), pattern=str(value))
        case Compare(op, name, value):
            return _compared(_column(rows, name), op, value)
        case In(name, values):
            return _member(_column(rows, name), values)


def _column(rows: pa.Table, name: str) -> Any:
    """A column as the service resolves it: case does not count, and dots lead into structs."""
    by_name = {field.lower(): field for field in rows.schema.names}
    found = by_name.get(name.lower())
    if found is not None:
        return rows.column(found)
    first, *rest = name.lower().split(".")
    column = rows.column(by_name[first])
    for part in rest:
        index = [column.type.field(at).name.lower() for at in range(column.type.num_fields)].index(part)
        column = pc.struct_field(column, [index])
    return column


def _compared(column: Any, op: str, value: Scalar) -> Any:
    kind = column.type
    if pa.types.is_floating(kind):
        return _compared_reals(column.cast(pa.float64()), op, float(value))
    if pa.types.is_decimal(kind):
        # A double is meant as it is written: 0.35 equals the decimal 0.35, which no double is.
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        return _compared_exactly(column, op, number, kind.scale, _decimal_scalar(kind))
    if pa.types.is_string(kind):
        return _ARROW_OPS[op](column, pa.scalar(str(value), kind))
    return _compared_exactly(_as_whole(column), op, _counted(kind, value), 0, _int64_scalar)


def _compared_reals(column: Any, op: str, value: float) -> Any:
    """NaN is above all numbers, and equal to itself."""
    nan = pc.is_nan(column)
    if math.isnan(value):
        answers = {"eq": nan, "ge": nan, "ne": pc.invert(nan), "lt": pc.invert(nan)}
        return answers.get(op) if op in answers else pc.if_else(nan, op == "le", op == "le")
    found = _ARROW_OPS[op](column, pa.scalar(value, pa.float64()))
    return pc.or_kleene(found, nan) if op in ("gt", "ge") else found


def _compared_exactly(column: Any, op: str, value: Decimal, scale: int, scalar: Any) -> Any:
    """Compare with a number that may lie between two values of the column's type, or outside of it."""
    floor = value if value.adjusted() > _MOST_DIGITS else value.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _WIDE)
    if op in ("eq", "ne") and floor != value:
        return _constant(column, op == "ne")
    if floor != value:
        op = "le" if op in ("lt", "le") else "gt"  # below or above the gap that the value lies in
    found = scalar(floor)
    if found is None:
        below = value < 0  # every value of the column is above it
        return _constant(column, {"eq": False, "ne": True}.get(op, (op in ("gt", "ge")) is below))
    return _ARROW_OPS[op](column, found)


def _constant(column: Any, answer: bool) -> Any:
    """The same answer for every row that has a value."""
    return pc.if_else(pc.is_valid(column), answer, pa.scalar(None, pa.bool_()))


def _int64_scalar(value: Decimal) -> Any:
    number = int(value)
    return pa.scalar(number, pa.int64()) if number in _INT64 else None


def _decimal_scalar(kind: pa.DataType) -> Any:
    def scalar(value: Decimal) -> Any:
        try:
            return pa.scalar(value, pa.decimal128(kind.precision, kind.scale))
        except pa.ArrowInvalid:
            return None

    return scalar


def _as_whole(column: Any) -> Any:
    """A column that counts something, as whole numbers: days, microseconds, 0 and 1."""
    return (column.cast(pa.int32()) if pa.types.is_date(column.type) else column).cast(pa.int64())


def _counted(kind: pa.DataType, value: Scalar) -> Decimal:
    """A constant in the unit of such a column."""
    if pa.types.is_integer(kind):
        return Decimal(value)
    if pa.types.is_boolean(kind):
        return Decimal(int(value))
    if pa.types.is_date(kind):
        return Decimal(date.fromisoformat(str(value)).toordinal() - _EPOCH_DAY)
    if pa.types.is_timestamp(kind):
        return micros(str(value))
    raise InvalidRequest(f"A column of type {kind} cannot be compared.")


def micros(text: str) -> Decimal:
    """Microseconds since 1970 of ISO 8601 text, UTC without a zone; nanoseconds are not lost."""
    fraction = _FRACTION.search(text)
    if text.endswith("UTC"):
        text = text[:-3].rstrip() + "Z"
    moment = datetime.fromisoformat(_FRACTION.sub("", text, count=1).replace(" +", "+").replace(" -", "-"))
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    seconds = moment - _EPOCH
    whole = Decimal((seconds.days * 86_400 + seconds.seconds) * 1_000_000)
    return whole + (Decimal(fraction[1]) * 1_000_000 if fraction else 0)


def _member(column: Any, values: tuple[Scalar | None, ...]) -> Any:
    """Equal to one of them; where none is, a null among them makes it unknown."""
    known = [value for value in values if value is not None]
    kind = column.type
    if pa.types.is_string(kind):
        found = _one_of(column, pa.array([str(value) for value in known], kind))
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        found = reduce(pc.or_kleene, [_compared(column, "eq", one) for one in known], _constant(column, False))
    else:
        numbers = {_counted(kind, value) for value in known}
        ints = [int(number) for number in numbers if number == int(number) and int(number) in _INT64]
        found = _one_of(_as_whole(column), pa.array(ints, pa.int64()))
    if len(known) < len(values):
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return found


def _one_of(column: Any, values: Any) -> Any:
    return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=values), pa.scalar(None, pa.bool_()))
