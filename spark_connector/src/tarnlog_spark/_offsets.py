"""Where a stream stands in a table's log, and how far a batch may go. Pure: what is in the log is handed in.

    {"version": 7}                                  everything up to version 7 was read
    {"version": 7, "index": 3}                      ... up to version 6, and the first 3 files of version 7
    {"version": 7, "index": 3, "snapshot": true}    the first 3 files of the table as it was at version 7
    {"version": -1, "start": "snapshot"|"latest"}   nothing yet; the first batch's end says which version it became

The last one is the same at every restart: Spark asks for the start again when a query ends before its first batch is
done, and a start that moved would lose rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tarnlog import InvalidRequest
from tarnlog_spark._changes import VersionFiles
from tarnlog_spark._files import DataFile

NOTHING_YET = -1


class Offset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in the log of one table, which `table` identifies: a table of the same name has a log of its own."""

    version: int
    table: str = ""
    index: int | None = None
    snapshot: bool = False
    start: Literal["snapshot", "latest"] | None = None

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps in the checkpoint."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def offset_from(document: dict[str, Any]) -> Offset:
    """What Spark kept."""
    try:
        return msgspec.convert(document, Offset)
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"The checkpoint holds the offset {document}, which is none of this source ({error}): start the query "
            "with a checkpoint of its own.",
            slug="offset-invalid",
        ) from None


class Limit:
    """How much a batch may still take. The first file is always taken, so that a stream never stands still."""

    def __init__(self, max_files: int | None = None, max_bytes: int | None = None) -> None:
        self._files = max_files
        self._bytes = max_bytes
        self._taken = False

    def admits(self, file: DataFile) -> bool:
        """Whether the file fits; it is counted when it does."""
        if self._taken and (
            (self._files is not None and self._files <= 0) or (self._bytes is not None and self._bytes < file.size)
        ):
            return False
        self._taken = True
        self._files = None if self._files is None else self._files - 1
        self._bytes = None if self._bytes is None else self._bytes - file.size
        return True


Snapshot = Callable[[int], Sequence[DataFile]]
"""The files of the table at a version, always in the same order."""

Versions = Callable[[int, int], Iterable[VersionFiles]]
"""What each version of a range brings, both ends inclusive; read only as far as it is consumed."""


def resolved(start: Offset, head: int) -> Offset:
    """A start that names no version yet, at the version that is the newest now."""
    if start.start == "latest":
        return Offset(version=head, table=start.table)
    if start.start == "snapshot":
        return Offset(version=head, table=start.table, index=0, snapshot=True)
    return start


def batch_end(start: Offset, head: int, limit: Limit, snapshot: Snapshot, versions: Versions) -> Offset:
    """Where a batch from `start` ends: as far as the limit allows, at most at version `head`."""
    here = resolved(start, head)
    if here.snapshot:
        done = here.index or 0
        files = snapshot(here.version)
        while done < len(files) and limit.admits(files[done]):
            done += 1
        here = msgspec.structs.replace(here, index=done)
        if done < len(files):
            return here
    for found in versions(_next_version(here), head):
        first = _first_index(here, found.version)
        for index in range(first, len(found.files)):
            if not limit.admits(found.files[index]):
                return here if index == 0 else Offset(version=found.version, table=here.table, index=index)
        here = Offset(version=found.version, table=here.table)
    return here


def files_between(start: Offset, end: Offset, snapshot: Snapshot, versions: Versions) -> list[DataFile]:
    """The files of the batch from `start` to `end`; the same ones whenever it is asked."""
    if end.start is not None or start.start == "latest":
        return []
    here = resolved(start, end.version)
    files: list[DataFile] = []
    if here.snapshot:
        files.extend(snapshot(here.version)[here.index or 0 : end.index if end.snapshot else None])
        if end.snapshot:
            return files
    for found in versions(_next_version(here), end.version):
        last = end.index if found.version == end.version else None
        files.extend(found.files[_first_index(here, found.version) : last])
    return files


def _next_version(here: Offset) -> int:
    """The first version that still has something to read."""
    return here.version if here.index is not None and not here.snapshot else here.version + 1


def _first_index(here: Offset, version: int) -> int:
    return here.index or 0 if version == here.version and not here.snapshot else 0
