"""A complete index in memory: for tests, the simulation, and a service without a database.

Every method runs from start to end without giving up the event loop, so each is atomic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tarnlog_server.ports.index import (
    Change,
    IndexedTable,
    IndexGap,
    IndexWrong,
    TableFacts,
    VersionRow,
)


@dataclasses.dataclass(slots=True, eq=False)
class _Rows:
    facts: TableFacts
    versions: dict[int, VersionRow] = dataclasses.field(default_factory=dict)
    commits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    first: int = 0
    last: int = -1
    content: int = 0

    @property
    def table(self) -> IndexedTable:
        return IndexedTable(self.facts, self.first, self.last, self.content)


class MemoryIndex:
    """An Index in dicts. Whoever shares the instance shares the index."""

    def __init__(self) -> None:
        self.rows: dict[str, _Rows] = {}
        """By location; a test may alter them behind everyone's back."""

    async def prepare(self) -> None:
        return None

    async def put(self, facts: TableFacts, changes: Sequence[Change]) -> IndexedTable:
        rows = self.rows.get(facts.location) or _Rows(facts)
        check_run(rows.table, changes)
        for change in changes:
            known = rows.versions.get(change.row.version)
            if known is not None and known.checksum != change.row.checksum:
                raise IndexWrong(f"version {known.version} of {facts.location} is there with another checksum")
        self.rows[facts.location] = rows
        if facts.version >= rows.facts.version:
            rows.facts = facts
        for change in changes:
            if rows.first <= change.row.version <= rows.last:
                continue
            self._add(rows, change)
        if changes:
            empty = rows.last < rows.first
            rows.first = changes[0].row.version if empty else min(rows.first, changes[0].row.version)
            rows.last = changes[-1].row.version if empty else max(rows.last, changes[-1].row.version)
        return rows.table

    @staticmethod
    def _add(rows: _Rows, change: Change) -> None:
        version = change.row.version
        rows.versions[version] = change.row
        rows.content += change.row.checksum
        for commit_id, seq in change.commit_ids:
            rows.commits[commit_id] = min(rows.commits.get(commit_id, (version, seq)), (version, seq))

    async def table(self, location: str) -> IndexedTable | None:
        rows = self.rows.get(location)
        return None if rows is None else rows.table

    async def history(self, location: str, first: int, last: int) -> list[VersionRow]:
        rows = self.rows.get(location)
        if rows is None:
            return []
        return [row for version, row in sorted(rows.versions.items()) if first <= version <= last]

    async def around(self, location: str, timestamp: int) -> list[VersionRow]:
        rows = self.rows.get(location)
        ordered = sorted(rows.versions.values(), key=lambda row: row.version) if rows is not None else []
        before = [row for row in ordered if row.timestamp <= timestamp]
        after = [row for row in ordered if row.timestamp > timestamp]
        return [*before[-1:], *after[:1]]

    async def outcome(self, location: str, commit_id: str) -> tuple[int, int] | None:
        rows = self.rows.get(location)
        return None if rows is None else rows.commits.get(commit_id)

    async def count(self, location: str) -> tuple[int, int, int, int]:
        rows = self.rows.get(location)
        if rows is None or not rows.versions:
            return 0, 0, -1, 0
        total = sum(row.checksum for row in rows.versions.values())
        return len(rows.versions), min(rows.versions), max(rows.versions), total

    async def trim(self, location: str, first: int) -> None:
        rows = self.rows.get(location)
        if rows is None:
            return
        first = min(first, rows.last)
        for version in [version for version in rows.versions if version < first]:
            rows.content -= rows.versions.pop(version).checksum
        rows.commits = {key: place for key, place in rows.commits.items() if place[0] >= first}
        rows.first = max(rows.first, first)

    async def forget(self, location: str) -> None:
        self.rows.pop(location, None)

    async def close(self) -> None:
        return None


def check_run(table: IndexedTable, changes: Sequence[Change]) -> None:
    """IndexGap when changes do not touch the run of a table; ValueError when they are no run themselves."""
    versions = [change.row.version for change in changes]
    if versions and versions != list(range(versions[0], versions[0] + len(versions))):
        raise ValueError("versions are put without a gap, in order")
    if versions and table.last >= table.first and (versions[0] > table.last + 1 or versions[-1] < table.first - 1):
        raise IndexGap(table.first, table.last)
