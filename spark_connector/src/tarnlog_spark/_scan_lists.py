"""The files of one scan as columns: what a manifest or a task needs of them, and no more.

A hundred thousand files stay columns from the service's answer into the tasks: as objects they would take longer to
make and to send than the plan took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tarnlog.arrow_files import partition_columns
from tarnlog.protocol.actions import Add
from tarnlog_spark._files import dealt
from tarnlog_spark._options import Splits
from tarnlog_spark._writing import STORED

_TAG, _VALUE = next(iter(STORED.items()))
_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
    ]
)

SCANNED = (*_COLUMNS.names, "tags")
"""The fields of a plan that `list_of_plan` needs."""


class ScanList(Struct, frozen=True):
    """Paths as the log writes them, sizes, times; `stored` says that every file holds its partition columns."""

    files: pa.Table
    stored: bool
    partition_columns: tuple[str, ...] = ()

    def shares(self, splits: Splits) -> Shares:
        """The files in groups of about equal size, as tasks of the connector take them. Costs n log n."""
        largest = [("size", "descending"), ("path", "ascending")]
        files = self.files.select(["path", "size", "partitionValues"]).sort_by(largest)
        groups = dealt(files.column("size").to_pylist(), splits)
        ends, taken = [0], []
        for group in groups:
            taken += group
            ends.append(len(taken))
        dealt_out = files.select(["path", "partitionValues"]).take(pa.array(taken, pa.int64()))
        return Shares(dealt_out.combine_chunks(), ends, self.partition_columns)


class Shares(Struct, frozen=True):
    """Files by task. Picklable, and quickly: every task gets the whole."""

    files: pa.Table
    ends: list[int]
    partition_columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def of(self, number: int) -> Iterator[tuple[str, dict[str, str | None]]]:
        """The files of a task: path and partition values."""
        absent: dict[str, str | None] = dict.fromkeys(self.partition_columns)
        mine = self.files.slice(self.ends[number], self.ends[number + 1] - self.ends[number])
        for path, pairs in zip(*(column.to_pylist() for column in mine.columns), strict=True):
            yield path, absent | dict(pairs or ())


def list_of_adds(files: Sequence[Add]) -> ScanList:
    """Files that are known as actions."""
    columns = [
        [file.path for file in files],
        [file.size for file in files],
        [file.modification_time for file in files],
        [list(file.partition_values.items()) for file in files],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _COLUMNS, strict=True)]
    stored = all((file.tags or {}).get(_TAG) == _VALUE for file in files)
    return ScanList(pa.Table.from_arrays(arrays, schema=_COLUMNS), stored)


def list_of_plan(listing: pa.Table) -> ScanList:
    """Files that came as a plan; costs nothing for each of them."""
    return ScanList(
        listing.select(_COLUMNS.names).cast(_COLUMNS), _all_stored(listing), partition_columns(listing.schema)
    )


def _all_stored(listing: pa.Table) -> bool:
    if "tags" not in listing.schema.names:
        return bool(listing.num_rows == 0)
    return all(_only_stored(chunk) or _looked_up(chunk) for chunk in listing.column("tags").chunks)


def _only_stored(tags: Any) -> bool:
    """Whether the tag is all that each file has, as in tables that Spark alone writes: found without a look into each
    map."""
    lists = tags.cast(pa.list_(tags.type.field(0)))
    if lists.null_count or pc.all(pc.equal(pc.list_value_length(lists), 1)).as_py() is not True:
        return False
    keys, values = (pc.struct_field(lists.flatten(), place) for place in (0, 1))
    return pc.all(pc.and_(pc.equal(keys, _TAG), pc.fill_null(pc.equal(values, _VALUE), False))).as_py() is True


def _looked_up(tags: Any) -> bool:
    found = pc.map_lookup(tags, pa.scalar(_TAG, tags.type.key_type), "first")
    # Of no files at all it is null.
    return pc.all(pc.fill_null(pc.equal(found, _VALUE), False)).as_py() is not False
