"""The columns of a Parquet checkpoint: Delta's five, a struct an action type, and how actions become their rows.

Delta's members come first and mean what they mean there. Ours follow inside the same structs, where Delta's readers do
not look; `extra` is the JSON of fields that this version does not know. The protocol column speaks Delta's numbers, in
which our tables are plain ones (1/2): a Delta reader refuses the versions of this format. The true protocol is in the
file's metadata.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pyarrow as pa

from tarnlog.protocol.action_json import from_object, unknown_fields
from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Txn
from tarnlog_server.codec.table_state import StateFile, StateRemove

PLAIN_DELTA_TABLE = Protocol(min_reader_version=1, min_writer_version=2)
ADDED_AT = ("addedAtVersion", "addedAtTimestamp")
REMOVED_AT = ("removedAtVersion", "removedAtTimestamp")

_TEXT, _LONG, _FLAG = pa.string(), pa.int64(), pa.bool_()
_MAP, _LIST = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())

_PROTOCOL = {
    "minReaderVersion": pa.int32(),
    "minWriterVersion": pa.int32(),
    "readerFeatures": _LIST,
    "writerFeatures": _LIST,
}
_META_DATA = {
    "id": _TEXT,
    "name": _TEXT,
    "description": _TEXT,
    "format": pa.struct([("provider", _TEXT), ("options", _MAP)]),
    "schemaString": _TEXT,
    "partitionColumns": _LIST,
    "configuration": _MAP,
    "createdTime": _LONG,
    "extra": _TEXT,
}
_TXN = {"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG, "extra": _TEXT}
_ADD = {
    "path": _TEXT,
    "partitionValues": _MAP,
    "size": _LONG,
    "modificationTime": _LONG,
    "dataChange": _FLAG,
    "stats": _TEXT,
    "tags": _MAP,
    "minValues": _MAP,
    "maxValues": _MAP,
    "numRecords": _LONG,
    "footerStartOffset": _LONG,
    "footerEndOffset": _LONG,
    "hotcacheStartOffset": _LONG,
    "hotcacheLength": _LONG,
    "hasFooterOffsets": _FLAG,
    "timeRangeStart": _TEXT,
    "timeRangeEnd": _TEXT,
    "splitTags": _LIST,
    "deleteOpstamp": _LONG,
    "numMergeOps": pa.int32(),
    "docMappingJson": _TEXT,
    "docMappingRef": _TEXT,
    "uncompressedSizeBytes": _LONG,
    "companionSourceFiles": _LIST,
    "companionDeltaVersion": _LONG,
    "companionFastFieldMode": _TEXT,
    ADDED_AT[0]: _LONG,
    ADDED_AT[1]: _LONG,
    "extra": _TEXT,
}
_REMOVE = {
    "path": _TEXT,
    "deletionTimestamp": _LONG,
    "dataChange": _FLAG,
    "extendedFileMetadata": _FLAG,
    "partitionValues": _MAP,
    "size": _LONG,
    "tags": _MAP,
    REMOVED_AT[0]: _LONG,
    REMOVED_AT[1]: _LONG,
    "extra": _TEXT,
}
COLUMNS: dict[str, type[Action]] = {
    "txn": Txn,
    "add": Add,
    "remove": Remove,
    "metaData": MetaData,
    "protocol": Protocol,
}
_MEMBERS = {"txn": _TXN, "add": _ADD, "remove": _REMOVE, "metaData": _META_DATA, "protocol": _PROTOCOL}
_DELTAS = {"txn": 3, "add": 7, "remove": 7, "metaData": 8, "protocol": 4}
"""How many of a column's members are Delta's: its readers may look for them even where no row has a value."""
SCHEMA = pa.schema([(name, pa.struct(list(_MEMBERS[name].items()))) for name in COLUMNS])
_NAMES = {kind: name for name, kind in COLUMNS.items()}
_MAPS = {"options", *(member for members in _MEMBERS.values() for member, kind in members.items() if kind is _MAP)}
"""The members that are maps, in whichever column: none of them is anything else in another."""


def to_row(item: Action | StateFile | StateRemove) -> tuple[str, dict[str, Any]]:
    """The column that an item is written to, and its struct there."""
    if isinstance(item, StateFile):
        action: Action = item.add
        stamps = dict(zip(ADDED_AT, (item.added_at_version, item.added_at_timestamp), strict=True))
    elif isinstance(item, StateRemove):
        action = item.remove
        stamps = dict(zip(REMOVED_AT, (item.version, item.deletion_timestamp), strict=True))
    else:
        action, stamps = item, {}
    row: dict[str, Any] = msgspec.to_builtins(action) | stamps
    unknown = unknown_fields(action)
    if unknown:
        row["extra"] = msgspec.json.encode(unknown).decode()
    return _column(action), row


def _column(action: Action) -> str:
    return next(name for kind, name in _NAMES.items() if isinstance(action, kind))


def column_array(name: str, rows: list[dict[str, Any] | None]) -> pa.Array:
    """One column of a batch. Member by member, which is several times faster than whole structs."""
    present = [row or {} for row in rows]
    children = [_child([row.get(member) for row in present], kind) for member, kind in _MEMBERS[name].items()]
    absent = pa.array([row is None for row in rows], _FLAG)
    return pa.StructArray.from_arrays(children, fields=list(SCHEMA.field(name).type), mask=absent)


def _child(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind is _MAP:
        values = [None if value is None else list(value.items()) for value in values]
    elif pa.types.is_struct(kind):
        values = [value and {**value, "options": list(value["options"].items())} for value in values]
    return pa.array(values, kind)


def from_row(kind: type[Action], row: dict[str, Any]) -> Action:
    """The action in a struct, whose nulls are absent members; msgspec.ValidationError says what is wrong."""
    extra = row.pop("extra", None)
    if extra is not None:
        unknown = msgspec.json.decode(extra)
        if not isinstance(unknown, dict):
            raise msgspec.ValidationError("extra: expected a JSON object")
        return cast(Action, from_object(kind, unknown | row))
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError:
        return cast(Action, from_object(kind, msgspec.to_builtins(row)))


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without members of ours that no row has: a small file is mostly the description of its columns."""
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kept = [at for at in range(len(column.type)) if at < _DELTAS[name] or _has_value(column.field(at))]
        children, fields = [column.field(at) for at in kept], [column.type[at] for at in kept]
        found[name] = pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
    return pa.RecordBatch.from_pydict(found)


def leaf_count(schema: pa.Schema) -> int:
    """How many columns Parquet stores for a schema."""
    return sum(_leaves(field.type) for field in schema)


def leaves_of(batch: pa.RecordBatch) -> dict[str, list[int]]:
    """By column, the numbers of the stored columns that are not null in every row; one without any is left out.

    Parquet stores a column for each leaf of the schema, in its order.
    """
    found: dict[str, list[int]] = {}
    at = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for index, field in enumerate(column.type):
            width = _leaves(field.type)
            if _has_value(column.field(index)):
                found.setdefault(name, []).extend(range(at, at + width))
            at += width
    return found


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1


def _has_value(child: pa.Array) -> bool:
    return bool(child.null_count < len(child))


def few_members(column: pa.ChunkedArray) -> list[dict[str, Any]]:
    """The same as `members`, for a column of ours with few rows: there each call to Arrow costs more than a value."""
    rows: list[dict[str, Any] | None] = column.to_pylist()
    return [_with_maps(row) for row in rows if row is not None]


def _with_maps(row: dict[str, Any]) -> dict[str, Any]:
    """A struct without its null members, and with dicts for the pairs that Arrow makes of a map.

    Arrow can make dicts itself, but takes thirty times as long for them.
    """
    found = {name: value for name, value in row.items() if value is not None}
    for name in _MAPS.intersection(found):
        found[name] = dict(found[name])
    if "format" in found:
        found["format"] = _with_maps(found["format"])
    return found


def members(column: pa.StructArray) -> list[dict[str, Any]]:
    """The structs of a column that are there, as dicts without their null members."""
    some = _present(column)
    rows: list[dict[str, Any]] = [{} for _ in range(len(some))]
    for index, field in enumerate(some.type):
        child = some.field(index)
        if child.null_count == len(child):
            continue  # most members of most tables
        for row, value in zip(rows, _values(child), strict=True):
            if value is not None:
                row[field.name] = value
    return rows


def _present(column: pa.StructArray) -> pa.StructArray:
    """The structs that are there: a slice where they lie together, which costs far less than a copy of each member."""
    count = len(column) - column.null_count
    if 0 < count < len(column):
        together = column.slice(column.is_valid().index(True).as_py(), count)
        if together.null_count == 0:
            return together
    return column.drop_null()


def _values(child: pa.Array) -> list[Any]:
    """The Python values of an array. Maps are cut out of their keys and items, a scalar an entry would be slow.

    The offsets of a slice lead into the keys and items of the whole.
    """
    if not pa.types.is_map(child.type):
        values: list[Any] = child.to_pylist(maps_as_pydicts="strict")
        return values
    ends = child.offsets.to_pylist()
    keys, items = child.keys.to_pylist(), child.items.to_pylist()
    present = child.is_valid().to_pylist()
    return [
        dict(zip(keys[start:end], items[start:end], strict=True)) if there else None
        for there, start, end in zip(present, ends[:-1], ends[1:], strict=True)
    ]
