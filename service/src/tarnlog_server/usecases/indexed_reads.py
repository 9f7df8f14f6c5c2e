"""Looking back through the index, where that saves many reads of storage. None always means: ask storage.

Whatever comes back is checked: each row by its checksum, a range for being whole, a time by the two versions around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from tarnlog_server.codec.index_rows import CommitRow, commits_of
from tarnlog_server.core.dedupe import Known
from tarnlog_server.core.index_rows import IndexedTable, IndexWrong
from tarnlog_server.ports.index import Index
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.index_guard import IndexGuard
from tarnlog_server.usecases.ingest import Ingest
from tarnlog_server.usecases.live_table import LiveTable

T = TypeVar("T")


class _Missing(Exception):
    """Rows that were there before are not. Whether that is wrong shows when the table is attached again."""


class VersionCommits(Struct, frozen=True):
    """The commits of one version. A version always has some: only other writers leave none, and they are not here."""

    version: int
    timestamp: int
    commits: tuple[CommitRow, ...]


class IndexedReads:
    """What the index answers. Without one, nothing."""

    def __init__(self, ingest: Ingest | None = None, telemetry: Telemetry | None = None) -> None:
        self._ingest = ingest
        self._telemetry = telemetry or Telemetry()

    async def history(self, live: LiveTable, first: int, last: int) -> list[VersionCommits] | None:
        """The commits of the versions first..last, all of them."""

        async def find(index: Index) -> list[VersionCommits] | None:
            rows = await index.history(live.location, first, last)
            if [row.version for row in rows] != list(range(first, last + 1)):
                raise _Missing
            return [VersionCommits(row.version, row.timestamp, commits_of(live.location, row)) for row in rows]

        return await self._asked("history", live, find, lambda known: known.first <= first and last <= known.last)

    async def version_at(self, live: LiveTable, timestamp: int) -> int | None:
        """The highest version at or before a time, where the version after it is known too."""

        async def find(index: Index) -> int | None:
            rows = await index.around(live.location, timestamp)
            for row in rows:
                commits_of(live.location, row)
            if len(rows) != 2 or rows[1].version != rows[0].version + 1:
                return None
            # Times grow from version to version, so two neighbours around a time leave no other choice.
            return rows[0].version if rows[0].timestamp <= timestamp < rows[1].timestamp else None

        return await self._asked("timestamp", live, find)

    async def outcome(self, live: LiveTable, commit_id: str) -> Known | None:
        """Where a commit is. That one is not found says nothing."""

        async def find(index: Index) -> Known | None:
            place = await index.outcome(live.location, commit_id)
            if place is None:
                return None
            version, seq = place
            rows = await index.history(live.location, version, version)
            if not rows:
                raise _Missing
            for row in rows:
                for commit in commits_of(live.location, row):
                    if (commit.commit_id, commit.seq) == (commit_id, seq):
                        return Known(version, seq, row.timestamp, commit.request_hash)
            raise IndexWrong(f"commit {commit_id} is not in version {version}, where it should be")

        return await self._asked("outcome", live, find)

    async def _asked(
        self,
        kind: str,
        live: LiveTable,
        find: Callable[[Index], Awaitable[T | None]],
        useful: Callable[[IndexedTable], bool] = lambda _: True,
    ) -> T | None:
        if self._ingest is None:
            return None
        known = self._ingest.attached(live)
        found: T | None = None
        if known is not None and useful(known):
            guard: IndexGuard = self._ingest.guard
            try:
                found = await guard.read(kind, find)
            except IndexWrong as error:
                self._ingest.distrust(live, str(error))
            except _Missing:
                self._ingest.look_again(live)
        self._telemetry.index_lookup(kind, found is not None)
        return found
