"""Texts of partition values and bounds as values of a column's type. The service accepts by these rules and readers
read by them, so a value that was accepted can be read.

Dates are days and timestamps microseconds since 1970-01-01. Each function raises ValueError with what to write instead.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from tarnlog.protocol.schema import Primitive

_NUMBER = re.compile(r"[+-]?(?:\d{1,64}(?:\.\d{0,64})?|\.\d{1,64})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,38}", re.ASCII)
_NOT_FINITE = re.compile(r"NaN|nan|[+-]?(?:Infinity|inf)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?)?"
    r" ?(Z|UTC|[+-](?:0\d|1[0-8]):?[0-5]\d)?",
    re.ASCII,
)
_USUAL_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (UTC on both sides)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MAX_EPOCH_DAYS = 3_000_000
"""Past the year 9999; as microseconds, three seconds. It also keeps a date written as 20240131 from being a day."""
DAY_MICROS = 86_400_000_000
_WIDE = Context(prec=200)
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


class Instant:
    """The parts of ISO 8601 text that matter: microseconds, and how exact they are."""

    __slots__ = ("has_nanos", "has_zone", "micros", "resolution")

    def __init__(self, match: re.Match[str], day: int) -> None:
        _, hours, minutes, seconds, fraction, zone = match.groups()
        clock = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
        micros = int((fraction or "0")[:6].ljust(6, "0"))
        self.micros = day * DAY_MICROS + clock * 1_000_000 + micros - _offset(zone) * 60_000_000
        self.has_zone = zone is not None
        self.has_nanos = fraction is not None and fraction[6:].strip("0") != ""
        units = ((fraction, 10 ** max(0, 6 - len(fraction or ""))), (seconds, 1_000_000), (hours, 60_000_000))
        self.resolution = next((size for part, size in units if part), DAY_MICROS)


def is_integer(text: str) -> bool:
    """Whether a text is a whole number in decimal digits."""
    return _INTEGER.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Whether a text is a finite decimal number."""
    return _NUMBER.fullmatch(text) is not None


def number_of(text: str) -> Decimal | None:
    """A finite decimal number; None for other text."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def iso_day(text: str) -> int | None:
    """The day of an ISO date; None for other text."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        return None


def iso_instant(text: str) -> Instant | None:
    """The parts of an ISO timestamp; None for other text."""
    match = _TIMESTAMP.fullmatch(text)
    day = iso_day(match[1]) if match else None
    return None if match is None or day is None else Instant(match, day)


def whole(text: str, bits: int) -> int:
    """A whole number of so many bits; a fraction of zeros does no harm."""
    number: int | Decimal | None = int(text) if _INTEGER.fullmatch(text) else number_of(text)
    if number is None:
        raise ValueError("write a whole number such as '42'")
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise ValueError(f"write a whole number from {-1 << bits - 1} to {(1 << bits - 1) - 1}")
    if int(number) != number:
        raise ValueError("write a whole number such as '42'")
    return int(number)


def real(text: str, *, single: bool = False) -> float:
    """A number of double or single precision, 'NaN', 'Infinity' or '-Infinity'."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        try:
            if not math.isinf(number) and (not single or struct.pack("<f", number)):
                return number
        except OverflowError:
            pass
        raise ValueError(f"the number is beyond the range of a {'float' if single else 'double'}")
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    raise ValueError("write a number such as '1.5', or 'NaN', 'Infinity' or '-Infinity'")


def decimal_number(text: str, precision: int, scale: int) -> Decimal:
    """A decimal number that has at most `scale` digits behind the point, and `precision` in all."""
    number = number_of(text)
    if number is None:
        raise ValueError("write a decimal number such as '12.50'")
    if number.copy_abs() >= Decimal(10) ** (precision - scale):
        raise ValueError(f"write a number with at most {precision - scale} digits before the point")
    exact = number.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    if exact != number:
        raise ValueError(f"write a number with at most {scale} digits behind the point")
    return exact


def boolean(text: str) -> bool:
    """The words, in any case."""
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ValueError("write 'true' or 'false'")
    return value


def day(text: str) -> int:
    """An ISO date, epoch days, or the epoch microseconds of a midnight: their magnitudes tell them apart."""
    if not _INTEGER.fullmatch(text):
        found = iso_day(text)
    else:
        number = int(text)
        days, rest = (number, 0) if abs(number) <= MAX_EPOCH_DAYS else divmod(number, DAY_MICROS)
        found = None if rest or abs(days) > MAX_EPOCH_DAYS else days
    if found is None:
        raise ValueError("write a date such as '2024-01-31', or its number of days since 1970-01-01")
    return found


def instant(text: str) -> int:
    """Epoch microseconds or ISO 8601, UTC without a zone; what is finer than a microsecond is cut."""
    if _USUAL_INSTANT.fullmatch(text):
        # As the connector writes them: read by the standard library, in a tenth of the time.
        try:
            return (datetime.fromisoformat(text[:26]) - _EPOCH) // _MICROSECOND
        except ValueError:
            pass
    if _INTEGER.fullmatch(text):
        micros = int(text)
        if -(2**63) <= micros < 2**63:
            return micros
    elif (found := iso_instant(text)) is not None:
        return found.micros
    raise ValueError("write a timestamp such as '2024-01-31T10:00:00Z', or its microseconds since 1970-01-01")


_READERS: dict[str, Callable[[str], Any]] = {
    "double": real,
    "boolean": boolean,
    "date": day,
    "timestamp": instant,
    "timestamp_ntz": instant,
}


def reader_of(kind: Primitive) -> Callable[[str], Any] | None:
    """How a text is read as a value of a type; None for types whose texts are not interpreted."""
    name = kind.kind
    if (bits := _BITS.get(name)) is not None:
        return lambda text: whole(text, bits)
    if name == "decimal":
        precision, scale = (*kind.args, 0)[:2] if kind.args else (10, 0)
        return lambda text: decimal_number(text, precision, scale)
    if name == "float":
        return lambda text: real(text, single=True)
    return _READERS.get(name)


def _offset(zone: str | None) -> int:
    if zone is None or zone in ("Z", "UTC"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -minutes if zone[0] == "-" else minutes
