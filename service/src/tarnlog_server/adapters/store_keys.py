"""What an object key may look like, the same for every store.

Invariant: a key that passes names one object on every adapter. Disks and servers disagree about `a//b`, `a/../b`,
backslashes and control characters, so such keys are refused everywhere instead of meaning three things.
"""

from __future__ import annotations

import re

from tarnlog_server.ports.object_store import KeyRefused

RESERVED = ".tarnlog-"
"""No component of a key starts with this: the local store names its temporary files so."""

MAX_KEY_BYTES = 1024
_USUAL = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*\Z")
"""Nothing that could be wrong with a key, but for its length: no part is empty or starts with a dot."""
_UNPORTABLE = frozenset(chr(c) for c in range(0x20)) | {"\x7f", "\\"}


def check_key(key: str) -> None:
    """Refuse a key that is empty, absolute, climbs, or holds what some store cannot name. Raises KeyRefused."""
    if len(key) <= MAX_KEY_BYTES and _USUAL.match(key):
        return
    problem = _problem(key)
    if problem:
        raise KeyRefused(f"{key!r} is not an object key: {problem}", key=key)


def check_prefix(prefix: str) -> None:
    """A prefix may end anywhere; its whole parts are those of a key. Raises KeyRefused."""
    if not _UNPORTABLE.isdisjoint(prefix) or {"", ".", ".."} & set(prefix.split("/")[:-1]):
        raise KeyRefused(
            f"{prefix!r} is not a key prefix: it is relative, without empty, `.` or `..` parts", key=prefix
        )


def check_range(start: int, length: int | None) -> None:
    """Ranges are byte offsets; a negative one is a mistake of the caller, never a question to a store."""
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"byte range start={start} length={length} must not be negative")


def is_key_part(name: str) -> bool:
    """Whether a file or folder of this name can be part of a key. Cheap: a listing asks it of every entry."""
    return (name.isascii() and name.isprintable() and "\\" not in name and not name.startswith(RESERVED)) or _problem(
        name
    ) is None


def _problem(key: str) -> str | None:
    if not key:
        return "it is empty"
    if key.startswith("/"):
        return "it is absolute; keys are relative to the root of the store"
    if not _UNPORTABLE.isdisjoint(key):
        return "it holds a control character or a backslash, which stores read differently"
    try:
        if len(key.encode()) > MAX_KEY_BYTES:
            return f"it is longer than {MAX_KEY_BYTES} bytes, the limit of object stores"
    except UnicodeEncodeError:
        return "it holds a lone surrogate, which has no UTF-8 form"
    for part in key.split("/"):
        if part in ("", ".", ".."):
            return "its parts must not be empty, `.` or `..`"
        if part.startswith(RESERVED):
            return f"names that start with {RESERVED!r} are reserved for temporary files"
    return None
