"""The Z-order curve of a partition: where a row lies on it, and which task writes it. Knows nothing of Spark.

A sample of the rows is halved by one column after the other, in turn, each half by itself, until a part fills a file.
So every file is a box that no other file reaches into, however values are distributed, and boxes in order lie along a
curve on which neighbours are near in every column. Files are halved on for a while, for the order inside of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

MOST_COLUMNS = 4
"""With more, each file would be narrow in none of them."""

PLACE_BITS = 32
_FINE = 4
_FEW = 8

Row = tuple[Any, ...]
"""The values of a row in the columns of the order, as numbers or text that compare alike. Null is first, NaN last."""

Node = tuple[int, Any, Any, Any] | list[int]
"""Column, value, what is below it, what is not; or the places of a part. It has several when no column tells apart the
rows of several files."""


def grown(sample: Sequence[Row], columns: int, files: int, first_task: int = 0) -> Node:
    """The curve of a partition that fills so many files, which tasks from the first on write. Costs n log n a level."""
    return _Growth(columns, first_task).grow(list(sample), files, 0, _FINE)


def places(curve: Node, rows: Iterable[Row], first_tie: int = 0) -> list[int]:
    """Each row's task and place in one number, the task in front. Costs some comparisons a row.

    Rows of a part with several places are shared out by their number in their file: a task that runs again sends each
    row to where it went before.
    """
    told = []
    for tie, row in enumerate(rows, first_tie):
        node = curve
        while isinstance(node, tuple):
            value = row[node[0]]
            node = node[2] if value is None or value < node[1] else node[3]
        told.append(node[tie % len(node)])
    return told


def shared_tasks(sizes: Sequence[float]) -> tuple[list[tuple[int, int]], int]:
    """The first task and the number of files of each partition, by how many files it fills; and how many tasks there
    are. Small partitions share a task, and none is cut in two because of others."""
    told, tasks, room, shared = list[tuple[int, int]](), 0, 0.0, 0
    for size in sizes:
        if size >= 0.5:
            files = max(1, round(size))
            told.append((tasks, files))
            tasks += files
            continue
        if size > room or not room:
            shared, room = tasks, 1.0
            tasks += 1
        room -= size
        told.append((shared, 1))
    return told, tasks


class _Growth:
    """Halves rows into parts, and numbers them."""

    def __init__(self, columns: int, first_task: int) -> None:
        self._columns = columns
        self._task = first_task
        self._place = 0

    def grow(self, rows: list[Row], files: int, level: int, fine: int) -> Node:
        """`fine` is how often a part that is one file is still halved."""
        found = None
        if len(rows) >= _FEW and (files > 1 or fine):
            turns = ((level + turn) % self._columns for turn in range(self._columns))
            found = next((cut for cut in (_cut(rows, column, files) for column in turns) if cut is not None), None)
        if found is None:
            return [self._new_place(ends_task=fine == _FINE) for _ in range(files)]
        column, value = found
        below = [row for row in rows if _is_below(row[column], value)]
        above = [row for row in rows if not _is_below(row[column], value)]
        if files == 1:
            parts = (self.grow(half, 1, level + 1, fine - 1) for half in (below, above))
            node = (column, value, *parts)
            self._task += fine == _FINE
            return node
        left = min(files - 1, max(1, round(files * len(below) / len(rows))))
        return (column, value, self.grow(below, left, level + 1, fine), self.grow(above, files - left, level + 1, fine))

    def _new_place(self, *, ends_task: bool) -> int:
        place = self._task << PLACE_BITS | self._place
        self._place += 1
        self._task += ends_task
        return place


def _cut(rows: Sequence[Row], column: int, files: int) -> tuple[int, Any] | None:
    """The column and the value that best part the rows for so many files; None where they are all alike in it."""
    known = sorted(row[column] for row in rows if row[column] is not None and row[column] == row[column])
    if not known:
        return None
    nulls = sum(row[column] is None for row in rows)
    share = (files // 2) / files if files > 1 else 0.5
    place = min(len(known) - 1, max(0, int(len(rows) * share) - nulls))
    if known[place] == known[0] and not nulls:  # nothing would be below it
        place = bisect_right(known, known[0])
    return (column, known[place]) if place < len(known) else None


def _is_below(value: Any, bound: Any) -> bool:
    return value is None or bool(value < bound)
