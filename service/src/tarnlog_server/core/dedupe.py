"""Known commit ids: what a resend is answered with, found without reading the log again.

The newest ids are in a dict with their whole answer. Older ones are sealed into sorted runs of 64-bit values (the
random half of a UUIDv7), 20 bytes an id; a hit there is only a candidate and is verified in the version file it names.
"""

from __future__ import annotations

import contextlib
import enum
from array import array
from bisect import bisect_left
from uuid import UUID

from msgspec import Struct

from tarnlog.protocol.ids import commit_id_time_ms
from tarnlog_server.core.version_record import VersionRecord

CLOCK_TOLERANCE_MS = 15 * 60 * 1000
"""How far a client's clock may be off before its ids are refused or its commits might not be found again."""


class IdAge(enum.Enum):
    """Where an id's own time lies."""

    USABLE = "usable"
    EXPIRED = "expired"
    FUTURE = "future"


def id_age(commit_id: str, now_ms: int, window_ms: int) -> IdAge:
    """Whether an id may be committed now. A future one is refused: a resend would look for it in the wrong place."""
    made = commit_id_time_ms(commit_id)
    if made < now_ms - window_ms:
        return IdAge.EXPIRED
    return IdAge.FUTURE if made > now_ms + CLOCK_TOLERANCE_MS else IdAge.USABLE


class Known(Struct, frozen=True, gc=False):
    """Where a commit id is in the log, and what was asked for then."""

    version: int
    seq: int
    timestamp: int
    request_hash: str | None


class SealedRun(Struct, frozen=True):
    """Ids as parallel columns, sorted by hash."""

    hashes: array[int]
    versions: array[int]
    seqs: array[int]
    newest_ms: int

    @classmethod
    def of(cls, entries: list[tuple[int, int, int, int]]) -> SealedRun:
        """A run of (hash, version, seq, time)."""
        entries.sort()
        return cls(
            array("Q", (entry[0] for entry in entries)),
            array("q", (entry[1] for entry in entries)),
            array("i", (entry[2] for entry in entries)),
            max(entry[3] for entry in entries),
        )

    def find(self, value: int) -> list[tuple[int, int]]:
        found = []
        index = bisect_left(self.hashes, value)
        while index < len(self.hashes) and self.hashes[index] == value:
            found.append((self.versions[index], self.seqs[index]))
            index += 1
        return found


class CommitIds:
    """The ids of one table. Lookups cost a dict hit, or log(n) for each run young enough to hold the id."""

    def __init__(self, keep_recent: int = 50_000) -> None:
        self._keep = keep_recent
        self._recent: dict[str, Known] = {}
        self._runs: list[SealedRun] = []
        self.generation = object()
        """Another object each time ids leave the recent ones: whoever looked before must look again."""

    def record(self, record: VersionRecord) -> None:
        """Remember the ids of a version. The first place of an id counts."""
        for sub in record.sub_commits:
            if sub.commit_id:
                known = Known(record.version, sub.seq, record.timestamp, sub.request_hash)
                self._recent.setdefault(sub.commit_id, known)
        if len(self._recent) > 2 * self._keep:
            self._seal()

    def recent(self, commit_id: str) -> Known | None:
        """The answer for an id among the newest ones."""
        return self._recent.get(commit_id)

    def candidates(self, commit_id: str) -> list[tuple[int, int]]:
        """(version, seq) places in the sealed runs where this id may be: verify before believing."""
        if not self._runs:
            return []
        value = UUID(commit_id).int & (2**64 - 1)
        oldest = commit_id_time_ms(commit_id) - CLOCK_TOLERANCE_MS
        return [place for run in self._runs if run.newest_ms >= oldest for place in run.find(value)]

    def forget_before(self, timestamp_ms: int) -> None:
        """Drop sealed runs that lie wholly before a time: ids that old are answered as expired."""
        self._runs = [run for run in self._runs if run.newest_ms >= timestamp_ms]

    def add_run(self, run: SealedRun) -> None:
        """Ids that a state remembered."""
        if len(run.hashes):
            self._runs.append(run)

    def upto(self, version: int, since_ms: int) -> list[tuple[int, int, int]]:
        """(hash, version, seq) of every id known at a version and not surely older than a time: what a state keeps."""
        found = [
            place
            for run in self._runs
            if run.newest_ms >= since_ms
            for place in zip(run.hashes, run.versions, run.seqs, strict=True)
            if place[1] <= version
        ]
        for text, known in self._recent.items():
            if known.version <= version and known.timestamp >= since_ms:
                with contextlib.suppress(ValueError):
                    found.append((UUID(text).int & (2**64 - 1), known.version, known.seq))
        found.sort()
        return found

    def _seal(self) -> None:
        """Move the older half out of the dict; the newest stay, where looking costs nothing."""
        self.generation = object()
        old = list(self._recent.items())[: len(self._recent) - self._keep]
        entries = []
        for text, known in old:
            del self._recent[text]
            with contextlib.suppress(
                ValueError
            ):  # another writer's id need not be a UUID, and nobody can resend it here
                entries.append((UUID(text).int & (2**64 - 1), known.version, known.seq, known.timestamp))
        if entries:
            self._runs.append(SealedRun.of(entries))
