"""How much memory open tables may take together, who has to go, and how often a table was at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.caches import CacheStats
from tarnlog_server.usecases.load_times import LoadTimes

GIB = 2**30
BYTES_A_TABLE = 32 * 1024
"""What an open table takes besides its files."""


class Held(Protocol):
    """A table in memory."""

    @property
    def last_used(self) -> float: ...

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nobody would notice that it is closed."""
        ...


T = TypeVar("T", bound=Held)


class TableMemory:
    """Bounds by count and by bytes; the least recently used table goes first."""

    def __init__(self, telemetry: Telemetry, *, max_tables: int = 1000, max_bytes: int = 2 * GIB) -> None:
        self.max_tables = max_tables
        self.max_bytes = max_bytes
        self.loads = LoadTimes()
        self._telemetry = telemetry
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    def looked_up(self, *, hit: bool) -> None:
        """A table was asked for."""
        self._hits += hit
        self._misses += not hit
        self._telemetry.cache_lookup("tables", hit)

    def victims(self, tables: Sequence[T]) -> list[T]:
        """Whom to close so that the others fit. The one used last stays, however large: somebody works with it."""
        sizes = {id(table): table.nbytes for table in tables}
        held, count = sum(sizes.values()), len(tables)
        going: list[T] = []
        for table in sorted(tables, key=lambda table: table.last_used)[:-1]:
            if held <= self.max_bytes and count <= self.max_tables:
                break
            if table.idle:
                going.append(table)
                held -= sizes[id(table)]
                count -= 1
        self._evictions += len(going)
        for _ in going:
            self._telemetry.table_evicted()
        self._telemetry.tables_held(count, held)
        return going

    def stats(self, tables: Sequence[Held]) -> CacheStats:
        """As the other caches tell; tables do not expire."""
        total = self._hits + self._misses
        return CacheStats(
            self._hits,
            self._misses,
            round(self._hits / total, 4) if total else 0.0,
            len(tables),
            self.max_tables,
            0.0,
            bytes=sum(table.nbytes for table in tables),
            max_bytes=self.max_bytes,
            evictions=self._evictions,
            loads=self.loads.told(),
        )
