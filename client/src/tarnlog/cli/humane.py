"""Sizes, numbers and times as people read them, and times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def size(count: int | None) -> str:
    """Bytes in the largest unit that leaves a number of at least one."""
    if count is None:
        return "?"
    value = float(count)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit ends the loop")


def number(count: int | None) -> str:
    """A count with separators; unknown is a question mark."""
    return "?" if count is None else f"{count:,}"


def moment(epoch_ms: int | None) -> str:
    """Epoch milliseconds as UTC, to the second."""
    if epoch_ms is None:
        return "?"
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(epoch_ms)


def age(epoch_ms: int | None, now_ms: int) -> str:
    """How long ago, in one unit."""
    if epoch_ms is None:
        return "?"
    seconds = (now_ms - epoch_ms) // 1000
    if seconds < 0:
        return "in the future"
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{seconds // span} {unit} ago"
    return f"{seconds} s ago"


def parse_moment(text: str) -> int:
    """Epoch milliseconds from themselves or from ISO 8601; without a zone it is UTC, as times are shown here."""
    stripped = text.strip()
    if stripped.removeprefix("-").isdecimal() and not _looks_like_a_date(stripped):
        return int(stripped)
    try:
        parsed = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write ISO 8601 such as 2024-01-31T12:00:00Z, or epoch milliseconds"
        ) from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def _looks_like_a_date(text: str) -> bool:
    """20240131: as milliseconds it would be a morning in 1970, which nobody means."""
    return len(text) == 8


def plural(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def pairs(values: dict[str, object] | dict[str, str | None] | dict[str, str]) -> str:
    """A small mapping on one line."""
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in values.items())


def span(seconds: int) -> str:
    """A length of time, in one unit."""
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
