"""Decoded manifests: the entries of each as Arrow, so that a plan need not decode Avro. A cache, like the index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class Segment(Struct, frozen=True):
    """The entries of one manifest, known by the SHA-256 of the bytes they were decoded from: it can never be stale.

    `manifest` is the object's key, for people; `bounds` what its state says of its partitions and columns, as JSON;
    `data` an Arrow IPC stream, and `digest` a digest of that.
    """

    sha256: str
    manifest: str
    rows: int
    bounds: str
    data: bytes
    digest: str


class Segments(Protocol):
    """Segments by SHA-256. Every method may raise IndexUnavailable."""

    async def get(self, sha256: str) -> Segment | None:
        """One segment, whole. None when it is not there, or parts of it are not."""
        ...

    async def bounds(self, sha256s: Iterable[str]) -> dict[str, str]:
        """The bounds of those that are there."""
        ...

    async def put(self, segment: Segment, now_ms: int) -> None:
        """Keep a segment; one of the same SHA-256 is replaced."""
        ...

    async def shrink(self, most_bytes: int) -> int:
        """Drop those that were put longest ago, until the data of the rest is at most so large; how many went."""
        ...
