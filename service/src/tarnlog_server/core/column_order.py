"""How the values of a column compare: literals of a filter, file bounds and partition values, by the column's type.

Texts in the log come from many writers, so each stands for a span of values that surely holds the true one. A text
that cannot be read stands for anything, and gives None. Spans may be too wide, never too narrow.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

from tarnlog.protocol.predicates import Scalar
from tarnlog.protocol.schema import Field, Primitive
from tarnlog.protocol.values import DAY_MICROS, MAX_EPOCH_DAYS, is_integer, is_number, iso_day, iso_instant, number_of

Span: TypeAlias = tuple[Any, Any]
"""The least and the greatest value that may be meant; a greatest of None has no upper end."""

DEFAULT_TRUNCATION = 32

_INFINITY = re.compile(r"[+-]?(?:Infinity|inf)")
_ABOVE_SURROGATES = re.compile("[\ue000-\uffff]")
# A pair that was cut in half reads as U+FFFD.
_SUPPLEMENTARY = re.compile("[\ufffd\U00010000-\U0010ffff]")
_WIDEST_OFFSET = 18 * 3_600_000_000


class ColumnOrder:
    """A column whose bounds cannot be trusted to order its values as the reader does: any text is comparable."""

    hides_nan = False
    """Whether a file may hold NaN rows that its bounds do not show."""

    def literal(self, value: Scalar) -> Span | None:
        """The span of a filter's value; ValueError says what the column wants."""
        if not isinstance(value, str):
            raise ValueError("write the value as text")
        return None

    def exact(self, text: str) -> Span | None:
        """The span of one value as written, such as a partition value."""
        return None

    def bounds(self, low: str, high: str, truncation: int) -> Span | None:
        """The span of all values of a file, nulls and NaN apart."""
        least, greatest = self.exact(low), self.exact(high)
        if least is None or greatest is None or least[0] > greatest[1]:
            return None
        return least[0], greatest[1]


class StringOrder(ColumnOrder):
    """Text by code point. Writers that order by UTF-16 unit are allowed for, and cut maxima have no upper end."""

    def literal(self, value: Scalar) -> Span | None:
        """Text only."""
        super().literal(value)
        return value, value

    def exact(self, text: str) -> Span | None:
        """Partition values are never cut."""
        return text, text

    def bounds(self, low: str, high: str, truncation: int) -> Span | None:
        """A cut minimum is still a minimum; a maximum that may have been cut is none."""
        least, greatest = low, None if is_open_ended(high, truncation) else high
        # By UTF-16 unit, U+10000 and up sorts before U+E000..U+FFFF; what both orders agree on is kept.
        if not low.isascii() and (cut := _SUPPLEMENTARY.search(low)):
            least = low[: cut.start()]
        if greatest is not None and not high.isascii() and _ABOVE_SURROGATES.search(high):
            greatest = None
        return None if greatest is not None and least > greatest else (least, greatest)


class IntegerOrder(ColumnOrder):
    """Whole numbers, compared with any number exactly."""

    def literal(self, value: Scalar) -> Span | None:
        """A number. A reader may compare large ones as doubles, so a large double means its neighbours too."""
        if isinstance(value, bool | str):
            raise ValueError("write the value as a number")
        return _around(value) if isinstance(value, float) and abs(value) >= 2**53 else (value, value)

    def exact(self, text: str) -> Span | None:
        """Digits; a decimal point does no harm."""
        value = int(text) if is_integer(text) else number_of(text)
        return None if value is None else (value, value)


class DecimalOrder(IntegerOrder):
    """Decimal numbers, exactly."""

    def literal(self, value: Scalar) -> Span | None:
        """A whole number or decimal text is exact; a double means its neighbours too."""
        if isinstance(value, str):
            number = number_of(value)
            if number is None:
                raise ValueError("write the value as a number, or as decimal text such as '12.50'")
            return number, number
        return _around(value) if isinstance(value, float) else super().literal(value)


class RealOrder(ColumnOrder):
    """Floats and doubles. Bounds are widened by more than a float's precision: a column widened from float to double
    has bounds in a float's spelling, and readers compare at either precision."""

    hides_nan = True

    def literal(self, value: Scalar) -> Span | None:
        """A number, or the text of one that JSON cannot write; NaN is comparable with nothing here."""
        if isinstance(value, str):
            if value not in ("NaN", "Infinity", "-Infinity"):
                raise ValueError("write the value as a number, or as 'NaN', 'Infinity' or '-Infinity'")
        elif isinstance(value, bool):
            raise ValueError("write the value as a number")
        number = float(value)
        return None if math.isnan(number) else (number, number)

    def exact(self, text: str) -> Span | None:
        """NaN is unreadable on purpose: it then bounds nothing."""
        if not is_number(text) and not _INFINITY.fullmatch(text):
            return None
        number = float(text)
        if math.isinf(number):
            # Text beyond a double's range is not infinity itself.
            return (number, number) if _INFINITY.fullmatch(text) else None
        margin = abs(number) * 2.0**-22 + 2.0**-148
        return number - margin, number + margin


class BooleanOrder(ColumnOrder):
    """False before true."""

    def literal(self, value: Scalar) -> Span | None:
        """True or false."""
        if not isinstance(value, bool):
            raise ValueError("write the value as true or false")
        return value, value

    def exact(self, text: str) -> Span | None:
        """The words, in any case."""
        value = {"true": True, "false": False}.get(text.lower())
        return None if value is None else (value, value)


class DateOrder(ColumnOrder):
    """Days since 1970-01-01."""

    def literal(self, value: Scalar) -> Span | None:
        """An ISO date."""
        day = iso_day(value) if isinstance(value, str) else None
        if day is None:
            raise ValueError("write the value as a date such as '2024-01-31'")
        return day, day

    def exact(self, text: str) -> Span | None:
        """An ISO date, epoch days, or the epoch microseconds of a midnight: their magnitudes tell them apart."""
        if not is_integer(text):
            day = iso_day(text)
            return None if day is None else (day, day)
        number = int(text)
        if abs(number) <= MAX_EPOCH_DAYS:
            return number, number
        return None if number % DAY_MICROS else (number // DAY_MICROS, number // DAY_MICROS)


class TimestampOrder(ColumnOrder):
    """Microseconds since 1970-01-01T00:00Z; without a zone for `timestamp_ntz`, as if it were UTC."""

    def __init__(self, zoned: bool) -> None:
        self.zoned = zoned

    def literal(self, value: Scalar) -> Span | None:
        """ISO 8601; without a zone it is UTC. Numbers are refused: their unit would be a guess."""
        parsed = iso_instant(value) if isinstance(value, str) else None
        if parsed is None:
            raise ValueError("write the value as ISO 8601 such as '2024-01-31T10:00:00Z'")
        if parsed.has_zone and not self.zoned:
            raise ValueError("the column has no time zone: write the value without one, such as '2024-01-31T10:00:00'")
        return parsed.micros, parsed.micros + parsed.has_nanos

    def exact(self, text: str) -> Span | None:
        """Epoch microseconds or ISO 8601; without a zone it may be that of any writer."""
        if is_integer(text):
            return int(text), int(text)
        parsed = iso_instant(text)
        if parsed is None:
            return None
        slack = _WIDEST_OFFSET if parsed.has_zone != self.zoned else 0
        return parsed.micros - slack, parsed.micros + parsed.has_nanos + slack

    def bounds(self, low: str, high: str, truncation: int) -> Span | None:
        """As written, but a maximum may have been cut to the precision that it shows."""
        span = super().bounds(low, high, truncation)
        if span is None or is_integer(high):
            return span
        parsed = iso_instant(high)
        return None if parsed is None else (span[0], span[1] + parsed.resolution - 1)


_REAL, _WHOLE, _TEXT, _OPAQUE = RealOrder(), IntegerOrder(), StringOrder(), ColumnOrder()
_ORDERS: dict[str, ColumnOrder] = {
    "string": _TEXT,
    "varchar": _TEXT,
    "char": _OPAQUE,  # readers pad it, writers may not
    "long": _WHOLE,
    "integer": _WHOLE,
    "short": _WHOLE,
    "byte": _WHOLE,
    "decimal": DecimalOrder(),
    "float": _REAL,
    "double": _REAL,
    "boolean": BooleanOrder(),
    "date": DateOrder(),
    "timestamp": TimestampOrder(zoned=True),
    "timestamp_ntz": TimestampOrder(zoned=False),
}


def column_order(field: Field) -> ColumnOrder | None:
    """How the column's values compare; None when values of its type cannot be compared in a filter."""
    if not isinstance(field.type, Primitive):
        return None
    order = _ORDERS.get(field.type.kind)
    return _OPAQUE if order is _TEXT and field.collation is not None else order


def _around(value: float) -> Span:
    return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)


def utf16_length(text: str) -> int:
    """Length as Java counts it: what truncation in the field goes by."""
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)


def is_open_ended(maximum: str, recorded: int = DEFAULT_TRUNCATION) -> bool:
    """Whether a text maximum may have been cut, by the length its table recorded or by the usual one."""
    return utf16_length(maximum) >= min(recorded, DEFAULT_TRUNCATION)
