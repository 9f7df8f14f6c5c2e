"""Which files of a snapshot a filter may select, why, and those files as actions.

Rows are numbers in the listing order of a `FileLog`: `Snapshot.rows` lists the same ones, and a cursor that names a
row's version and path leads back to it. Nothing here depends on when it is asked: a snapshot never changes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.predicates import Predicate
from tarnlog_server.codec.file_columns import FileColumns, as_array
from tarnlog_server.codec.segment_filter import SegmentFilter
from tarnlog_server.core.file_filter import Decider, FileFilter, Leaf, by_partitions, partition_value, proof
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.match import file_filter
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schema_dedup import listed
from tarnlog_server.core.schemas import schema_of

BLOCK = 8192


class Pruned(Struct, frozen=True):
    """What a filter leaves, and how many files each step left."""

    rows: Sequence[int]
    """The live rows that may hold a match, ascending."""
    files_total: int
    after_partitions: int
    after_skipping: int


class Deciding(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A comparison that decided about a file, and what it saw there."""

    pointer: str
    """Where the comparison stands in the filter (RFC 6901)."""
    column: str
    by: str
    """`partition`, `bounds`, `never` (no row can satisfy it), or `nothing` (the log does not tell)."""
    value: str | None = None
    """The partition value."""
    least: str | None = None
    greatest: str | None = None


class Explained(Struct, frozen=True, rename="camel"):
    """Why a file is kept (all of `because` allow it) or dropped (all of them together exclude it)."""

    row: int
    path: str
    kept: bool
    because: tuple[Deciding, ...]


def filter_of(snapshot: Snapshot, predicate: Predicate) -> FileFilter:
    """A filter, typed by the snapshot's schema. Raises PredicateError."""
    metadata = snapshot.metadata
    schema = schema_of(metadata.schema_string if metadata is not None else "")
    columns = metadata.partition_columns if metadata is not None else ()
    return file_filter(predicate, schema, columns, snapshot.truncation)


def prune(snapshot: Snapshot, predicate: Predicate | None) -> Pruned:
    """The rows that may hold a match of a filter, or all. Raises PredicateError.

    Packed rows cost those that the filter selects; the first filter on a column also a pass over the table. Files that
    were committed since the table was opened are looked at one by one.
    """
    total = snapshot.num_files
    if predicate is None:
        return Pruned(_all(snapshot), total, total, total)
    tree = filter_of(snapshot, predicate)
    partitions = by_partitions(tree)
    decided = partitions == tree
    rows, after_partitions = _packed(snapshot, tree, partitions)
    kept: dict[tuple[tuple[str, str | None], ...], bool] = {}
    """Of each partition, whether its files stay: there are many files of few partitions."""
    for row, add in snapshot.rows(snapshot.files.base):
        if partitions is not None:
            partition = tuple(add.partition_values.items())
            stays = kept.get(partition)
            if stays is None:
                stays = kept[partition] = partitions(add.partition_values, None, None)
            if not stays:
                continue
        after_partitions += 1
        if decided or tree(add.partition_values, add.min_values, add.max_values):
            rows.append(row)
    return Pruned(rows, total, after_partitions, len(rows))


def _all(snapshot: Snapshot) -> Sequence[int]:
    gone = snapshot.files.gone(snapshot.version)
    if not gone:
        return range(snapshot.length)
    rows = array("I")
    for before, after in pairwise([-1, *(row for row in gone if row < snapshot.length), snapshot.length]):
        rows.extend(range(before + 1, after))
    return rows


def live_rows(snapshot: Snapshot, start: int, limit: int) -> Sequence[int]:
    """The first live rows from one on, at most `limit`. Costs those, and the removed ones in between."""
    gone = snapshot.files.gone(snapshot.version)
    at = bisect_left(gone, start)
    rows = array("q")
    while start < snapshot.length and len(rows) < limit:
        end = min(gone[at], snapshot.length) if at < len(gone) else snapshot.length
        rows.extend(range(start, min(end, start + limit - len(rows))))
        start, at = end + 1, at + 1
    return rows


def _packed(snapshot: Snapshot, tree: FileFilter, partitions: FileFilter | None) -> tuple[array[int], int]:
    """The rows of the segment that a filter selects, and how many its partitions leave.

    The segment may hold files that came after the snapshot: files are packed while older snapshots stay at hand.
    """
    files, segment = snapshot.files, snapshot.files.segment
    if not isinstance(segment, FileColumns) or not len(segment):
        return array("I"), 0
    asked = SegmentFilter(segment)
    end = min(files.base, snapshot.length)
    gone = _below(pa.array(files.gone(snapshot.version), pa.uint32()), end)
    by_partition = None if partitions is None else asked.select(partitions)
    if by_partition is not None:
        by_partition = _without(_below(by_partition, end), gone, files, snapshot.version)
    left = end - len(gone) if by_partition is None else len(by_partition)
    found = by_partition if partitions == tree else asked.select(tree, by_partition)
    if found is None:
        return array("I", _all(snapshot)[:left]), left
    if by_partition is None:
        found = _without(_below(found, end), gone, files, snapshot.version)
    return as_array("I", found), left


def _below(rows: pa.Array, end: int) -> pa.Array:
    """Of ascending rows those before one. Costs a search."""
    if not len(rows) or rows[-1].as_py() < end:
        return rows
    return rows.slice(0, bisect_left(range(len(rows)), end, key=lambda place: rows[place].as_py()))


def _without(rows: pa.Array, gone: pa.Array, files: FileLog, version: int) -> pa.Array:
    """The rows that are live; costs the smaller of both."""
    if not len(gone) or not len(rows):
        return rows
    if len(rows) < len(gone):
        return pa.array([row for row in rows.to_pylist() if not files.is_gone(row, version)], pa.uint32())
    return rows.filter(pc.invert(pc.is_in(rows, value_set=gone)))


def explain(
    snapshot: Snapshot, predicate: Predicate | None, start: int = 0, limit: int | None = None
) -> Iterator[Explained]:
    """Why each live file from row `start` on is kept or dropped, at most `limit` of them. Costs those files.

    Raises PredicateError, when it is iterated.
    """
    tree = None if predicate is None else filter_of(snapshot, predicate)
    for row, add in islice(snapshot.rows(start), limit):
        if tree is None:
            yield Explained(row, add.path, True, ())
            continue
        kept, deciding = proof(tree, add.partition_values, add.min_values, add.max_values)
        yield Explained(row, add.path, kept, tuple(_deciding(leaf, add) for leaf in deciding))


def adds(snapshot: Snapshot, rows: Sequence[int]) -> Iterator[Add]:
    """The files of some rows, as a listing shows them: see `listed`."""
    registry = snapshot.metadata.configuration if snapshot.metadata is not None else {}
    for add in _made(snapshot.files, rows):
        yield listed(add, registry)


def _made(files: FileLog, rows: Sequence[int]) -> Iterator[Add]:
    """Packed files are made in blocks, which is several times cheaper than one by one."""
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        packed: Iterator[Add] = iter(())
        if isinstance(files.segment, FileColumns):
            packed = iter(files.segment.block([row for row in block if row < files.base]))
        for row in block:
            made = next(packed, None) if row < files.base else None
            yield files.file(row) if made is None else made


def rows_at(snapshot: Snapshot, paths: Iterable[str]) -> set[int]:
    """The live rows of some paths, such as those that wait for a cooldown. Costs a search for each, plus a pass over
    the files that were committed since the table was opened."""
    wanted = {path_key(path) for path in paths}
    files = snapshot.files
    found = {
        row
        for key in wanted
        if files.segment is not None and (row := files.segment.find(key)) is not None and row < snapshot.length
    }
    if wanted:
        recent = ((row, files.file(row).path) for row in range(files.base, snapshot.length))
        found.update(row for row, path in recent if path_key(path) in wanted)
    return {row for row in found if not files.is_gone(row, snapshot.version)}


def _deciding(leaf: Leaf, add: Add) -> Deciding:
    least = greatest = value = None
    if leaf.decider is Decider.PARTITION:
        value = partition_value(add.partition_values, leaf.column)
    elif leaf.decider is Decider.BOUNDS:
        least, greatest = (add.min_values or {}).get(leaf.column), (add.max_values or {}).get(leaf.column)
    return Deciding(leaf.pointer, leaf.column, leaf.decider.value, value, least, greatest)
