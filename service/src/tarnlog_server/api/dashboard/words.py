"""Numbers and times as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

NOTHING = "–"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
LONGEST_TEXT = 300


def size(count: int | None) -> str:
    """Bytes, in the largest unit that leaves at least one."""
    if count is None:
        return NOTHING
    value, unit = float(count), _UNITS[0]
    for larger in _UNITS[1:]:
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"


def number(count: int | None) -> str:
    """A whole number with its thousands apart."""
    return NOTHING if count is None else f"{count:,}"


def counted(count: int, noun: str) -> str:
    """So many of something: `1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def rate(per_second: float) -> str:
    """Something a second, or a minute where that is less than one."""
    if per_second == 0:
        return "0/s"
    if per_second < 1:
        return f"{per_second * 60:.1f}/min"
    return f"{per_second:,.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"


def duration(seconds: float | None) -> str:
    """How long something took."""
    if seconds is None:
        return NOTHING
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s"


def percentiles(values: Sequence[float | None]) -> str:
    """Several durations of one kind, shortest first, in one unit."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    unit, factor = ("s", 1) if known[-1] >= 10 else ("ms", 1000)
    return " / ".join(_two_digits(value * factor) for value in known) + f" {unit}"


def age(seconds: float | None) -> str:
    """How long ago, in its one or two largest units."""
    if seconds is None:
        return NOTHING
    left = int(max(0.0, seconds))
    parts: list[str] = []
    for length, unit in _SPANS:
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
    return " ".join(parts[:2])


def moment(epoch_ms: int | None) -> str:
    """A time in UTC, to the second."""
    found = _utc(epoch_ms)
    return NOTHING if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


def iso(epoch_ms: int | None) -> str:
    """The same for machines."""
    found = _utc(epoch_ms)
    return "" if found is None else found.isoformat()


def share(part: float) -> str:
    """A share of one in percent."""
    return f"{part * 100:.1f} %"


def compact(value: Any) -> str:
    """Any value as short JSON; nothing for an empty one."""
    if value in (None, {}, [], ()):
        return ""
    return short(msgspec.json.encode(value).decode("utf-8", "replace"))


def short(text: str, most: int = LONGEST_TEXT) -> str:
    """A text that may be as long as a client likes, cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _two_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _utc(epoch_ms: int | None) -> datetime | None:
    try:
        return None if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a writer's own time may be any number
        return None
