"""The index in the simulation: one database in memory, and a link of each replica to it that fails, forgets and lies.

Somebody also meddles with the rows behind everyone's back, as a person with a SQL prompt does, or a restored backup.
What nobody does is forge: an altered row keeps its checksum, because a forged one is believed, as the service says.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.ports.index import (
    Change,
    IndexedTable,
    IndexUnavailable,
    TableFacts,
    VersionRow,
)
from tests.simulation.storage import Trace


@dataclasses.dataclass(frozen=True, slots=True)
class IndexFaults:
    """Chances of each fault in a call, from 0 to 1."""

    error: float = 0.0  # not done, and it says so
    lost_answer: float = 0.0  # done, and it says that it was not
    lost_write: float = 0.0  # not done, and it says that it was
    slow: float = 0.0  # longer than anybody waits for a read
    meddled: float = 0.0  # rows are altered, taken away, or those of an earlier time
    dropped: float = 0.0  # everything is gone


class Database:
    """The rows that all replicas share, and whoever meddles with them."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.index = MemoryIndex()
        self._rng = rng
        self._trace = trace
        self._backup: dict[str, Any] = {}

    def drop(self) -> None:
        """Everything is gone."""
        self.index.rows.clear()
        self._note("drop")

    def meddle(self) -> None:
        """Somebody does something to the rows."""
        what = self._rng.choice(
            (self._altered, self._altered, self._later, self._gone, self._misplaced, self._exchanged, self._shortened)
            if self._rng.random() < 0.8
            else (self._saved, self._restored)
        )
        self._note(what.__name__.strip("_"))
        tables = [rows for _, rows in sorted(self.index.rows.items()) if rows.versions]
        if what in (self._saved, self._restored):
            what(None)
        elif tables:
            what(self._rng.choice(tables))

    def _note(self, what: str) -> None:
        self._trace.append((asyncio.get_running_loop().time(), "database", what))

    def _altered(self, rows: Any) -> None:
        row = self._some(rows)
        text = row.commits.replace('"operation":"', '"operation":"NOT ')
        rows.versions[row.version] = msgspec.structs.replace(row, commits=text)

    def _later(self, rows: Any) -> None:
        row = self._some(rows)
        moved = row.timestamp + self._rng.choice((-1000, -1, 1, 1000))
        rows.versions[row.version] = msgspec.structs.replace(row, timestamp=moved)

    def _gone(self, rows: Any) -> None:
        del rows.versions[self._some(rows).version]

    def _misplaced(self, rows: Any) -> None:
        if rows.commits:
            commit_id = self._rng.choice(sorted(rows.commits))
            version, seq = rows.commits[commit_id]
            rows.commits[commit_id] = (version + self._rng.choice((-1, 1)), seq)

    def _exchanged(self, rows: Any) -> None:
        one, other = self._some(rows), self._some(rows)
        rows.versions[one.version] = msgspec.structs.replace(other, version=one.version)

    def _shortened(self, rows: Any) -> None:
        """The table says of itself what its rows do not."""
        rows.last += self._rng.choice((-1, 1))

    def _saved(self, _: Any) -> None:
        self._backup = copy.deepcopy(self.index.rows)

    def _restored(self, _: Any) -> None:
        self.index.rows = copy.deepcopy(self._backup)

    def _some(self, rows: Any) -> VersionRow:
        row: VersionRow = rows.versions[self._rng.choice(sorted(rows.versions))]
        return row


class IndexLink:
    """The index as one life of a replica reaches it."""

    def __init__(self, database: Database, faults: IndexFaults, rng: random.Random, name: str, trace: Trace) -> None:
        self.faults = faults
        self._database = database
        self._rng = rng
        self._name = name
        self._trace = trace

    async def prepare(self) -> None:
        await self._met("prepare")

    async def put(self, facts: TableFacts, changes: Sequence[Change]) -> IndexedTable:
        put: IndexedTable = await self._met("put", facts, changes)
        return put

    async def table(self, location: str) -> IndexedTable | None:
        found: IndexedTable | None = await self._met("table", location)
        return found

    async def history(self, location: str, first: int, last: int) -> list[VersionRow]:
        found: list[VersionRow] = await self._met("history", location, first, last)
        return found

    async def around(self, location: str, timestamp: int) -> list[VersionRow]:
        found: list[VersionRow] = await self._met("around", location, timestamp)
        return found

    async def outcome(self, location: str, commit_id: str) -> tuple[int, int] | None:
        found: tuple[int, int] | None = await self._met("outcome", location, commit_id)
        return found

    async def count(self, location: str) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = await self._met("count", location)
        return found

    async def trim(self, location: str, first: int) -> None:
        await self._met("trim", location, first)

    async def forget(self, location: str) -> None:
        await self._met("forget", location)

    async def close(self) -> None:
        return None

    async def _met(self, call: str, *arguments: Any) -> Any:
        """One call, with what goes wrong on the way."""
        faults, roll = self.faults, self._rng.random
        await asyncio.sleep(self._rng.expovariate(1000))
        if roll() < faults.meddled:
            self._database.meddle()
        if roll() < faults.dropped:
            self._database.drop()
        if roll() < faults.slow:
            self._noted(call, "slow")
            await asyncio.sleep(self._rng.choice((0.6, 20.0)))
        if roll() < faults.error:
            self._noted(call, "error")
            raise IndexUnavailable("the database says no")
        index = self._database.index
        if call == "put" and roll() < faults.lost_write:
            self._noted(call, "lost write")
            index = MemoryIndex()
            index.rows = copy.deepcopy(self._database.index.rows)
        method: Callable[..., Any] = getattr(index, call)
        done = await method(*arguments)
        if roll() < faults.lost_answer:
            self._noted(call, "lost answer")
            raise IndexUnavailable("the connection broke")
        return done

    def _noted(self, call: str, fault: str) -> None:
        self._trace.append((asyncio.get_running_loop().time(), self._name, "index", call, fault))
