"""The index: what versions changed, kept in a database so that looking back costs no reads of storage.

It is only a cache. Storage is the truth; whoever reads here checks what comes back (`codec.index_rows`) and goes to
storage when there is nothing, an error, or something that does not fit. Losing all of it loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tarnlog_server.core.index_rows import Change, IndexedTable, IndexWrong, TableFacts, VersionRow

__all__ = [
    "Change",
    "Index",
    "IndexGap",
    "IndexUnavailable",
    "IndexWrong",
    "IndexedTable",
    "TableFacts",
    "VersionRow",
]


class IndexUnavailable(Exception):
    """The database did not do it: it is down, slow, full, dropped, or its schema is missing. Nothing is known."""


class IndexGap(Exception):
    """The versions to put do not touch those that are there: put the ones in between first. Nothing was written."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"the index holds versions {first} to {last}")
        self.first = first
        self.last = last


class Index(Protocol):
    """The rows of all tables, by the location of each. Every method may raise IndexUnavailable, and takes its time:
    whoever cannot wait gives it a time limit. Cancelling one leaves what was there, or all of what it was to do.
    """

    async def prepare(self) -> None:
        """Make the place ready: connect, and bring the schema up to date where that is wanted. Safe to repeat."""
        ...

    async def put(self, facts: TableFacts, changes: Sequence[Change]) -> IndexedTable:
        """Add versions that follow each other without a gap, all or nothing; those already there are passed over.

        With none, only the facts are put. Raises IndexGap when the run of versions would get a hole, IndexWrong when
        a version is there with another checksum.
        """
        ...

    async def table(self, location: str) -> IndexedTable | None:
        """One table."""
        ...

    async def history(self, location: str, first: int, last: int) -> list[VersionRow]:
        """The versions first..last that are there, in order."""
        ...

    async def around(self, location: str, timestamp: int) -> list[VersionRow]:
        """The newest version at or before a time, and the oldest after it; those of them that are there, in order."""
        ...

    async def outcome(self, location: str, commit_id: str) -> tuple[int, int] | None:
        """The (version, seq) of a commit: a hint, to be found again in that version."""
        ...

    async def count(self, location: str) -> tuple[int, int, int, int]:
        """How many versions there are, the first, the last (0 and -1 without any), and the sum of their checksums.

        Counted from the rows themselves: it costs a pass over them, inside the database.
        """
        ...

    async def trim(self, location: str, first: int) -> None:
        """Forget the versions below `first`, and what only they said. Keeps the newest version in any case."""
        ...

    async def forget(self, location: str) -> None:
        """Forget a table. One that is not there is fine."""
        ...

    async def close(self) -> None:
        """Let go of connections. The index is not used after this."""
        ...
