"""Times of a SQL filter that name no zone, as moments: engines read them in the time zone of their session.

Zones are named as Spark names them: regions, offsets, and offsets behind UTC or GMT. In a gap and in an overlap of
clocks a time is what Java takes it for: the offset before the change counts.
"""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?([0-5]\d))?", re.ASCII)
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?:(:\d\d)(\.\d{1,9})?)?)? ?", re.ASCII)
_WIDEST = 18 * 60
UTC_NAMES = frozenset({"Z", "UTC", "GMT", "UT", "Etc/UTC", "+00:00"})


class UnknownZone(ValueError):
    """There is no such zone, or it is not known here."""


def time_zone(name: str) -> dt.tzinfo:
    """A zone by its name. Raises UnknownZone."""
    if name in UTC_NAMES:
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes > _WIDEST:
            raise UnknownZone(name)
        return dt.timezone(dt.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # also what is no name of a file
        raise UnknownZone(name) from error


def moment(text: str, zone: dt.tzinfo) -> str:
    """ISO text without a zone as the same moment in UTC; other text as it is. Raises OverflowError at the ends of
    time."""
    found = _LOCAL.fullmatch(text)
    if found is None:
        return text
    try:
        local = dt.datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{found[3] or ':00'}")
    except ValueError:
        return text  # there is no such day or hour, which others say better
    utc = local.replace(tzinfo=zone).astimezone(dt.UTC).replace(tzinfo=None)
    return f"{utc.isoformat()}{found[4] or ''}Z"
