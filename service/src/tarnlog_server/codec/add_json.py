"""Files of a snapshot as the JSON of a listing, made from columns: no action is made of a packed file.

The bytes are those that encoding the actions of `scan_rows.adds` gives, field by field in the same order. Each column
becomes texts as a whole, and Arrow joins them row by row. What is unusual (fields that we do not know, nulls where an
action has none) is left to the actions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Add
from tarnlog_server.codec.add_arrow import FIELDS, mappings
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.packed_entries import PackedEntries
from tarnlog_server.codec.scan_rows import adds
from tarnlog_server.core.replay import Snapshot

BLOCK = 8192
_ALWAYS = frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange"})
_MAPS = frozenset({"partitionValues", "tags", "minValues", "maxValues"})
_WITHOUT_NULLS = frozenset({"minValues", "maxValues"})
_ESCAPED = bytes(range(0x20)) + b'"\\'
"""What JSON does not have in a text as it is."""
Piece: TypeAlias = pa.Array | str
"""What all rows have, or a text for each."""
_encode = msgspec.json.Encoder().encode


class _Unusual(Exception):
    """These entries are not what columns alone can tell: make actions of them."""


def files_json(snapshot: Snapshot, rows: Sequence[int]) -> msgspec.Raw:
    """The files of some ascending rows as a JSON array."""
    files = snapshot.files
    parts: list[bytes] = []
    recent = 0
    if isinstance(files.segment, FileColumns):
        recent = bisect_left(rows, files.base)
        for start in range(0, recent, BLOCK):
            block = rows[start : min(start + BLOCK, recent)]
            try:
                parts.append(_packed(snapshot, files.segment, block))
            except (_Unusual, pa.ArrowException):
                parts.append(_actions(adds(snapshot, block)))
    if recent < len(rows):
        parts.append(_actions(adds(snapshot, rows[recent:])))
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def _actions(found: Iterable[Add]) -> bytes:
    return b",".join([_object(add) for add in found])


def _object(add: Add) -> bytes:
    """An action as it goes into a list: unknown fields lie flat beside the known ones, as in the log."""
    if type(add) is Add:
        return _encode(add)
    wrapped = encode_action(add)
    return wrapped[wrapped.index(b":") + 1 : -1]


def _packed(snapshot: Snapshot, segment: FileColumns, rows: Sequence[int]) -> bytes:
    """Packed files, joined by commas."""
    metadata = snapshot.metadata
    columns = metadata.partition_columns if metadata is not None else ()
    registry = metadata.configuration if metadata is not None else {}
    numbers = pa.arange(rows.start, rows.stop, rows.step) if isinstance(rows, range) else pa.array(rows, pa.uint32())
    places = segment.places(numbers)
    order = None if len(segment.chunks) == 1 else pc.sort_indices(places)
    if order is not None:
        places = places.take(order)
    texts = pa.concat_arrays(
        [_objects(chunk.taken(within), columns, registry) for chunk, within in segment.by_chunk(places)]
        if order is not None
        else [_objects(segment.chunks[0].taken(places), columns, registry)]
    )
    if order is not None:
        texts = texts.take(pc.sort_indices(order))
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), ",")
    joined: bytes = whole[0].as_buffer().to_pybytes()
    return joined


def _objects(entries: PackedEntries, partition_columns: Sequence[str], registry: Mapping[str, str]) -> pa.Array:
    """The JSON object of each entry."""
    names = set(entries.names)
    if "extra" in names or not names >= _ALWAYS:
        raise _Unusual
    if "docMappingRef" in names:
        names.add("docMappingJson")
    parts: list[Piece] = []
    for name in FIELDS:
        if name in names:
            label = f'{"," if parts else "{"}"{name}":'
            parts += _labelled(name, label, _field(entries, name, partition_columns, registry))
    return pc.binary_join_element_wise(*_folded([*parts, "}"]), "")


def _field(
    entries: PackedEntries, name: str, partition_columns: Sequence[str], registry: Mapping[str, str]
) -> list[Piece]:
    """The values of a field as JSON; nothing where no row has one that is told."""
    kind = FIELDS[name]
    if name == "dataChange":
        return ["false"]
    if name in ("docMappingJson", "docMappingRef") and "docMappingRef" in entries.names:
        return _quoted(mappings(entries, registry)[name])
    if name in _MAPS:
        return _map(entries, name, partition_columns)
    constant = entries.constant(name)
    if name == "hasFooterOffsets":
        # The one field that is left out for what it says.
        if constant is not None:
            return ["true"] if constant else []
        return [pc.if_else(entries.column(name, kind), "true", pa.scalar(None, pa.string()))]
    if constant is not None:
        return [_encode(constant).decode()]
    if pa.types.is_list(kind):
        return [_encoded(entries.values(name))]
    column = entries.column(name, kind)
    if pa.types.is_boolean(kind):
        return [pc.if_else(column, "true", "false")]
    return [column.cast(pa.string())] if pa.types.is_integer(kind) else _quoted(column)


def _labelled(name: str, label: str, pieces: list[Piece]) -> list[Piece]:
    """A field behind its name; nothing at all in rows that do not have it."""
    if not pieces:
        return []
    first = pieces[0]
    if len(pieces) > 1 or isinstance(first, str) or not first.null_count:
        return [label, *pieces]
    if name in _ALWAYS:
        raise _Unusual
    return [pc.fill_null(pc.binary_join_element_wise(label, first, ""), "")]


def _folded(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring literals as one: every piece costs a step in every row."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def _quoted(texts: pa.Array) -> list[Piece]:
    """Texts in quotes: one piece where there are nulls, which stay. Where one needs escapes, each is encoded."""
    if pa.types.is_dictionary(texts.type):
        if len(texts.dictionary) <= len(texts) and not _plain(texts.dictionary):
            return [_encoded(texts.dictionary.to_pylist()).take(texts.indices)]
        texts = texts.cast(pa.string())
    if not _plain(texts):
        return [_encoded(texts.to_pylist())]
    return [pc.binary_join_element_wise('"', texts, '"', "")] if texts.null_count else ['"', texts, '"']


def _plain(texts: pa.Array) -> bool:
    """Whether no text needs an escape. Costs a pass over the bytes."""
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return True
    offsets = memoryview(texts.buffers()[1]).cast("i")
    said = memoryview(data)[offsets[texts.offset] : offsets[texts.offset + len(texts)]].tobytes()
    return len(said.translate(None, _ESCAPED)) == len(said)


def _encoded(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else _encode(value).decode() for value in values], pa.string())


def _map(entries: PackedEntries, name: str, partition_columns: Sequence[str]) -> list[Piece]:
    """A map; where every row has the same keys, its texts stand between literals."""
    keys = entries.keys_of(name)
    wanted = len(partition_columns) if name == "partitionValues" else 0
    if keys and len(keys) >= wanted:
        pieces: list[Piece] = []
        for key in keys:
            pieces += [f"{',' if pieces else '{'}{_encode(key).decode()}:", *_quoted(entries.texts(name, key))]
        return [*pieces, "}"]
    values = entries.values(name)
    if name in _WITHOUT_NULLS and any(None in one.values() for one in values if one):
        raise _Unusual
    if wanted:
        none: dict[str, None] = dict.fromkeys(partition_columns)
        values = [one if one is None or len(one) >= wanted else none | one for one in values]
    return [_encoded(values)]
