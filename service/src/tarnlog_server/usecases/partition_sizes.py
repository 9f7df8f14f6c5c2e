"""How a table's files spread over the values of a partition column: for a picture of it.

It is a pass over all files, so it is made beside the event loop, one at a time, and kept: a picture that took a while
is not made anew before twenty times that while is over, however often it is looked at and however busy the table is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.partition_sizes import Sizes, add_size, packed_sizes
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases.open_tables import OpenTables

KEPT = 100
REST_FACTOR = 20
SHORTEST_REST = 1.0


class Share(Struct, frozen=True):
    """What lies at one value."""

    value: str | None
    files: int
    bytes: int


class PartitionsView(Struct, frozen=True):
    """The largest shares by bytes, and what all the others hold together, at a version."""

    column: str
    version: int
    shares: tuple[Share, ...]
    other_values: int
    other_files: int
    other_bytes: int


class _Kept(Struct, frozen=True):
    view: PartitionsView
    good_until: float


class PartitionSizes:
    """The verb of looking at partitions."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables
        self._kept: OrderedDict[tuple[str, str, int], _Kept] = OrderedDict()
        self._lock = asyncio.Lock()

    async def of(self, name: TableName, column: str | None, most: int) -> PartitionsView | None:
        """The `most` largest shares of a column, or of the first one; None for a table without partitions.

        ProblemError `request-invalid` when the table is not partitioned by that column.
        """
        table = await self._tables.get(name)
        head = table.live.head
        columns = head.metadata.partition_columns if head.metadata is not None else ()
        if column is not None and column not in columns:
            known = ", ".join(columns) or "none"
            raise ProblemError("request-invalid", f"{column[:200]!r} is no partition column of {name} (known: {known})")
        if not columns:
            return None
        key = (table.live.location, column or columns[0], most)
        async with self._lock:
            kept = self._kept.get(key)
            world = self._tables.world
            if kept is None or (kept.view.version != table.live.head.version and world.monotonic() >= kept.good_until):
                started = world.monotonic()
                view = await self._made(table.live.head, key[1], most)
                rest = max(SHORTEST_REST, REST_FACTOR * (world.monotonic() - started))
                kept = self._kept[key] = _Kept(view, world.monotonic() + rest)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
        return kept.view

    async def _made(self, snapshot: Snapshot, column: str, most: int) -> PartitionsView:
        # Removals are collected here: on the loop nobody adds any meanwhile.
        dead = snapshot.files.packed_gone(snapshot.version)
        return await self._tables.world.run_blocking(lambda: _view(snapshot, column, most, dead))


def _view(snapshot: Snapshot, column: str, most: int, dead: set[int]) -> PartitionsView:
    sizes = _sizes(snapshot, column, dead)
    ranked = sorted(sizes.items(), key=lambda item: (-item[1][1], -item[1][0], item[0] is None, item[0] or ""))
    others = ranked[most:]
    return PartitionsView(
        column=column,
        version=snapshot.version,
        shares=tuple(Share(value, files, size) for value, (files, size) in ranked[:most]),
        other_values=len(others),
        other_files=sum(files for _, (files, _) in others),
        other_bytes=sum(size for _, (_, size) in others),
    )


def _sizes(snapshot: Snapshot, column: str, dead: set[int]) -> Sizes:
    sizes: Sizes = {}
    start = 0
    segment = snapshot.files.segment
    if isinstance(segment, FileColumns) and snapshot.length >= len(segment):
        sizes = packed_sizes(segment, column, dead)
        start = len(segment)
    for _, add in snapshot.rows(start):
        add_size(sizes, add.partition_values.get(column), 1, add.size)
    return sizes
