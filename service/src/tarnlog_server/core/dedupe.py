"""Known commit ids: what a resend is answered with, found without reading the log again.

The newest ids are in a dict with their whole answer. Older ones are sealed into sorted runs of 64-bit values (the
random half of a UUIDv7), 20 bytes an id; a hit there is only a candidate and is verified in the version file it names.
"""

from __future__ import annotations

import contextlib
import enum
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import nlargest
from uuid import UUID

from msgspec import Struct

from tarnlog.protocol.ids import commit_id_time_ms
from tarnlog_server.core.version_record import VersionRecord

CLOCK_TOLERANCE_MS = 15 * 60 * 1000
"""The difference between two clocks that is accepted: a client's and a replica's, or those of two replicas."""

KEPT_ANYWAY = 10_000
"""The newest ids are kept whatever their age, 200 kB of them: after a step of the clock none is as old as it looks."""


class IdAge(enum.Enum):
    """What the time inside an unknown commit id allows."""

    USABLE = "usable"
    """It may be committed: if it had been committed before, it would be known."""
    EXPIRED = "expired"
    """It is older than the ids that are remembered. Whether it was committed cannot be determined."""
    FUTURE = "future"
    """It is ahead of this clock. Not now: either clock may be wrong."""
    LOG_AHEAD = "log-ahead"
    """The remembered ids begin later than this clock says it is. Not now: some clock was or is wrong."""


def id_age(commit_id: str, now_ms: int, window_ms: int, complete_since_ms: int = 0) -> IdAge:
    """Whether an id that is not in the log may be committed now.

    Only for ids that were looked up: a known id is answered by what happened, whatever the clocks say. An id that is
    not younger than `complete_since_ms` (see `CommitIds`) may have been forgotten, so it is never taken for a new one.
    """
    made = commit_id_time_ms(commit_id)
    if made < now_ms - window_ms:
        return IdAge.EXPIRED
    if made > now_ms + CLOCK_TOLERANCE_MS:
        return IdAge.FUTURE
    complete = complete_since_ms + CLOCK_TOLERANCE_MS
    if complete_since_ms and made < complete:
        return IdAge.EXPIRED if complete <= now_ms else IdAge.LOG_AHEAD
    return IdAge.USABLE


def version_time(now_ms: int, previous_ms: int, commit_ids: Iterable[str]) -> int:
    """The timestamp of a new version: now, but after the previous version, and never far behind an id it holds.

    The last part only matters when the clock stepped back after an id was admitted.
    """
    made = max(map(commit_id_time_ms, commit_ids), default=0)
    return max(now_ms, previous_ms + 1, made - CLOCK_TOLERANCE_MS)


class Known(Struct, frozen=True, gc=False):
    """Where a commit id is in the log, and what was asked for then."""

    version: int
    seq: int
    timestamp: int
    request_hash: str | None


class SealedRun(Struct, frozen=True):
    """Ids as parallel columns, sorted by hash.

    `newest_ms` is the newest version's timestamp. `made_first_ms` and `made_last_ms` bound the times inside the ids:
    a search skips the run by these alone, so it does not depend on any clock. They are open where they are not known.
    """

    hashes: array[int]
    versions: array[int]
    seqs: array[int]
    newest_ms: int
    made_first_ms: int = 0
    made_last_ms: int = 2**63 - 1

    @classmethod
    def of(cls, entries: list[tuple[int, int, int, int]], made_first_ms: int, made_last_ms: int) -> SealedRun:
        """A run of (hash, version, seq, version's timestamp)."""
        entries.sort()
        return cls(
            array("Q", (entry[0] for entry in entries)),
            array("q", (entry[1] for entry in entries)),
            array("i", (entry[2] for entry in entries)),
            max(entry[3] for entry in entries),
            made_first_ms,
            made_last_ms,
        )

    def find(self, value: int) -> list[tuple[int, int]]:
        found = []
        index = bisect_left(self.hashes, value)
        while index < len(self.hashes) and self.hashes[index] == value:
            found.append((self.versions[index], self.seqs[index]))
            index += 1
        return found


class CommitIds:
    """The ids of one table. Lookups cost a dict hit, or log(n) for each run whose ids span the id's own time.

    `complete_since_ms`: ids of versions with a smaller timestamp may have been forgotten; 0 when none were. No version
    has an id that is more than `CLOCK_TOLERANCE_MS` ahead of its timestamp (`version_time`), so an id that is that much
    younger than `complete_since_ms` is known if it is in the log.
    """

    def __init__(self, keep_recent: int = 50_000) -> None:
        self._keep = keep_recent
        self._recent: dict[str, Known] = {}
        self._runs: list[SealedRun] = []
        self.complete_since_ms = 0
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
        made = commit_id_time_ms(commit_id)
        return [
            place for run in self._runs if run.made_first_ms <= made <= run.made_last_ms for place in run.find(value)
        ]

    def forget_before(self, timestamp_ms: int) -> None:
        """Drop the sealed runs of versions before a time, as long as `KEPT_ANYWAY` ids are left."""
        kept = []
        for run, needed in self._newest_first():
            if run.newest_ms >= timestamp_ms or needed:
                kept.append(run)
            else:
                self.complete_since_ms = max(self.complete_since_ms, run.newest_ms + 1)
        self._runs = kept[::-1]

    def add_run(self, run: SealedRun, complete_since_ms: int = 0) -> None:
        """Ids that a state remembered, and since when it remembered all of them."""
        self.complete_since_ms = max(self.complete_since_ms, complete_since_ms)
        if len(run.hashes):
            self._runs.append(run)

    def upto(self, version: int, since_ms: int) -> tuple[list[tuple[int, int, int]], int]:
        """What a state of a version keeps: (hash, version, seq) of its ids, and since when these are complete.

        Left out are ids of versions before `since_ms`, except for the newest `KEPT_ANYWAY`.
        """
        found = []
        complete = self.complete_since_ms
        for run, needed in self._newest_first():
            oldest = 0
            if run.newest_ms < since_ms and needed < len(run.versions):
                complete = max(complete, run.newest_ms + 1)
                oldest = min(nlargest(needed, run.versions), default=version + 1)
            places = zip(run.hashes, run.versions, run.seqs, strict=True)
            found += [place for place in places if oldest <= place[1] <= version]
        optional = len(self._recent) - KEPT_ANYWAY
        for index, (text, known) in enumerate(self._recent.items()):
            if index < optional and known.timestamp < since_ms:
                complete = max(complete, known.timestamp + 1)
            elif known.version <= version:
                with contextlib.suppress(ValueError):
                    found.append((UUID(text).int & (2**64 - 1), known.version, known.seq))
        found.sort()
        return found, complete

    def _newest_first(self) -> Iterator[tuple[SealedRun, int]]:
        """The runs, each with how many of its ids are among the newest `KEPT_ANYWAY` of all."""
        left = KEPT_ANYWAY - len(self._recent)
        for run in sorted(self._runs, key=lambda one: one.newest_ms, reverse=True):
            yield run, max(left, 0)
            left -= len(run.versions)

    def _seal(self) -> None:
        """Move the older half out of the dict; the newest stay, where looking costs nothing."""
        self.generation = object()
        old = list(self._recent.items())[: len(self._recent) - self._keep]
        entries = []
        made = []
        for text, known in old:
            del self._recent[text]
            with contextlib.suppress(
                ValueError
            ):  # another writer's id need not be a UUID, and nobody can resend it here
                value = UUID(text).int
                made.append(value >> 80)
                entries.append((value & (2**64 - 1), known.version, known.seq, known.timestamp))
        if entries:
            self._runs.append(SealedRun.of(entries, min(made), max(made)))
