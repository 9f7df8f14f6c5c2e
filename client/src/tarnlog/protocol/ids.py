"""Ids and names: parsed once at the edge, typed everywhere after it."""

from __future__ import annotations

import random
import re
from typing import NewType
from uuid import UUID

import msgspec

Version = NewType("Version", int)
"""A table version: 0 is the creation, every later one follows its predecessor without a gap."""

MAX_VERSION = 2**63 - 1
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_-]{0,127})\.([A-Za-z0-9_][A-Za-z0-9_-]{0,127})\Z")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class TableName(msgspec.Struct, frozen=True, order=True):
    """`namespace.name`; both parts are safe as one path component on every store."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse `namespace.name`; ValueError says what a name looks like."""
        parts = _NAME.match(text)
        if parts is None:
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise ValueError(
                f"{shown!r} is not a table name: write namespace.name, each part 1 to 128 letters, digits, '_' or '-', "
                "beginning with a letter or digit"
            )
        return cls(parts[1], parts[2])

    @classmethod
    def parse_new(cls, text: str) -> TableName:
        """Parse the name of a table that is to be created: no part starts with `_`, which is kept for the service.

        Tables that were named so before keep their names. ValueError says what a name looks like.
        """
        name = cls.parse(text)
        if name.namespace.startswith("_") or name.name.startswith("_"):
            raise ValueError(f"{text!r} cannot be a new table: the namespace and the name begin with a letter or digit")
        return name

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def uuid7(now_ms: int, rng: random.Random) -> UUID:
    """A UUID version 7 (RFC 9562) for a time and a source of randomness."""
    value = (now_ms & (2**48 - 1)) << 80 | 0x7 << 76 | rng.getrandbits(12) << 64 | 0b10 << 62 | rng.getrandbits(62)
    return UUID(int=value)


def parse_commit_id(text: str) -> str:
    """A commit id in its canonical spelling, which is a UUID version 7 in lower case. ValueError says so."""
    if not _UUID7.match(text):
        text = text.lower()
        if not _UUID7.match(text):
            raise ValueError(
                "commitId must be a UUID version 7 (time-ordered, RFC 9562), for example from tarnlog.new_commit_id()"
            )
    return text


def commit_id_time_ms(commit_id: str) -> int:
    """The epoch milliseconds inside a commit id in its canonical spelling."""
    return int(commit_id[:8] + commit_id[9:13], 16)
