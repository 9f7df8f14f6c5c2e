"""Bounds of many files as typed columns: what `ColumnOrder.bounds` makes of one pair of texts, for all at once.

Only texts in the usual spelling of their type are read here, where the outcome is certain to be the same. The others
are odd: whoever filters asks the order itself about them, one by one. A row is a span from `low` to `high`; a null
`low` stands for any value, a null `high` has no upper end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tarnlog_server.core.column_order import (
    DEFAULT_TRUNCATION,
    BooleanOrder,
    ColumnOrder,
    DateOrder,
    DecimalOrder,
    IntegerOrder,
    RealOrder,
    StringOrder,
    TimestampOrder,
)

DECIMAL = pa.decimal128(38, 18)
_WHOLE = r"^-?[0-9]{1,18}$"
_DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_REAL = r"^-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$"
_INSTANT = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_SECONDS_END = len("2024-01-31T10:00:00")


class TypedBounds(Struct, frozen=True):
    """Spans of rows; `odd` marks those that only the scalar order understands, whose spans are null."""

    low: pa.Array
    high: pa.Array
    odd: pa.Array


def typed_bounds(order: ColumnOrder, least: pa.Array, greatest: pa.Array, truncation: int) -> TypedBounds:
    """The spans of rows by their texts, null where a file does not tell. Costs about a tenth of a microsecond a row."""
    told = pc.and_(least.is_valid(), greatest.is_valid())
    nothing = pa.scalar(None, pa.string())
    least, greatest = pc.if_else(told, least, nothing), pc.if_else(told, greatest, nothing)
    low, high, top = _READERS[type(order)](order, least, greatest, truncation)
    usual = pc.and_(low.is_valid(), top.is_valid())
    # Where the least is above the greatest, both are worth nothing; `top` is the greatest before it was widened.
    sound = pc.fill_null(pc.and_(usual, pc.less_equal(low, top)), False)
    odd = pc.and_(told, pc.invert(usual))
    return TypedBounds(_where(sound, low), _where(sound, high), odd)


def is_typed(order: ColumnOrder) -> bool:
    """Whether the values of an order can be columns here."""
    return type(order) in _READERS


Read = tuple[pa.Array, pa.Array, pa.Array]
"""Least values, greatest values (null: no upper end) and greatest values as written; null where a text is odd."""


def _whole(_order: Any, least: pa.Array, greatest: pa.Array, _truncation: int) -> Read:
    high = _cast(greatest, _WHOLE, pa.int64())
    return _cast(least, _WHOLE, pa.int64()), high, high


def _decimal(_order: Any, least: pa.Array, greatest: pa.Array, _truncation: int) -> Read:
    high = _cast(greatest, _DECIMAL, DECIMAL)
    return _cast(least, _DECIMAL, DECIMAL), high, high


def _real(_order: Any, least: pa.Array, greatest: pa.Array, _truncation: int) -> Read:
    low, high = _cast(least, _REAL, pa.float64()), _cast(greatest, _REAL, pa.float64())
    high = pc.add(high, _margin(high))
    return pc.subtract(low, _margin(low)), high, high


def _margin(numbers: pa.Array) -> pa.Array:
    """As `RealOrder.exact` widens a number."""
    return pc.add(pc.multiply(pc.abs(numbers), 2.0**-22), 2.0**-148)


def _text(_order: Any, least: pa.Array, greatest: pa.Array, truncation: int) -> Read:
    plain = pc.and_(pc.string_is_ascii(least), pc.string_is_ascii(greatest))
    low, top = _where(plain, least), _where(plain, greatest)
    # As `is_open_ended` says; a character of ASCII is one unit of every encoding.
    closed = pc.less(pc.binary_length(top), min(truncation, DEFAULT_TRUNCATION))
    high = _where(closed, top)
    # A greatest that has no upper end is above everything.
    return low, high, pc.if_else(pc.and_(plain, pc.invert(closed)), low, top)


def _by_text(order: ColumnOrder, least: pa.Array, greatest: pa.Array, truncation: int) -> Read:
    """Few different texts: each is read once, by the order itself."""

    def low(text: str) -> Any:
        span = order.exact(text)
        return None if span is None else span[0]

    def top(text: str) -> Any:
        span = order.exact(text)
        return None if span is None else span[1]

    def high(text: str) -> Any:
        span = order.bounds(text, text, truncation)
        return None if span is None else span[1]

    return _each(least, low), _each(greatest, high), _each(greatest, top)


def _instant(order: TimestampOrder, least: pa.Array, greatest: pa.Array, truncation: int) -> Read:
    if pc.any(pc.match_substring_regex(least, _WHOLE)).as_py():
        return _whole(order, least, greatest, truncation)
    pattern = f"{_INSTANT}{'Z' if order.zoned else ''}$"
    kind = pa.timestamp("us", "UTC") if order.zoned else pa.timestamp("us")
    try:
        low, top = (_cast(_cast(texts, pattern, kind), None, pa.int64()) for texts in (least, greatest))
    except pa.ArrowInvalid:  # a day that its month does not have
        return _by_text(order, least, greatest, truncation)
    # A greatest may have been cut to the digits that it shows.
    shown = pc.subtract(pc.binary_length(greatest), _SECONDS_END + order.zoned)
    unseen = pc.index_in(shown, pa.array([0, 2, 3, 4, 5, 6, 7], pa.int32()))
    sizes = pa.array([10**6 - 1, 10**5 - 1, 10**4 - 1, 10**3 - 1, 99, 9, 0], pa.int64())
    return low, pc.add(top, sizes.take(unseen)), top


def _cast(texts: pa.Array, pattern: str | None, kind: pa.DataType) -> pa.Array:
    if pattern is not None:
        texts = _where(pc.match_substring_regex(texts, pattern), texts)
    return texts.cast(kind)


def _each(texts: pa.Array, read: Callable[[str], Any]) -> pa.Array:
    coded = texts.dictionary_encode()
    values = [_int64(read(text)) for text in coded.dictionary.to_pylist()]
    return pa.array(values, pa.int64()).take(coded.indices)


def _int64(value: Any) -> int | None:
    return int(value) if value is not None and -(2**63) <= value < 2**63 else None


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(mask, False), values, pa.scalar(None, values.type))


_READERS: dict[type[ColumnOrder], Callable[[Any, pa.Array, pa.Array, int], Read]] = {
    IntegerOrder: _whole,
    DecimalOrder: _decimal,
    RealOrder: _real,
    StringOrder: _text,
    BooleanOrder: _by_text,
    DateOrder: _by_text,
    TimestampOrder: _instant,
}
