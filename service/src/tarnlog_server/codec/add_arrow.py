"""Files of a snapshot as one Arrow stream: the columns of an `add`, named as in the log.

One schema for each stream: fields that no file of it has are left out, which reads the same as null. Maps are maps of
texts; a partition column that the map of a file does not mention is null there (the schema's metadata names the
partition columns). Unknown fields of an action travel as a JSON object in `extra`, and mappings that lie in the
table's configuration are inline, both as in listings. `tarnlog.arrow_files` makes actions of it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.codec.entry_batch import column_of
from tarnlog_server.codec.scan_rows import adds
from tarnlog_server.core.replay import Snapshot

BATCH_ROWS = 8192
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


def arrow_schema(snapshot: Snapshot, rows: Sequence[int]) -> pa.Schema:
    """The schema of a stream of some rows; its metadata says which columns partition the table."""
    present = set(_ALWAYS)
    for add in adds(snapshot, rows):
        present.update(_record(add))
    columns = snapshot.metadata.partition_columns if snapshot.metadata is not None else ()
    metadata = {"partitionColumns": msgspec.json.encode(columns)}
    return pa.schema([(name, kind) for name, kind in FIELDS.items() if name in present], metadata)


def arrow_batches(snapshot: Snapshot, rows: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The files of some rows in their order, some thousands a batch. `schema` is that of `arrow_schema`."""
    for start in range(0, len(rows), BATCH_ROWS):
        yield _of_adds(list(adds(snapshot, rows[start : start + BATCH_ROWS])), schema)


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
