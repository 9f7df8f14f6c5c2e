"""The files of one scan as columns: what a manifest or a task needs of them, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tarnlog.arrow_files import partition_columns
from tarnlog.protocol.actions import Add
from tarnlog_spark._files import DataFile
from tarnlog_spark._writing import STORED

_TAG, _VALUE = next(iter(STORED.items()))


class ScanList(Struct, frozen=True):
    """Paths as the log writes them, sizes, times; `stored` says that every file holds its partition columns."""

    paths: list[str]
    sizes: list[int]
    modified: list[int]
    stored: bool
    partition_values: Callable[[], list[dict[str, str | None]]]

    def data_files(self) -> Iterator[DataFile]:
        """The files as tasks of the connector take them."""
        for path, size, values in zip(self.paths, self.sizes, self.partition_values(), strict=True):
            yield DataFile(path=path, size=size, partition_values=values)


def list_of_adds(files: Sequence[Add]) -> ScanList:
    """Files that are known as actions."""
    return ScanList(
        paths=[file.path for file in files],
        sizes=[file.size for file in files],
        modified=[file.modification_time for file in files],
        stored=all((file.tags or {}).get(_TAG) == _VALUE for file in files),
        partition_values=lambda: [file.partition_values for file in files],
    )


def list_of_plan(listing: pa.Table) -> ScanList:
    """Files that came as a plan; costs three columns."""

    def values() -> list[dict[str, str | None]]:
        absent = dict.fromkeys(partition_columns(listing.schema))
        return [absent | dict(pairs or ()) for pairs in listing.column("partitionValues").to_pylist()]

    return ScanList(
        paths=listing.column("path").to_pylist(),
        sizes=listing.column("size").to_pylist(),
        modified=listing.column("modificationTime").to_pylist(),
        stored=_all_stored(listing),
        partition_values=values,
    )


def _all_stored(listing: pa.Table) -> bool:
    if "tags" not in listing.schema.names:
        return bool(listing.num_rows == 0)
    tags: Any = listing.column("tags")
    found = pc.map_lookup(tags, pa.scalar(_TAG, tags.type.key_type), "first")
    # Of no files at all it is null.
    return pc.all(pc.fill_null(pc.equal(found, _VALUE), False)).as_py() is not False
