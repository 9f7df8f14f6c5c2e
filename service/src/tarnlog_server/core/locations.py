"""Where tables may lie: locations compared by path components, never by string prefix."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# A known scheme in capitals, without its colon, or with one slash or none.
_NEARLY = re.compile(
    r"(?!(?-i:[a-z0-9]+)://)"
    r"(s3[an]?|gs|gcs|az|abfss?|wasbs?|file|memory|hdfs|https?)(?:://|:/|:|//)",
    re.IGNORECASE,
)
MAX_LOCATION = 1024


class LocationError(ValueError):
    """A location that is malformed or outside every configured root; the message says what to do."""


def parse_location(text: str) -> str:
    """A location in one spelling: `scheme://authority/components`, no slash at the end. LocationError otherwise."""
    if not text or len(text) > MAX_LOCATION:
        raise LocationError(f"a location has 1 to {MAX_LOCATION} characters")
    if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise LocationError("a location holds no control characters and no lone surrogates")
    if "%" in text or "\\" in text or "?" in text or "#" in text:
        raise LocationError("a location holds no '%', '\\', '?' or '#': write the folder's plain name")
    match = _SCHEME.match(text)
    if match is None:
        if not text.startswith("/"):
            raise LocationError("a location is absolute: a folder such as /data/t, or a URI such as s3://bucket/t")
        text = "file://" + text
        match = _SCHEME.match(text)
        assert match is not None
    scheme, rest = match[1].lower(), text[match.end() :].rstrip("/")
    parts = rest.split("/")
    first = 1 if scheme == "file" else 0
    if scheme == "file" and parts[0] != "":
        raise LocationError("a file location names no host: write file:///folder")
    if any(part in ("", ".", "..") for part in parts[first:]):
        raise LocationError("a location holds no empty, '.' or '..' component: write the folder's own path")
    return f"{scheme}://{rest}"


def mistyped(place: str) -> str | None:
    """What a place probably means that begins like a URI and is none (`s3:/lake`, `s3//lake`); None for all others.

    Without this it would be the name of a new folder.
    """
    match = _NEARLY.match(place)
    if match is None:
        return None
    scheme, rest = match[1].lower(), place[match.end() :].lstrip("/")
    return f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest or 'bucket/folder'}"


def below(root: str, location: str) -> str | None:
    """The components of `location` under `root` (`""` for the root itself), or None when it lies outside."""
    if location == root:
        return ""
    inside = root if root.endswith("/") else root + "/"
    return location[len(inside) :] if location.startswith(inside) else None


def overlap(one: str, other: str) -> bool:
    """Whether one location is the other or lies inside it."""
    return below(one, other) is not None or below(other, one) is not None
