"""Files as a record batch of entries: what decoding their manifest would give, made without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tarnlog_server.codec import file_entry
from tarnlog_server.codec.table_state import StateFile

_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
ENTRY_FIELDS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": _TEXTS,
    "stats": pa.string(),
    "minValues": _TEXTS,
    "maxValues": _TEXTS,
    "numRecords": pa.int64(),
    "footerStartOffset": pa.int64(),
    "footerEndOffset": pa.int64(),
    "deleteOpstamp": pa.int64(),
    "hasFooterOffsets": pa.bool_(),
    "hotcacheStartOffset": pa.int64(),
    "hotcacheLength": pa.int64(),
    "splitTags": _LIST,
    "docMappingJson": pa.string(),
    "numMergeOps": pa.int32(),
    "docMappingRef": pa.string(),
    "uncompressedSizeBytes": pa.int64(),
    "timeRangeStart": pa.string(),
    "timeRangeEnd": pa.string(),
    "addedAtVersion": pa.int64(),
    "addedAtTimestamp": pa.int64(),
    "companionSourceFiles": _LIST,
    "companionDeltaVersion": pa.int64(),
    "companionFastFieldMode": pa.string(),
    "extra": pa.string(),
}
"""The columns of entries, as an Arrow reader of `file_entry.SCHEMA` types them."""
_FALSE = {"hasFooterOffsets": False}
"""What that schema puts where an action says nothing."""


def entry_batch(files: Sequence[StateFile]) -> pa.RecordBatch:
    """One batch of files, in their order, with the columns that at least one of them has.

    pyarrow refuses text that is not Unicode with a UnicodeEncodeError. Costs a few microseconds a file.
    """
    records = [_FALSE | file_entry.to_record(file) for file in files]
    present = {name for record in records for name, value in record.items() if value is not None}
    fields = [(name, kind) for name, kind in ENTRY_FIELDS.items() if name in present]
    columns = [column_of([record.get(name) for record in records], kind) for name, kind in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of Python values, maps given as dicts."""
    if pa.types.is_map(kind):
        values = [None if value is None else list(value.items()) for value in values]
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)
