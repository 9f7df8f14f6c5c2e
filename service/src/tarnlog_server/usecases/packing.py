"""Files that came with commits, packed beside those that came with a state: a tenth of the memory of as many actions.

Made of an immutable snapshot, in slices that let commits through; only the exchange happens on the event loop. Packing
waits until a good part of the table is unpacked, so that every file is packed a few times at most; a table of few files
also until it is quiet, because many small tables together are as much memory as a large one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tarnlog_server.codec.entry_batch import entry_batch
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases.live_table import LiveTable

WORTH_IT = 20_000
"""Recent files below which packing saves too little while a table is written to."""
FEWEST = 50
"""The same for a table that is quiet. The columns of a packed table take about 20 KB, however few files it has."""
PART = 20
"""Packing is due when recent files are this part of the packed ones."""
SLICE = 500


class Unpackable(ValueError):
    """Some file has text that no column can hold, or the rows are in an order of their own: they stay as they are."""


def is_due(files: FileLog, *, quiet: bool = False) -> bool:
    """Whether packing is worth its cost."""
    recent = len(files) - files.base
    return recent >= (FEWEST if quiet else WORTH_IT) and recent * PART >= files.base


async def pack(live: LiveTable) -> int:
    """Pack the recent files of a table; how many there were. Raises Unpackable."""
    tracker = live.tracker
    snapshot = tracker.head
    rows = _recent(snapshot)
    pace = live.pace()
    parts: list[PackedEntries] = []
    for start in range(0, len(rows), SLICE):
        chosen = rows[start : start + SLICE]
        parts.append(await pace.run(lambda chosen=chosen: _packed(snapshot.files, chosen)))  # type: ignore[misc]
    segment = await pace.run(lambda: _segment(snapshot, parts))
    if live.opened and live.tracker is tracker:
        tracker.reseat(snapshot, segment)
    return len(rows)


def forget_window(live: LiveTable) -> None:
    """Let go of the versions that the newest state covers: they hold every action of theirs besides the packed files.

    For a quiet table. A commit that was planned on an older version reads those versions again.
    """
    if live.opened and live.base is not None and live.base.ours:
        live.tracker.forget_steps(live.base.ref.version)


def _recent(snapshot: Snapshot) -> list[int]:
    files = snapshot.files
    if files.segment is not None and not isinstance(files.segment, FileColumns):
        raise Unpackable(f"files of a {type(files.segment).__name__} cannot be packed again")
    if 0 < files.base < snapshot.length and files.added_at(files.base - 1) > files.added_at(files.base):
        raise Unpackable("files of a state name versions that are newer than the state")
    return [row for row in range(files.base, snapshot.length) if not files.is_gone(row, snapshot.version)]


def _packed(files: FileLog, rows: Sequence[int]) -> PackedEntries:
    entries = [StateFile(files.file(row), files.added_at(row), files.added_time(row)) for row in rows]
    try:
        return PackedEntries([entry_batch(entries)])
    except (UnicodeEncodeError, pa.ArrowException) as error:
        raise Unpackable(str(error)) from error


def _segment(snapshot: Snapshot, recent: list[PackedEntries]) -> FileColumns:
    files = snapshot.files
    columns = snapshot.metadata.partition_columns if snapshot.metadata is not None else ()
    parts = PackedEntries.merged(recent, use_up=True)
    if isinstance(files.segment, FileColumns):
        dead = [row for row in files.gone(snapshot.version) if row < files.base]
        parts = [*files.segment.kept(dead), *parts]
    found = FileColumns(PackedEntries.merged(parts), columns)
    pa.default_memory_pool().release_unused()
    return found
