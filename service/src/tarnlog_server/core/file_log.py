"""The files of a table in memory: append-only, so that a snapshot is only a version and a length.

Every file that was ever added keeps its row; removing it notes at which version that happened. A view at version v
is the rows below its length that were not removed at or before v. One writer appends; any number of views read.
The first rows may come from a state as one immutable segment, which keeps them packed and makes an action of a row
only when somebody asks for it: a million files then cost a few hundred megabytes instead of more than a gigabyte.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Protocol

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key

_PATH = attrgetter("path")
BYTES_A_ROW = 1400
"""What an action takes that is not packed, its values, its key and its places in lists included: measured."""
BYTES_A_REMOVAL = 100


class Segment(Protocol):
    """Rows that came with a state: immutable, no path twice, in the order of the versions that added them."""

    def __len__(self) -> int: ...

    def find(self, key: str) -> int | None:
        """The row of a path, by its key."""
        ...

    def row(self, index: int) -> Add:
        """One file. Costs making it, about a hundred microseconds."""
        ...

    def rows(self, start: int) -> Iterator[Add]:
        """All files from a row on; made in blocks, which is several times cheaper than one by one."""
        ...

    def paths(self) -> Iterator[str]:
        """The paths of all files, as they are written in the log."""
        ...

    def added_at(self, index: int) -> int:
        """The version that added a row."""
        ...

    def added_time(self, index: int) -> int:
        """The timestamp of that version; 0 when nobody knows."""
        ...

    def first_of(self, version: int) -> int:
        """The first row that this version or a later one added."""
        ...

    def without(self, dead: Collection[int]) -> Segment:
        """A segment of the other rows, in the same order."""
        ...

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        ...


class FileLog:
    """Rows of added files, the version each was removed at, and the live row of each path. All operations are O(1),
    but for a search (log n) in a segment."""

    __slots__ = (
        "_added_at",
        "_added_time",
        "_base",
        "_gone",
        "_live",
        "_live_count",
        "_removed_at",
        "_rows",
        "_segment",
    )

    def __init__(self, segment: Segment | None = None) -> None:
        self._segment = segment
        self._base = 0 if segment is None else len(segment)
        """Rows below it are the segment's, the others lie in `_rows`, `_added_at` and `_added_time`."""
        self._rows: list[Add] = []
        self._added_at = array("q")
        self._added_time = array("q")
        self._removed_at: dict[int, int] = {}
        self._live: dict[str, int] = {}
        """Live rows behind the segment, by path key."""
        self._live_count = self._base
        self._gone: tuple[int, int, list[int]] | None = None
        """What `gone` said last, of which version and of how many removals."""

    def __len__(self) -> int:
        return self._base + len(self._rows)

    @property
    def segment(self) -> Segment | None:
        """The first rows, where they came with a state."""
        return self._segment

    @property
    def dead_rows(self) -> int:
        return len(self._removed_at)

    @property
    def live_count(self) -> int:
        """How many files are live at the newest version."""
        return self._live_count

    def add(self, key: str, add: Add, version: int, time: int = 0) -> Add | None:
        """Append a live file; returns the one it replaces, if that path was live."""
        replaced = self.remove(key, version)
        self._live[key] = self._base + len(self._rows)
        self._live_count += 1
        self._rows.append(add)
        self._added_at.append(version)
        self._added_time.append(time)
        return replaced

    def remove(self, key: str, version: int) -> Add | None:
        """Note that a path is gone from `version` on; returns the file that was live there."""
        row = self._live_row(key)
        if row is None:
            return None
        self._live.pop(key, None)
        self._live_count -= 1
        self._removed_at[row] = version
        return self.file(row)

    def has(self, key: str) -> bool:
        """Whether a path is live at the newest version: cheaper than asking for its file."""
        return self._live_row(key) is not None

    def live(self, key: str) -> Add | None:
        """The live file of a path at the newest version."""
        row = self._live_row(key)
        return None if row is None else self.file(row)

    def rows(self, version: int, length: int, start: int = 0) -> Iterator[tuple[int, Add]]:
        """Rows (index, file) of the view at `version`, from row `start`."""
        removed_at = self._removed_at
        if self._segment is not None and start < self._base:
            for index, file in enumerate(self._segment.rows(start), start):
                if index >= length:
                    return
                gone = removed_at.get(index)
                if gone is None or gone > version:
                    yield index, file
        for index in range(max(start, self._base), length):
            gone = removed_at.get(index)
            if gone is None or gone > version:
                yield index, self._rows[index - self._base]

    def paths(self, version: int, length: int) -> Iterator[str]:
        """The paths of the view at `version`."""
        removed_at = self._removed_at
        packed = () if self._segment is None else self._segment.paths()
        for index, path in enumerate(chain(packed, map(_PATH, self._rows))):
            if index >= length:
                return
            gone = removed_at.get(index)
            if gone is None or gone > version:
                yield path

    def added_at(self, row: int) -> int:
        """The version that added a row. Rows are in the order of these versions, also after compaction."""
        if self._segment is not None and row < self._base:
            return self._segment.added_at(row)
        return self._added_at[row - self._base]

    def added_time(self, row: int) -> int:
        """The timestamp of the version that added a row; 0 when nobody knows."""
        if self._segment is not None and row < self._base:
            return self._segment.added_time(row)
        return self._added_time[row - self._base]

    def live_since(self, key: str) -> int | None:
        """The version that added the live file of a path."""
        row = self._live_row(key)
        return None if row is None else self.added_at(row)

    def first_of(self, version: int) -> int:
        """The first row that this version or a later one added. Costs a search."""
        if self._segment is not None and (found := self._segment.first_of(version)) < self._base:
            return found
        return self._base + bisect_left(self._added_at, version)

    def row_after(self, version: int, key: str) -> int:
        """The row behind the file `key` that `version` added: where a listing goes on, on any replica.

        Costs a search plus the rows of that one version. A path that the version added twice is live in its last row.
        """
        if self._segment is not None:
            found = self._segment.find(key)
            if found is not None and self._segment.added_at(found) == version:
                return found + 1
            behind = self._segment.first_of(version + 1)
            if behind < self._base:
                return behind
        row = bisect_left(self._added_at, version)
        after: int | None = None
        while row < len(self._rows) and self._added_at[row] == version:
            row += 1
            if path_key(self._rows[row - 1].path) == key:
                after = row
        return self._base + (row if after is None else after)

    def compacted(self) -> FileLog:
        """A copy without dead rows; views of this one stay valid. Costs one pass over the live files."""
        segment = self._segment
        if segment is not None:
            segment = segment.without({row for row in self._removed_at if row < self._base})
        fresh = FileLog(segment)
        for key, row in self._live.items():
            fresh._live[key] = len(fresh)
            fresh._live_count += 1
            fresh._rows.append(self._rows[row - self._base])
            fresh._added_at.append(self._added_at[row - self._base])
            fresh._added_time.append(self._added_time[row - self._base])
        return fresh

    def resealed(self, segment: Segment, version: int, length: int) -> FileLog:
        """A log that begins with `segment`, which holds exactly what the view of `length` rows at `version` shows.

        What was added and removed since is carried over; views of this one stay valid. Costs what happened since, plus
        a search in the segment for each of its files that is gone.
        """
        fresh = FileLog(segment)
        since = slice(length - self._base, None)
        fresh._rows = self._rows[since]
        fresh._added_at, fresh._added_time = self._added_at[since], self._added_time[since]
        shift = fresh._base - length
        fresh._live = {key: row + shift for key, row in self._live.items() if row >= length}
        for row, gone in self._removed_at.items():
            if row >= length:
                fresh._removed_at[row + shift] = gone
            elif gone > version:
                found = segment.find(path_key(self.file(row).path))
                if found is None:
                    raise ValueError(f"the segment lacks {self.file(row).path!r}")
                fresh._removed_at[found] = gone
        fresh._live_count = self._live_count
        return fresh

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        packed = 0 if self._segment is None else self._segment.nbytes
        return packed + len(self._rows) * BYTES_A_ROW + len(self._removed_at) * BYTES_A_REMOVAL

    def _live_row(self, key: str) -> int | None:
        row = self._live.get(key)
        if row is None and self._segment is not None:
            row = self._segment.find(key)
            if row is not None and row in self._removed_at:
                return None
        return row

    def packed_gone(self, version: int) -> set[int]:
        """The rows of the segment that are not live at a version any more. Costs a look at every removal."""
        return {row for row, gone in self._removed_at.items() if row < self._base and gone <= version}

    def is_gone(self, row: int, version: int) -> bool:
        """Whether a row is not live at a version any more."""
        gone = self._removed_at.get(row)
        return gone is not None and gone <= version

    def gone(self, version: int) -> list[int]:
        """The rows that are not live at a version any more, ascending. Costs a pass over them, once for a version."""
        known = self._gone
        if known is None or known[:2] != (version, len(self._removed_at)):
            rows = sorted(row for row, at in list(self._removed_at.items()) if at <= version)
            self._gone = known = (version, len(self._removed_at), rows)
        return known[2]

    def live_before(self, row: int, version: int) -> int:
        """How many rows below one are live at a version. Costs a search once `gone` is known."""
        return row - bisect_left(self.gone(version), row)

    def removals(self) -> Iterable[int]:
        """The versions at which rows were removed."""
        return self._removed_at.values()

    @property
    def base(self) -> int:
        """How many of the first rows are the segment's."""
        return self._base

    def file(self, row: int) -> Add:
        """The file of a row, live or not."""
        if self._segment is not None and row < self._base:
            return self._segment.row(row)
        return self._rows[row - self._base]
