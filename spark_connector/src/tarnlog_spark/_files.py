"""Which files a read takes, and how they are shared out to tasks."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tarnlog.protocol.actions import Add, Remove
from tarnlog_spark._options import MIB, Splits

OPEN_COST = 4 * MIB
"""Opening a file counts as reading so much, as Spark's own file sources have it."""


class DataFile(Struct, frozen=True, kw_only=True):
    """A file to read. In a change feed it also says what happened to its rows, in which version, and when."""

    path: str
    size: int
    partition_values: dict[str, str | None] = {}
    change: str | None = None
    version: int | None = None
    timestamp: int | None = None


def added(file: Add, *, version: int | None = None, timestamp: int | None = None) -> DataFile:
    """A file of a snapshot, or one that a version added."""
    return DataFile(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        change="insert",
        version=version,
        timestamp=timestamp,
    )


def removed(file: Remove, *, version: int, timestamp: int) -> DataFile:
    """A file that a version removed; its rows can be read for as long as vacuum keeps it."""
    return DataFile(
        path=file.path,
        size=file.size or 0,
        partition_values=file.partition_values or {},
        change="delete",
        version=version,
        timestamp=timestamp,
    )


def shared_out(files: Iterable[DataFile], splits: Splits) -> list[tuple[DataFile, ...]]:
    """The files in groups of about equal size, the largest first. Costs n log n."""
    wanted = sorted(files, key=lambda file: (-file.size, file.path))
    groups = dealt([file.size for file in wanted], splits)
    return [tuple(wanted[place] for place in group) for group in groups]


def dealt(sizes: Sequence[int], splits: Splits) -> list[list[int]]:
    """Files by their places in a list of sizes, the largest first, each to the group that has least so far.

    As many groups as cores for little data, then one for each `max_bytes`.
    """
    if not sizes:
        return []
    total = sum(sizes) + len(sizes) * OPEN_COST
    cores = splits.parallelism or os.cpu_count() or 1
    count = min(len(sizes), max(math.ceil(total / splits.max_bytes), min(cores, math.ceil(total / OPEN_COST))))
    groups: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for place, size in enumerate(sizes):
        load, index = loads[0]
        groups[index].append(place)
        heapq.heapreplace(loads, (load + size + OPEN_COST, index))
    return groups
