"""Segments in a dict, in the order they were put."""

from __future__ import annotations

from collections.abc import Iterable

from tarnlog_server.ports.segments import Segment


class MemorySegments:
    """A complete Segments in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Segment] = {}
        """The one put longest ago first; a test may alter them."""

    async def get(self, sha256: str) -> Segment | None:
        return self.kept.get(sha256)

    async def bounds(self, sha256s: Iterable[str]) -> dict[str, str]:
        return {sha256: self.kept[sha256].bounds for sha256 in sha256s if sha256 in self.kept}

    async def put(self, segment: Segment, now_ms: int) -> None:
        self.kept.pop(segment.sha256, None)
        self.kept[segment.sha256] = segment

    async def shrink(self, most_bytes: int) -> int:
        size = sum(len(segment.data) for segment in self.kept.values())
        gone = 0
        for sha256, segment in list(self.kept.items()):
            if size <= most_bytes:
                break
            size -= len(segment.data)
            del self.kept[sha256]
            gone += 1
        return gone
