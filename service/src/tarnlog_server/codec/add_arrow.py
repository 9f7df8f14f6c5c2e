"""Files of a snapshot as one Arrow stream: the columns of an `add`, named as in the log.

One schema for each stream: fields that no file of it has are left out, which reads the same as null. Maps are maps of
texts; a partition column that the map of a file does not mention is null there (the schema's metadata names the
partition columns). Unknown fields of an action travel as a JSON object in `extra`, mappings that lie in the table's
configuration are inline and go by one name, and `dataChange` is false, all as in listings. `tarnlog.arrow_files` makes
actions of it again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.codec.entry_batch import column_of
from tarnlog_server.codec.file_columns import FileColumns, as_arrow
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.scan_rows import adds
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schema_dedup import canonical_ref, lookup

BATCH_ROWS = 65_536
"""About ten megabytes: a stream holds a few of them at a time."""
_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
_SHARED_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Few texts for many files."""
FIELDS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _TEXTS,
    "minValues": _TEXTS,
    "maxValues": _TEXTS,
    "numRecords": pa.int64(),
    "footerStartOffset": pa.int64(),
    "footerEndOffset": pa.int64(),
    "hotcacheStartOffset": pa.int64(),
    "hotcacheLength": pa.int64(),
    "hasFooterOffsets": pa.bool_(),
    "timeRangeStart": pa.string(),
    "timeRangeEnd": pa.string(),
    "splitTags": _LIST,
    "deleteOpstamp": pa.int64(),
    "numMergeOps": pa.int32(),
    "docMappingJson": _SHARED_TEXT,
    "docMappingRef": _SHARED_TEXT,
    "uncompressedSizeBytes": pa.int64(),
    "companionSourceFiles": _LIST,
    "companionDeltaVersion": pa.int64(),
    "companionFastFieldMode": pa.string(),
    "extra": pa.string(),
}
"""Every field of an `add` in the order of the stream, and `extra`."""
_ALWAYS = ("path", "partitionValues", "size", "modificationTime", "dataChange")


def arrow_schema(snapshot: Snapshot, rows: Sequence[int], fields: Collection[str] | None = None) -> pa.Schema:
    """The schema of a stream of some rows; its metadata says which columns partition the table.

    With `fields` it has no others but `path`. Costs a look at the files that were committed since the table was opened.
    """
    files = snapshot.files
    present = set(_ALWAYS)
    first_recent = bisect_left(rows, files.base)
    if isinstance(files.segment, FileColumns) and first_recent:
        present.update(name for chunk in files.segment.chunks for name in chunk.names)
    if "docMappingRef" in present:
        present.add("docMappingJson")
    for add in adds(snapshot, rows[first_recent:]):
        present.update(_record(add))
    if fields is not None:
        present &= {"path", *fields}
    columns = snapshot.metadata.partition_columns if snapshot.metadata is not None else ()
    metadata = {"partitionColumns": msgspec.json.encode(columns)}
    return pa.schema([(name, kind) for name, kind in FIELDS.items() if name in present], metadata)


def arrow_batches(snapshot: Snapshot, rows: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The files of some ascending rows, at most `BATCH_ROWS` a batch. `schema` is that of `arrow_schema`.

    Packed files come as they are stored, without an action made of any, so they are in no particular order.
    """
    files = snapshot.files
    first_recent = bisect_left(rows, files.base)
    if isinstance(files.segment, FileColumns) and first_recent:
        registry = snapshot.metadata.configuration if snapshot.metadata is not None else {}
        waiting: list[pa.RecordBatch] = []
        for piece in _pieces(files.segment, rows[:first_recent]):
            if sum(batch.num_rows for batch in waiting) + len(piece) > BATCH_ROWS:
                yield _together(waiting)
                waiting = []
            waiting.append(_of_piece(piece, schema, registry))
        yield _together(waiting)
    for start in range(first_recent, len(rows), BATCH_ROWS):
        yield _of_adds(list(adds(snapshot, rows[start : start + BATCH_ROWS])), schema)


def _pieces(segment: FileColumns, rows: Sequence[int]) -> Iterator[PackedEntries]:
    """The packed entries of some rows, chunk by chunk, none larger than a batch. Whole chunks are not copied."""
    if len(rows) == len(segment):
        for chunk in segment.chunks:
            yield from chunk.slices(BATCH_ROWS)
        return
    places = segment.places(as_arrow(rows if isinstance(rows, array) else array("q", rows)))
    places = places.take(pc.sort_indices(places))
    for chunk, within in segment.by_chunk(places):
        for start in range(0, len(within), BATCH_ROWS):
            yield chunk.taken(within.slice(start, BATCH_ROWS))


def _of_piece(piece: PackedEntries, schema: pa.Schema, registry: Mapping[str, str]) -> pa.RecordBatch:
    columns = {field.name: piece.column(field.name, field.type) for field in schema}
    if "docMappingRef" in piece.names:
        found = mappings(piece, registry)
        columns.update((name, column) for name, column in found.items() if name in columns)
    if "dataChange" in columns:
        columns["dataChange"] = pa.repeat(False, len(piece))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def mappings(entries: PackedEntries, registry: Mapping[str, str]) -> dict[str, pa.Array]:
    """The mapping and its name of each file, as a listing shows them, by field."""
    inline, refs = (entries.column(name, _SHARED_TEXT) for name in ("docMappingJson", "docMappingRef"))
    names = refs.dictionary.to_pylist()
    shown = [canonical_ref(name, registry) for name in names]
    renamed = refs
    if shown != names:
        # A file with a mapping of its own keeps the name that it has.
        codes = pc.if_else(inline.is_valid(), refs.indices, pc.add(refs.indices, pa.scalar(len(names), pa.int32())))
        renamed = pa.DictionaryArray.from_arrays(codes, pa.array([*names, *shown], pa.string()))
    texts = [lookup(name, registry) for name in shown]
    return {"docMappingJson": _restored(inline, refs, texts), "docMappingRef": renamed}


def _restored(inline: pa.Array, refs: pa.Array, texts: Sequence[str | None]) -> pa.Array:
    """The mapping of each file: its own, or that of its ref. Each text is there once."""
    known = [text for text in texts if text is not None]
    numbers = iter(range(len(known)))
    codes = pa.array([None if text is None else next(numbers) for text in texts], pa.int32()).take(refs.indices)
    own = pc.add(inline.indices, pa.scalar(len(known), pa.int32()))
    dictionary = pa.concat_arrays([pa.array(known, pa.string()), inline.dictionary])
    return pa.DictionaryArray.from_arrays(pc.coalesce(own, codes), dictionary)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _of_adds(files: Sequence[Add], schema: pa.Schema) -> pa.RecordBatch:
    records = [_record(add) for add in files]
    columns = [column_of([record.get(field.name) for record in records], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _record(add: Add) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(add)
    record.pop("unknown_fields", None)
    record.pop("unknownFields", None)
    unknown = unknown_fields(add)
    if unknown:
        record["extra"] = msgspec.json.encode(unknown).decode()
    return record
