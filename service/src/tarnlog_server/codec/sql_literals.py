"""Constants of a SQL filter as values of the tree, spelled as the column they are compared with wants them.

No digit is lost: a decimal column gets decimal text, a double column the nearest double. What an engine would answer
by converting the column (text compared with a DATE) is refused: bounds of files are in the column's own order.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal, InvalidOperation

from msgspec import Struct
from sqlglot import exp
from sqlglot.expressions import DataType

from tarnlog.protocol.predicates import Scalar
from tarnlog_server.codec.time_zones import UTC_NAMES, UnknownZone, moment, time_zone

MAX_DIGITS = 400
"""How far a number may be from 1 in powers of ten: beyond, it is no double and no decimal."""
MAX_WHOLE_DIGITS = 38
"""Of a whole number in a tree: readers that get the tree back take no more."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TYPES = DataType.Type
_WHOLE = (_TYPES.BIGINT, _TYPES.INT, _TYPES.SMALLINT, _TYPES.TINYINT)
_TEXTS = (_TYPES.TEXT, _TYPES.VARCHAR)
_TIMES = (_TYPES.TIMESTAMP, _TYPES.TIMESTAMPTZ, _TYPES.TIMESTAMPNTZ, _TYPES.TIMESTAMPLTZ)


class NotConstant(ValueError):
    """What stands there is no constant that can be compared; the message says what to write."""


class Constant(Struct, frozen=True):
    """A constant of a known kind: `value` is text for all but numbers (Decimal) and booleans, None for NULL."""

    kind: str
    value: str | Decimal | float | bool | None


NULL = Constant("null", None)


def constant(node: exp.Expr) -> Constant | None:
    """The constant that a node is; None when it is none (a column, say). NotConstant when it is one we cannot use."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return Constant("text", node.this) if node.is_string else Constant("number", _number(node.this))
    if isinstance(node, exp.RawString):
        return Constant("text", node.this)
    if isinstance(node, exp.Boolean):
        return Constant("boolean", bool(node.this))
    if isinstance(node, exp.Null):
        return NULL
    if isinstance(node, exp.Neg):
        return _negative(constant(node.this))
    if isinstance(node, exp.Concat) and all(isinstance(part, exp.Literal) for part in node.expressions):
        return Constant("text", "".join(part.this for part in node.expressions))
    if isinstance(node, exp.Cast):
        inner = constant(node.this)
        return None if inner is None else _cast(inner, node.to)
    return None


def spelled(found: Constant, column_type: str, zone: str | None = None) -> Scalar:
    """The constant as the tree wants it for a column of this type. Whether it fits is the tree's own check.

    `zone` is that of times without one; None is UTC, as in a tree.
    """
    base = column_type.partition("(")[0]
    value = found.value
    if value is None:
        raise NotConstant("nothing equals NULL: write IS NULL or IS NOT NULL")
    if found.kind in ("date", "timestamp") and base not in ("date", "timestamp", "timestamp_ntz"):
        raise NotConstant(f"the column is {column_type}: compare it with a constant of that type")
    if isinstance(value, Decimal):
        return _spelled_number(value, base)
    if zone is not None and isinstance(value, str) and base in ("timestamp", "timestamp_ntz"):
        return _spelled_time(found.kind, value, base, zone)
    return value


def _spelled_time(kind: str, text: str, base: str, zone: str) -> str:
    """A column with a zone is compared by moments, one without by what clocks show."""
    if base == "timestamp_ntz":
        if kind == "timestamp" and zone not in UTC_NAMES:
            # The column is then compared as if it had the zone, and clocks that are put on change the order.
            raise NotConstant("the column has no time zone: write the constant as text, without TIMESTAMP before it")
        return text
    try:
        return moment(text, time_zone(zone))
    except UnknownZone:
        raise NotConstant(f"the time zone {zone[:64]!r} is not known: write the time with an offset") from None
    except OverflowError:
        raise NotConstant("the time is beyond the years 1 to 9999") from None


def _spelled_number(value: Decimal, base: str) -> Scalar:
    whole = value == value.to_integral_value()
    if base == "decimal" and not whole:
        return format(value, "f")
    if whole and base not in ("float", "double"):
        if value.adjusted() >= MAX_WHOLE_DIGITS:
            raise NotConstant(f"the number has more than {MAX_WHOLE_DIGITS} digits: no value of the column has")
        return int(value)
    if whole and abs(value) < 2**53:
        return int(value)
    number = float(value)
    if math.isinf(number):
        raise NotConstant("the number is larger than any double")
    return number


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise NotConstant("write the number in decimal digits, such as 5, 0.5 or 1e3") from None
    if not value.is_finite() or len(text) > MAX_DIGITS or (value and abs(value.adjusted()) > MAX_DIGITS):
        raise NotConstant("the number has too many digits")
    return value


def _negative(inner: Constant | None) -> Constant | None:
    if inner is None:
        return None
    if isinstance(inner.value, bool) or not isinstance(inner.value, Decimal | float):
        raise NotConstant("only a number can be negative")
    # Not Decimal's minus, which rounds to the digits of its context.
    negative = inner.value.copy_negate() if isinstance(inner.value, Decimal) else -inner.value
    return Constant(inner.kind, negative)


def _cast(inner: Constant, to: DataType) -> Constant:
    kind = to.this
    if inner.value is None:
        return NULL
    if kind is _TYPES.DATE and inner.kind in ("text", "date"):
        return _date(str(inner.value))
    if kind in _TIMES and inner.kind in ("text", "date", "timestamp"):
        return Constant("timestamp", str(inner.value))
    if kind in _TEXTS and inner.kind == "text" and not to.expressions:
        return inner
    if kind in _WHOLE or kind in (_TYPES.DECIMAL, _TYPES.DOUBLE, _TYPES.FLOAT):
        return _cast_number(inner, to)
    if kind is _TYPES.BOOLEAN and str(inner.value).strip().lower() in ("true", "false"):
        return Constant("boolean", str(inner.value).strip().lower() == "true")
    raise NotConstant(f"this cannot be made a {to.sql(dialect='spark')} here: write the constant in its own type")


def _date(text: str) -> Constant:
    if not _DATE.fullmatch(text):
        raise NotConstant("write a date as DATE '2024-01-31'")
    return Constant("date", text)


def _cast_number(inner: Constant, to: DataType) -> Constant:
    if inner.kind == "text" and str(inner.value).strip() in ("NaN", "Infinity", "-Infinity"):
        return Constant("text", str(inner.value).strip())
    if isinstance(inner.value, float) or inner.kind not in ("text", "number"):
        raise NotConstant("only a number, or the text of one, can be made a number")
    value = _number(inner.value.strip()) if isinstance(inner.value, str) else inner.value
    assert isinstance(value, Decimal)
    if to.this is _TYPES.DOUBLE:
        return Constant("number", float(value))
    if to.this is _TYPES.FLOAT:
        try:
            return Constant("number", struct.unpack("f", struct.pack("f", float(value)))[0])
        except OverflowError:
            raise NotConstant("the number is larger than any float") from None
    scale = 0
    if to.this is _TYPES.DECIMAL and len(to.expressions) == 2:
        scale = int(to.expressions[1].name)
    if len(format(value, "f").partition(".")[2].rstrip("0")) > scale:
        raise NotConstant(f"the cast would round: write the number with at most {scale} digits after the point")
    return Constant("number", value)
