"""Query and path parameters that several operations share, as types: parsed by them, and documented from them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from starlette.requests import Request

from tarnlog_server.api.decoding import refused

MAX_INT = 2**63 - 1
_DIGITS = re.compile(r"(0|[1-9][0-9]{0,18})\Z", re.ASCII)
_LOST_PLUS = re.compile(r" (\d\d:?\d\d)\Z")

VersionNumber = Annotated[int, Meta(ge=0, le=MAX_INT, description="A version of the table.")]
From = Annotated[int, Meta(ge=0, le=MAX_INT, description="The first version, included.")]
To = Annotated[int, Meta(ge=0, le=MAX_INT, description="The last version, included.")]
Limit = Annotated[int, Meta(ge=1, le=10_000, description="How many at most; there may be fewer in a page.")]
Cursor = Annotated[str, Meta(max_length=2048, description="`next` of the page before; it remembers what was asked.")]
Moment = Annotated[
    str,
    Meta(
        max_length=64,
        description="A time, as epoch milliseconds or ISO 8601 (UTC by default): the table as it was then.",
        examples=["1704067200000", "2024-01-01T00:00:00Z"],
    ),
]
Staleness = Annotated[
    float,
    Meta(
        ge=0,
        le=86_400,
        description="How old the answer may be, in seconds. 0 asks the storage; by default the service decides.",
    ),
]


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class Fresh(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How old an answer may be."""

    max_staleness_seconds: Staleness | None = None


class At(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which version of a table is meant: a number, a time, or the newest."""

    version: VersionNumber | None = None
    timestamp: Moment | None = None
    max_staleness_seconds: Staleness | None = None

    @property
    def moment(self) -> int | None:
        """The time in epoch milliseconds; ProblemError when it is none, or when a version is given too."""
        if self.timestamp is None:
            return None
        if self.version is not None:
            raise refused("request-invalid", "/timestamp", "give version or timestamp, not both")
        return epoch_ms(self.timestamp)


class AtPaged(At, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A version, in pages."""

    limit: Limit = 1000
    cursor: Cursor | None = None


class Paged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Pages of the newest version."""

    limit: Limit = 1000
    cursor: Cursor | None = None
    max_staleness_seconds: Staleness | None = None


class Versions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A range of versions, in pages."""

    from_: From | None = field(name="from", default=None)
    to: To | None = None
    limit: Limit = 1000
    cursor: Cursor | None = None


class OrderedVersions(Versions, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A range of versions in either direction."""

    order: Annotated[Literal["asc", "desc"], Meta(description="Newest first is `desc`.")] = "desc"
    max_staleness_seconds: Staleness | None = None


def epoch_ms(text: str) -> int:
    """A moment as epoch milliseconds. ProblemError says how to write one."""
    if _DIGITS.match(text) and int(text) <= MAX_INT:
        return int(text)
    if "T" in text:
        text = _LOST_PLUS.sub(r"+\1", text)  # a plus that was not percent-encoded arrives as a space
    try:
        moment = datetime.fromisoformat(text)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        message = "write epoch milliseconds or ISO 8601, for example 1704067200000 or 2024-01-01T00:00:00Z"
        raise refused("request-invalid", "/timestamp", message) from error


def version_in_path(request: Request) -> int:
    """The version in the path."""
    text = request.scope["path_params"]["version"]
    if not _DIGITS.match(text) or int(text) > MAX_INT:
        raise refused("request-invalid", "/version", "a version is a whole number from 0 up")
    return int(text)
