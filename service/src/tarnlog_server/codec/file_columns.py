"""The live files of a state, kept as Arrow columns: a tenth of the memory of as many actions, and opened in a moment.

Manifests are decoded into record batches by whoever can do that fast; here they become one immutable segment of a
`FileLog`. Nothing is made of a row until somebody asks for it. A path is found by the hash of its key: hashes are
sorted, eight bytes each, and a hit is verified. Rows are in the order of the versions that added them, then of paths,
whatever manifests they came from. What an entry means is decided in `file_entry` alone.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec import file_entry
from tarnlog_server.codec.packed_entries import MOST_ROWS, PackedEntries, UnexpectedColumns, checked_entries
from tarnlog_server.codec.segment_indices import SegmentIndices
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.wanted_entries import Wanted, partition_texts

__all__ = ["FileColumns", "UnexpectedColumns", "as_array", "as_arrow", "checked_entries", "of_partitions"]
FIRST_BLOCK, LARGEST_BLOCK = 256, 8192
"""Rows that are made at once: few at first, because most listings end early, then more, because that is cheaper."""
_SLICE = 65_536
"""Rows of which Python values are made at once: a million paths would be a hundred megabytes."""
_UNUSUAL_PATH = r"%|//|\./|/\.$"
"""Only such paths can differ from their keys."""


def of_partitions(
    batch: pa.RecordBatch, columns: Sequence[str], keep: Callable[[tuple[str | None, ...]], bool]
) -> pa.RecordBatch:
    """The rows whose partition values are wanted; `keep` is asked once for each combination of values.

    One that also asks of bounds gets what is left.
    """
    if not batch.num_rows:
        return batch
    if isinstance(keep, Wanted):
        return keep.in_range(_of_values(batch, columns, keep) if keep.by_partitions else batch)
    return _of_values(batch, columns, keep)


def _of_values(
    batch: pa.RecordBatch, columns: Sequence[str], keep: Callable[[tuple[str | None, ...]], bool]
) -> pa.RecordBatch:
    if not columns:
        return batch if keep(()) else batch.slice(0, 0)
    values = [partition_texts(batch.column("partitionValues"), name).dictionary_encode("encode") for name in columns]
    texts = [one.dictionary.to_pylist() for one in values]
    codes = values[0].indices.cast(pa.int64())
    for one, known in zip(values[1:], texts[1:], strict=True):
        codes = pc.add(pc.multiply(codes, len(known)), one.indices.cast(pa.int64()))
    wanted = [code for code in codes.unique().to_pylist() if keep(_texts_of(code, texts))]
    return batch.filter(pc.is_in(codes, value_set=pa.array(wanted, pa.int64()))) if wanted else batch.slice(0, 0)


def _texts_of(code: int, texts: Sequence[Sequence[str | None]]) -> tuple[str | None, ...]:
    """The partition values that a code of all columns together stands for."""
    found: list[str | None] = []
    for known in reversed(texts):
        code, at = divmod(code, len(known))
        found.append(known[at])
    return tuple(reversed(found))


class FileColumns:
    """A segment of files (see `core.file_log.Segment`), and an iterable of them as a state stores them."""

    def __init__(
        self, batches: Sequence[pa.RecordBatch | PackedEntries], partition_columns: Sequence[str] = ()
    ) -> None:
        """Files no path of which occurs twice. Use `live` for what manifests hold."""
        self.chunks = [chunk for chunk in _packed(batches) if len(chunk)]
        """What each manifest holds."""
        self._starts = [0, *accumulate(len(chunk) for chunk in self.chunks)]
        self._partition_columns = tuple(partition_columns)
        self.indices = SegmentIndices()
        order = self._order()
        self._place = as_array("I", order)
        """Where the row of each index lies among all chunks."""
        self._added_at = as_array("q", self._joined("versions").take(order))
        self._added_time = as_array("q", self._joined("times").take(order))
        hashes = array("q")
        for chunk in self.chunks:
            for some in _hashes(chunk):
                hashes.fromlist(some)
        in_order = as_arrow(hashes).take(order)
        by_hash = pc.sort_indices(in_order)
        self._row_by_hash = as_array("I", by_hash.cast(pa.uint32()))
        self._hashes = as_array("q", in_order.take(by_hash))
        own = (self._place, self._added_at, self._added_time, self._row_by_hash, self._hashes)
        self._nbytes = sum(chunk.nbytes for chunk in self.chunks) + sum(map(_size, own))

    @classmethod
    def live(
        cls,
        batches: Sequence[pa.RecordBatch | PackedEntries],
        hidden_below: Mapping[str, int | None],
        partition_columns: Sequence[str] = (),
    ) -> FileColumns:
        """The entries that no tombstone hides (None hides every age), each path once: the newest entry counts."""
        found = cls(batches, partition_columns)
        dead = found._hidden(hidden_below) | found._repeated()
        return found.without(dead) if dead else found

    def __len__(self) -> int:
        return len(self._place)

    def __iter__(self) -> Iterator[StateFile]:
        for index, add in enumerate(self.rows(0)):
            yield StateFile(add, self._added_at[index], self._added_time[index])

    def find(self, key: str) -> int | None:
        """The row of a path, by its key. Costs a binary search, and reading the path where the hash is there."""
        return next(self._found(key), None)

    def row(self, index: int) -> Add:
        """One file."""
        chunk, place = self._locate(self._place[index])
        return self._files(chunk.sliced(place, 1), None)[0]

    def rows(self, start: int) -> Iterator[Add]:
        """All files from a row on."""
        size = FIRST_BLOCK
        while start < len(self):
            yield from self.block(range(start, min(start + size, len(self))))
            start += size
            size = min(2 * size, LARGEST_BLOCK)

    def chosen(self, rows: Sequence[int]) -> Iterator[StateFile]:
        """The files of some rows, in that order; made in blocks."""
        for start in range(0, len(rows), LARGEST_BLOCK):
            block = rows[start : start + LARGEST_BLOCK]
            for row, add in zip(block, self.block(block), strict=True):
                yield StateFile(add, self._added_at[row], self._added_time[row])

    def paths(self) -> Iterator[str]:
        """The paths of all files. Costs a list of them."""
        texts = [path for chunk in self.chunks for path in chunk.paths.to_pylist()]
        return map(texts.__getitem__, self._place)

    def added_at(self, index: int) -> int:
        """The version that added a row."""
        return self._added_at[index]

    def added_time(self, index: int) -> int:
        """The timestamp of that version."""
        return self._added_time[index]

    def first_of(self, version: int) -> int:
        """The first row that this version or a later one added."""
        return bisect_left(self._added_at, version)

    def without(self, dead: Collection[int]) -> FileColumns:
        """A segment of the other rows. Costs a copy of the batches that lose one."""
        return FileColumns(list(self.kept(dead)), self._partition_columns)

    def kept(self, dead: Collection[int]) -> Iterator[PackedEntries]:
        """The chunks without some rows."""
        gone = sorted(self._place[row] for row in dead)
        for chunk, (start, end) in zip(self.chunks, pairwise(self._starts), strict=True):
            lost = gone[bisect_left(gone, start) : bisect_left(gone, end)]
            if not lost:
                yield chunk
                continue
            mask = bytearray(b"\x01") * len(chunk)
            for place in lost:
                mask[place - start] = 0
            yield chunk.taken(pc.indices_nonzero(pa.array(mask, pa.uint8())))

    def totals(self) -> tuple[int, int, int]:
        """Bytes of all files, rows in those that tell, and how many do not tell."""
        size = counted = uncounted = 0
        for chunk in self.chunks:
            records = chunk.column("numRecords", pa.int64())
            size += _sum(chunk.column("size", pa.int64()))
            counted += _sum(records)
            uncounted += records.null_count
        return size, counted, uncounted

    def column(self, name: str) -> Iterator[list[Any]]:
        """The values of one column, some rows at a time, in the order of storage; see `stored_rows`."""
        for chunk in self.chunks:
            for part in chunk.slices(_SLICE):
                yield part.values(name)

    def paths_and_partitions(self) -> Iterator[tuple[pa.Array, list[dict[str, str]]]]:
        """The paths and partition values, some rows at a time, in the order of storage."""
        for chunk in self.chunks:
            for part in chunk.slices(_SLICE):
                yield part.paths, part.values("partitionValues")

    def stored_rows(self) -> array[int]:
        """The row of each stored entry, in the order of storage."""
        return as_array("Q", pc.sort_indices(as_arrow(self._place)))

    @property
    def nbytes(self) -> int:
        """The bytes it holds, indices included."""
        return self._nbytes + self.indices.nbytes

    def places(self, rows: pa.Array | None = None) -> pa.Array:
        """Where some rows lie among all chunks; all rows when None."""
        places = as_arrow(self._place)
        return places if rows is None else places.take(rows)

    def by_chunk(self, places: pa.Array) -> Iterator[tuple[PackedEntries, pa.Array]]:
        """Ascending places, split into the chunks that they lie in; each with the places within it."""
        numbers = as_array("I", places)
        at = 0
        for chunk, (start, end) in zip(self.chunks, pairwise(self._starts), strict=True):
            until = bisect_left(numbers, end, at)
            if until > at:
                yield chunk, pc.subtract(places.slice(at, until - at), pa.scalar(start, pa.uint32()))
            at = until

    def _order(self) -> pa.Array:
        """The places of all rows, in the order of rows."""
        if not self.chunks:
            return pa.array([], pa.uint32())
        paths = pa.chunked_array([chunk.paths for chunk in self.chunks])
        table = pa.table({"version": self._joined("versions"), "path": paths})
        return pc.sort_indices(table, sort_keys=[("version", "ascending"), ("path", "ascending")]).cast(pa.uint32())

    def _joined(self, name: str) -> pa.Array:
        return pa.concat_arrays([getattr(chunk, name) for chunk in self.chunks] or [pa.array([], pa.int64())])

    def _found(self, key: str) -> Iterator[int]:
        wanted = hash(key)
        at = bisect_left(self._hashes, wanted)
        while at < len(self._hashes) and self._hashes[at] == wanted:
            row = self._row_by_hash[at]
            chunk, place = self._locate(self._place[row])
            if path_key(chunk.paths[place].as_py()) == key:
                yield row
            at += 1

    def _hidden(self, below: Mapping[str, int | None]) -> set[int]:
        return {
            row
            for key, version in below.items()
            for row in self._found(key)
            if version is None or self._added_at[row] < version
        }

    def _repeated(self) -> set[int]:
        """All rows but the newest of each path that occurs more than once. Only another writer leaves such."""
        hashes = as_arrow(self._hashes)
        same = pc.indices_nonzero(pc.equal(hashes.slice(1), hashes.slice(0, max(0, len(hashes) - 1))))
        older: set[int] = set()
        for at in same.to_pylist():
            chunk, place = self._locate(self._place[self._row_by_hash[at]])
            rows = sorted(self._found(path_key(chunk.paths[place].as_py())))
            older.update(rows[:-1])
        return older

    def _locate(self, place: int) -> tuple[PackedEntries, int]:
        number = bisect_right(self._starts, place) - 1
        return self.chunks[number], place - self._starts[number]

    def block(self, rows: Sequence[int]) -> list[Add]:
        """The files of some rows, in that order, made in one go."""
        if len(self.chunks) == 1:
            return self._files(self.chunks[0], self.places(pa.array(rows, pa.uint32())))
        by_chunk: dict[int, list[tuple[int, int]]] = {}
        for at, row in enumerate(rows):
            place = self._place[row]
            number = bisect_right(self._starts, place) - 1
            by_chunk.setdefault(number, []).append((place - self._starts[number], at))
        found: list[Any] = [None] * len(rows)
        for number, wanted in by_chunk.items():
            places = pa.array([place for place, _ in wanted], pa.int64())
            for (_, at), add in zip(wanted, self._files(self.chunks[number], places), strict=True):
                found[at] = add
        return found

    def _files(self, chunk: PackedEntries, places: pa.Array | None) -> list[Add]:
        columns = self._partition_columns
        if chunk.is_plain(columns):
            # What our own manifests hold: all at once, twice as fast as one by one.
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert(list(chunk.records(places)), list[Add])
        return [file_entry.from_record(record, columns).add for record in chunk.records(places)]


def _packed(batches: Sequence[pa.RecordBatch | PackedEntries]) -> Iterator[PackedEntries]:
    """Batches together, up to what one chunk may hold; what is packed stays so."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        full = sum(one.num_rows for one in waiting) + len_of(batch) > MOST_ROWS
        if waiting and (full or isinstance(batch, PackedEntries)):
            yield PackedEntries(waiting)
            waiting = []
        if isinstance(batch, PackedEntries):
            yield batch
        else:
            waiting.append(batch)
    if waiting:
        yield PackedEntries(waiting)


def len_of(batch: pa.RecordBatch | PackedEntries) -> int:
    """How many files there are in it."""
    return len(batch) if isinstance(batch, PackedEntries) else int(batch.num_rows)


def _size(numbers: array[int]) -> int:
    return len(numbers) * numbers.itemsize


def _hashes(chunk: PackedEntries) -> Iterator[list[int]]:
    """The hash of each path's key, some at a time. Python's own: it differs between processes, and stays in this."""
    for part in chunk.slices(_SLICE):
        texts: Iterable[str] = part.paths.to_pylist()
        if pc.any(pc.match_substring_regex(part.paths, _UNUSUAL_PATH)).as_py():
            texts = map(path_key, texts)
        yield list(map(hash, texts))


def _sum(numbers: pa.Array) -> int:
    """The sum of 64-bit numbers, which may not fit into 64 bits."""
    return int(pc.sum(numbers.cast(pa.decimal128(38, 0))).as_py() or 0)


def as_array(kind: str, column: pa.Array) -> array[int]:
    """The numbers of a column without nulls, copied as bytes."""
    found = array(kind)
    size = found.itemsize
    data = column.buffers()[1]
    if data is not None:
        found.frombytes(memoryview(data)[column.offset * size : (column.offset + len(column)) * size])
    return found


def as_arrow(numbers: array[int]) -> pa.Array:
    """Numbers as a column, not copied."""
    kind = {"Q": pa.uint64(), "I": pa.uint32()}.get(numbers.typecode, pa.int64())
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
