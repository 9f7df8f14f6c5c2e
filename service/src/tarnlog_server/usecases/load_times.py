"""How long it took to have a table's files at hand, by where they came from, since the start of the process."""

from __future__ import annotations

from msgspec import Struct


class LoadTime(Struct, frozen=True, rename="camel"):
    """Loads from one source."""

    count: int
    total_ms: float
    longest_ms: float


class LoadTimes:
    """`memory` is planning on an open table, `index` a decoded manifest from the index, `storage` planning on a table
    that is not open; `avro-state`, `json`, `parquet` and `replay` are openings."""

    def __init__(self) -> None:
        self._by_source: dict[str, tuple[int, float, float]] = {}

    def note(self, source: str, seconds: float) -> None:
        """One load. Costs a dict entry."""
        count, total, longest = self._by_source.get(source, (0, 0.0, 0.0))
        self._by_source[source] = (count + 1, total + seconds, max(longest, seconds))

    def told(self) -> dict[str, LoadTime]:
        """What there was so far."""
        return {
            source: LoadTime(count, round(total * 1e3, 3), round(longest * 1e3, 3))
            for source, (count, total, longest) in sorted(self._by_source.items())
        }
