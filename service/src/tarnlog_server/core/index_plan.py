"""What the index of a table needs next, and whether what it holds can be believed. Pure: runs of versions as numbers.

The rows of a table are one run without a hole. It grows upwards with the log, and downwards as far as memory reaches;
what is older is read only when somebody asks for it.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from tarnlog_server.core.index_rows import IndexedTable

FILL_AT_MOST = 1000
"""Versions that are read from storage to close a gap: beyond, the index begins anew with what is in memory."""


class Source(enum.Enum):
    """Where the versions come from."""

    MEMORY = "memory"
    STORAGE = "storage"


class Put(Struct, frozen=True):
    """Put the versions first..last."""

    first: int
    last: int
    source: Source


class StartOver(Struct, frozen=True):
    """Forget the table: it is too far behind to be worth closing the gap."""


def next_put(
    indexed: tuple[int, int] | None, memory: tuple[int, int], oldest: int, most: int, fill: int = FILL_AT_MOST
) -> Put | StartOver | None:
    """What to put next, at most `most` versions; None when there is nothing to do.

    `indexed` and `memory` are runs (first, last); the memory's may be empty (first = last + 1), its last is the head.
    Versions below `oldest` are not put: they are gone, or told by others.
    """
    low, head = max(memory[0], oldest), memory[1]
    if indexed is None:
        if low > head:
            # A table that was opened from a state of its newest version: that version is where the run begins.
            return Put(head, head, Source.STORAGE) if head >= oldest else None
        return Put(max(low, head - most + 1), head, Source.MEMORY)
    first, last = indexed
    if last < head:
        if low <= last + 1:
            return Put(last + 1, min(head, last + most), Source.MEMORY)
        if low - 1 - last > fill:
            return StartOver()
        return Put(last + 1, min(low - 1, last + most), Source.STORAGE)
    if low < first <= head + 1:
        # Where another replica is so far ahead that its run begins above our head, we have nothing that touches it.
        return Put(max(low, first - most), first - 1, Source.MEMORY)
    return None


def agrees(table: IndexedTable, counted: tuple[int, int, int, int]) -> bool:
    """Whether the rows that were counted are exactly those that the table's own row speaks of."""
    rows, first, last, content = counted
    if table.last < table.first:
        return rows == 0
    return (rows, first, last, content) == (table.last - table.first + 1, table.first, table.last, table.content)
