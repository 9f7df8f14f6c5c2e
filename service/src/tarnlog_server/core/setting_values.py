"""What a table property's text may say. Each kind parses text or raises a ValueError that says what is expected."""

from __future__ import annotations

import re
from typing import Protocol

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_DURATION = 36_500 * DAY

_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,19}(?:\.\d{0,19})?|\.\d{1,19})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_DURATION = re.compile(r"(\d{1,19}) ?(ms|s|m|h|d|w)?", re.ASCII)
_UNITS = {None: 1, "ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}


class Values(Protocol):
    """A kind of value."""

    def parse(self, text: str) -> bool | int | float | str:
        """The value that the text means; ValueError says what is expected instead."""


class Flag:
    """True or false, in any case."""

    def parse(self, text: str) -> bool:
        """One of the two words."""
        value = {"true": True, "false": False}.get(text.strip().lower())
        if value is None:
            raise ValueError("it must be true or false")
        return value


class Whole:
    """A whole number within bounds, both included."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def parse(self, text: str) -> int:
        """Decimal digits."""
        value = int(text) if _WHOLE.fullmatch(text := text.strip()) else None
        if value is None or not self.least <= value <= self.most:
            raise ValueError(f"it must be a whole number from {self.least} to {self.most}")
        return value


class Hours(Whole):
    """A whole number of hours, as milliseconds."""

    def parse(self, text: str) -> int:
        """Decimal digits."""
        return super().parse(text) * HOUR


class Number:
    """A number within bounds, both included."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def parse(self, text: str) -> float:
        """A decimal number; neither NaN nor infinity."""
        value = float(text) if _NUMBER.fullmatch(text := text.strip()) else None
        if value is None or not self.least <= value <= self.most:
            raise ValueError(f"it must be a number from {self.least} to {self.most}")
        return value


class Choice:
    """One of a few words, in any case."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def parse(self, text: str) -> str:
        """The word in its own case."""
        word = text.strip().lower()
        if word not in self.words:
            raise ValueError(f"it must be one of {', '.join(self.words)}")
        return word


class Duration:
    """Milliseconds, written as such or with a unit."""

    def __init__(self, least: int, most: int = MAX_DURATION) -> None:
        self.least, self.most = least, most

    def parse(self, text: str) -> int:
        """`86400000`, `24h`, `7d`, `30m`."""
        match = _DURATION.fullmatch(text.strip())
        value = int(match[1]) * _UNITS[match[2]] if match else None
        if value is None or not self.least <= value <= self.most:
            span = f"{self.least} to {self.most}"
            raise ValueError(f"it must be a time from {span} ms, in milliseconds or with a unit such as 24h, 7d, 30m")
        return value
