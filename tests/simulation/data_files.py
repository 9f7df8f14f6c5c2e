"""What vacuums deleted, judged by what the log and the writers said: nothing that anybody may still need, and no less.

A file is needed by every version from the floor on that has it. It is also safe for a day after it was written or
removed, and while a session lasts that was there before it was written. What is older than its table always stays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tests.simulation.journal import Journal
from tests.simulation.log_model import Log

DAY = 24 * 3600.0
SKEW = 10.0
"""Replicas' clocks are a few seconds off the store's."""


class _Files:
    """One table's data files: where the log names them, and when they were written."""

    def __init__(self, journal: Journal, log: Log) -> None:
        self._journal = journal
        self._log = log
        self.folder = log.root.removesuffix("_transaction_log/")
        self._lives: dict[str, list[tuple[int, int]]] = {}
        for version in log.versions:
            for path in version.after.files:
                lives = self._lives.setdefault(path, [])
                if lives and lives[-1][1] == version.number - 1:
                    lives[-1] = (lives[-1][0], version.number)
                else:
                    lives.append((version.number, version.number))

    def written(self, key: str, when: float) -> float:
        """When it was last written up to a time."""
        times = self._journal.written[key]
        return times[bisect_right(times, when) - 1]

    def older_than_table(self, key: str, when: float, margin: float = 0.0) -> bool:
        """Whether it was written before the table was created, or so soon after it that clocks cannot tell."""
        return self.written(key, when) < self._log.versions[0].created + margin

    def why_needed(self, path: str, when: float) -> str | None:
        """Why a file had to be there at a time; None if it could go."""
        key = self.folder + path
        if self.older_than_table(key, when):
            return "it is older than the table"
        versions, floor = self._log.versions, self._log.floor_at(when)
        times = self._journal.written[key]
        for first, last in self._lives.get(path, ()):
            born = versions[first].created
            if born <= when and last >= floor:
                return f"version {max(first, floor)} has it"
            if born > when and bisect_right(times, when) == bisect_left(times, born):
                return f"version {first} has it, and nobody wrote it again"
            removed = versions[last + 1].created if last + 1 < len(versions) else None
            if removed is not None and when - DAY + SKEW < removed <= when:
                return f"version {last + 1} removed it {when - removed:.0f} s before"
        age = when - self.written(key, when)
        if age < DAY - SKEW:
            return f"it is {age:.0f} s old"
        return self._session(path, when)

    def _session(self, path: str, when: float) -> str | None:
        written = self.written(self.folder + path, when)
        for one in self._journal.sessions:
            if (
                f"{one.folder}/" == self.folder
                and path.startswith(one.prefix)
                and one.begun <= written
                and when < one.until
            ):
                return f"session {one.id} covers it"
        return None


def check_data_files(journal: Journal, log: Log) -> list[str]:
    """Every data file that was deleted too early, and every orphan that the last vacuum left."""
    files, found = _Files(journal, log), []
    for key, when in journal.deleted:
        purged = log.dropped_at is not None and log.dropped_at <= when
        if key.startswith(files.folder) and not key.startswith(log.root) and not purged:
            why = files.why_needed(key.removeprefix(files.folder), when)
            if why is not None:
                found.append(f"{key} was deleted at {when:.0f}: {why}")
    if log.dropped_at is None:
        found += _left(journal, log, files)
    return found


def _left(journal: Journal, log: Log, files: _Files) -> list[str]:
    """What the last vacuum that went well should have taken: it was an orphan when that began, and for a while."""
    began = max((time for table, time in journal.vacuumed if table == log.table), default=None)
    if began is None or journal.sessions_in_doubt:
        return []
    found = []
    for key in journal.written.keys() - journal.missing:
        path = key.removeprefix(files.folder)
        if not key.startswith(files.folder) or files.older_than_table(key, float("inf"), 2 * SKEW):
            continue
        if files.written(key, float("inf")) < began - 2 * SKEW - DAY:
            # A session protects what was there before it, too: only where none was is a file certainly an orphan.
            alone = all(one.until < began or one.begun > began for one in journal.sessions)
            if alone and files.why_needed(path, began - 2 * SKEW) is None and files.why_needed(path, began) is None:
                found.append(f"{key} is an orphan, and the vacuum of {began:.0f} left it")
    return found
