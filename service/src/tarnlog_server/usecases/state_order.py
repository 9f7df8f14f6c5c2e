"""The files of a table in the order in which a state stores them, without making all of them at once.

Sorting a million files needs their partitions and paths only. Those are sorted as Arrow columns; what remains is a row
number for each file, and a file is made when it is written. So the memory of writing a state is that of one slice.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tarnlog.protocol.actions import MetaData
from tarnlog_server.codec.file_columns import FileColumns, as_array, as_arrow
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.compaction_plan import Rank, partition_rank
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.usecases.pace import Pace

SLICE = 4096
_DEAD = -1


class FilesInOrder(Protocol):
    """Files that can be had in pieces."""

    def __len__(self) -> int: ...

    def files(self, start: int, stop: int) -> Iterable[StateFile]:
        """The files of some places. Costs making them."""
        ...


class ListedFiles:
    """A few files that are there anyway."""

    def __init__(self, files: Iterable[StateFile], metadata: MetaData | None) -> None:
        rank = rank_of(metadata)
        self._files = sorted(files, key=lambda file: (rank(file.add.partition_values), file.add.path))

    def __len__(self) -> int:
        return len(self._files)

    def files(self, start: int, stop: int) -> Iterable[StateFile]:
        """The files of some places."""
        return self._files[start:stop]


class SnapshotFiles:
    """The live files of a snapshot, by partition and path. Holds eight bytes for each."""

    def __init__(self, snapshot: Snapshot, rows: array[int]) -> None:
        self._log = snapshot.files
        self._segment = snapshot.files.segment
        self._base = 0 if self._segment is None else len(self._segment)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[StateFile]:
        for start in range(0, len(self), SLICE):
            yield from self.files(start, start + SLICE)

    def files(self, start: int, stop: int) -> Iterator[StateFile]:
        """The files of some places."""
        log, rows = self._log, self._rows[start:stop]
        made: dict[int, StateFile] = {}
        if isinstance(self._segment, FileColumns):
            packed = [row for row in rows if row < self._base]
            made = dict(zip(packed, self._segment.chosen(packed), strict=True))
        for row in rows:
            yield made.get(row) or StateFile(log.file(row), log.added_at(row), log.added_time(row))


class RenamedFiles:
    """Files whose document mappings go by other names: those of `refs`, old to new."""

    def __init__(self, files: FilesInOrder, refs: Mapping[str, str]) -> None:
        self._files = files
        self._refs = refs

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[StateFile]:
        for start in range(0, len(self), SLICE):
            yield from self.files(start, start + SLICE)

    def files(self, start: int, stop: int) -> Iterator[StateFile]:
        """The files of some places."""
        for file in self._files.files(start, stop):
            new = self._refs.get(file.add.doc_mapping_ref or "")
            if new is None or file.add.doc_mapping_json is not None:
                yield file
            else:
                add = msgspec.structs.replace(file.add, doc_mapping_ref=new)
                yield StateFile(add, file.added_at_version, file.added_at_timestamp)


def rank_of(metadata: MetaData | None, *, by_partition: bool = True) -> Rank:
    """The order of a table's partitions; all are one where there are none, or where they do not count."""
    if metadata is None or not by_partition:
        return lambda _: ()
    return partition_rank(schema_of(metadata.schema_string), metadata.partition_columns)


async def in_order(snapshot: Snapshot, pace: Pace, *, by_partition: bool = True) -> SnapshotFiles:
    """The live files of a snapshot, sorted. Costs a pass over partitions and paths, in slices."""
    sorting = _Sorting(snapshot, rank_of(snapshot.metadata, by_partition=by_partition))
    steps = sorting.steps()
    while await pace.run(lambda: next(steps, False)):
        pass
    return SnapshotFiles(snapshot, await pace.run(sorting.result))


class _Sorting:
    """Collects the partition of every row as a number, and its path."""

    def __init__(self, snapshot: Snapshot, rank: Rank) -> None:
        self._snapshot = snapshot
        self._log = snapshot.files
        self._rank = rank
        self._numbers: dict[tuple[object, ...], int] = {}
        self._rows = array("Q")
        self._partitions = array("q")
        self._paths: list[pa.Array] = []

    def steps(self) -> Iterator[bool]:
        """Takes every row; a slice of the work is done when it yields."""
        segment, base = self._log.segment, 0
        if isinstance(segment, FileColumns):
            base = len(segment)
            start, rows = 0, segment.stored_rows()
            for paths, values in segment.paths_and_partitions():
                for first in range(0, len(paths), SLICE):
                    part = slice(first, first + SLICE)
                    self._take(paths[part], values[part], rows[start + first : start + min(first + SLICE, len(paths))])
                    yield True
                start += len(paths)
        elif segment is not None:
            raise TypeError(f"files of a {type(segment).__name__} cannot be sorted")
        for start in range(base, self._snapshot.length, SLICE):
            numbers = range(start, min(start + SLICE, self._snapshot.length))
            adds = [self._log.file(row) for row in numbers]
            self._take(
                pa.array([add.path for add in adds], pa.string()),
                [add.partition_values for add in adds],
                array("Q", numbers),
            )
            yield True

    def _take(self, paths: pa.Array, values: Iterable[Mapping[str, str | None]], rows: array[int]) -> None:
        version = self._snapshot.version
        for row, value in zip(rows, values, strict=True):
            if self._log.is_gone(row, version):
                self._partitions.append(_DEAD)
                continue
            self._partitions.append(self._numbers.setdefault(self._rank(value), len(self._numbers)))
        self._rows.extend(rows)
        self._paths.append(paths)

    def result(self) -> array[int]:
        """The rows in order."""
        if not self._paths:
            return array("Q")
        # Arrow does the rest: it lets other threads run, which a loop over all rows in C does not.
        places = pa.array([number for _, number in sorted(self._numbers.items())], pa.uint64())
        place_of = pc.sort_indices(places)
        numbers = as_arrow(self._partitions)
        alive = pc.indices_nonzero(pc.not_equal(numbers, _DEAD))
        paths = pa.chunked_array(self._paths)
        if len(alive) < len(numbers):
            paths = paths.take(alive)
        table = pa.table({"partition": place_of.take(numbers.take(alive)), "path": paths})
        order = pc.sort_indices(table, sort_keys=[("partition", "ascending"), ("path", "ascending")])
        return as_array("Q", as_arrow(self._rows).take(alive.take(order)))
