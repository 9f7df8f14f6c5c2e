"""The files of a table in memory: append-only, so that a snapshot is only a version and a length.

Every file that was ever added keeps its row; removing it notes at which version that happened. A view at version v
is the rows below its length that were not removed at or before v. One writer appends; any number of views read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key


class FileLog:
    """Rows of added files, the version each was removed at, and the live row of each path. All operations are O(1)."""

    __slots__ = ("_added_at", "_added_time", "_live", "_removed_at", "_rows")

    def __init__(self) -> None:
        self._rows: list[Add] = []
        self._added_at = array("q")
        self._added_time = array("q")
        self._removed_at: dict[int, int] = {}
        self._live: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def dead_rows(self) -> int:
        return len(self._removed_at)

    @property
    def live_count(self) -> int:
        """How many files are live at the newest version."""
        return len(self._live)

    def add(self, key: str, add: Add, version: int, time: int = 0) -> Add | None:
        """Append a live file; returns the one it replaces, if that path was live."""
        replaced = self.remove(key, version)
        self._live[key] = len(self._rows)
        self._rows.append(add)
        self._added_at.append(version)
        self._added_time.append(time)
        return replaced

    def remove(self, key: str, version: int) -> Add | None:
        """Note that a path is gone from `version` on; returns the file that was live there."""
        row = self._live.pop(key, None)
        if row is None:
            return None
        self._removed_at[row] = version
        return self._rows[row]

    def live(self, key: str) -> Add | None:
        """The live file of a path at the newest version."""
        row = self._live.get(key)
        return None if row is None else self._rows[row]

    def rows(self, version: int, length: int, start: int = 0) -> Iterator[tuple[int, Add]]:
        """Rows (index, file) of the view at `version`, from row `start`."""
        removed_at = self._removed_at
        for index in range(start, length):
            gone = removed_at.get(index)
            if gone is None or gone > version:
                yield index, self._rows[index]

    def added_at(self, row: int) -> int:
        """The version that added a row. Rows are in the order of these versions, also after compaction."""
        return self._added_at[row]

    def added_time(self, row: int) -> int:
        """The timestamp of the version that added a row; 0 when nobody knows."""
        return self._added_time[row]

    def live_since(self, key: str) -> int | None:
        """The version that added the live file of a path."""
        row = self._live.get(key)
        return None if row is None else self._added_at[row]

    def row_after(self, version: int, key: str) -> int:
        """The row behind the file `key` that `version` added: where a listing goes on, on any replica.

        Costs a search plus the rows of that one version. A path that the version added twice is live in its last row.
        """
        row = bisect_left(self._added_at, version)
        behind: int | None = None
        while row < len(self._rows) and self._added_at[row] == version:
            row += 1
            if path_key(self._rows[row - 1].path) == key:
                behind = row
        return row if behind is None else behind

    def compacted(self) -> FileLog:
        """A copy without dead rows; views of this one stay valid. Costs one pass over the live files."""
        fresh = FileLog()
        for key, row in self._live.items():
            fresh._live[key] = len(fresh._rows)
            fresh._rows.append(self._rows[row])
            fresh._added_at.append(self._added_at[row])
            fresh._added_time.append(self._added_time[row])
        return fresh
