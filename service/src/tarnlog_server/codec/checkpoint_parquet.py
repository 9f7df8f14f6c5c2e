"""Parquet checkpoints: a state as Delta's columns, in one file or in parts that stay below a size.

Pages carry checksums, the file's metadata our facts, and the small `.checkpoint.json`, written last, the SHA-256 of
each file and of itself. It also tells a small checkpoint whole, but for its removes: the footer alone takes longer to
read. A file without our facts is another writer's and is replayed as it is.
"""

from __future__ import annotations

import io
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Raw, Struct

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Txn
from tarnlog_server.codec import checkpoint_order, checkpoint_schema
from tarnlog_server.codec.checkpoint_parts import CheckpointInfo, CheckpointPart, EncodedCheckpoint, join_parts
from tarnlog_server.codec.damage import (
    NO_SHA256,
    check_document,
    check_sha256,
    names_object,
    seal_document,
    sha256_hex,
)
from tarnlog_server.codec.file_columns import UnexpectedColumns, checked_entries
from tarnlog_server.codec.side_facts import SideFacts, body, from_body, side_facts
from tarnlog_server.codec.table_state import LaterRemoves, StateFacts, StateFile, StateRemove
from tarnlog_server.codec.told_files import FEW, FEW_BYTES, NOT_TOLD, tell, told
from tarnlog_server.codec.version_file import CorruptObject

Compression = Literal["snappy", "zstd", "gzip", "none"]
COLUMNS_FROM = 1000
"""Rows from which on files stay columns: making an action of each takes twenty times as long."""
_FEW_REMOVES = 1000
"""Removes up to which a checkpoint is told: they are decoded where they are first asked for, perhaps on the loop."""
_BATCH = 20_000
_BYTES_PER_ROW = 1024
"""More than a row takes, so that a batch never overshoots a small limit by much."""
_FOOTER_BYTES = 110
"""More than the footer says about a stored column, and as much for each of its row groups."""
_INFO, _PROTOCOL, _LEAVES = b"tarnlog.checkpoint", b"tarnlog.protocol", b"tarnlog.leaves"
_META_DATA, _META_DATA_BYTES = b"tarnlog.metaData", 16 * 1024
"""One action in ten columns: unless it is large, its text is told beside the facts, and they are for other readers."""


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A small checkpoint as JSON, as its only file has it. Removes are only there; `removes` says that there are."""

    facts: SideFacts
    protocol: Raw
    meta_data: Raw = NOT_TOLD
    txns: list[Raw] = []
    files: Raw
    removes: bool = False


class ParquetInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`.checkpoint.json`. `size` counts actions; `parts` is None for a single file; ours has checksums, one a file."""

    sha256: str | None = msgspec.field(default=None, name="sha256")
    version: int
    size: int
    parts: int | None = None
    created_time: int = 0
    checksums: tuple[str, ...] = ()
    told: Told | None = None


_PARQUET_INFO = msgspec.json.Decoder(ParquetInfo)
_CHECKPOINT_INFO = msgspec.json.Decoder(CheckpointInfo)
_CHECKPOINT_LEAVES = msgspec.json.Decoder(dict[str, list[int]])


def encode_parquet(
    facts: StateFacts,
    files: Iterable[StateFile],
    *,
    compression: Compression = "snappy",
    max_file_size: int = 128 * 1024 * 1024,
) -> Iterator[EncodedCheckpoint]:
    """The files of a checkpoint, in order; a single one is number 1 and last. `files` are sorted by path.

    A file has at most `max_file_size` bytes. Two things are not divided: an action, and the facts of the table, which
    are in the first file.
    """
    if compression not in ("snappy", "zstd", "gzip", "none"):
        raise ValueError(f"compression is snappy, zstd, gzip or none, not {compression!r}")
    rows = itertools.chain(
        (checkpoint_schema.PLAIN_DELTA_TABLE if isinstance(a, Protocol) else a for a in checkpoint_order.head(facts)),
        checkpoint_order.tail(facts, files),
    )
    per_batch = max(1, min(_BATCH, max_file_size // _BYTES_PER_ROW))
    batches = deque[pa.RecordBatch]()
    more = map(_record_batch, iter(lambda: list(itertools.islice(rows, per_batch)), []))
    for number in itertools.count(1):
        _refill(batches, more)
        if len(batches) == 1:
            batches.append(checkpoint_schema.narrowed(batches.pop()))
        file = _File(facts, number, compression, batches[0].schema if batches else checkpoint_schema.SCHEMA)
        while batches and (not file.actions or file.size + file.largest <= max_file_size):
            before = file.size
            file.write(batches.popleft())
            file.largest = max(file.largest, file.size - before)
            _refill(batches, more)
            if file.size > max_file_size and len(file.batches) == 1 and file.actions > 1:
                # Its rows are larger than expected: start this file again, with half of them.
                (batch,) = file.batches
                half = batch.num_rows // 2
                batches.extendleft((batch.slice(half), batch.slice(0, half)))
                file = _File(facts, number, compression, batch.schema)
        yield file.encoded(last=not batches)
        if not batches:
            return


def _refill(batches: deque[pa.RecordBatch], more: Iterator[pa.RecordBatch]) -> None:
    """Have two at hand where there are as many: the last one is known as the last."""
    while len(batches) < 2 and (batch := next(more, None)) is not None:
        batches.append(batch)


class _File:
    """One file of a checkpoint, a row group a batch. Holds its bytes, and its batches while it has only one."""

    def __init__(self, facts: StateFacts, number: int, compression: Compression, schema: pa.Schema) -> None:
        self._facts = facts
        self._number = number
        self._out = io.BytesIO()
        # Without statistics: no reader of a checkpoint filters its rows, and they may be longer than the rows.
        self._writer = pq.ParquetWriter(
            self._out,
            schema,
            compression=compression,
            write_page_checksum=True,
            write_statistics=False,
            store_schema=False,
        )
        self._leaves: dict[str, set[int]] = {}
        self._columns = checkpoint_schema.leaf_count(schema)
        self._footer = self._columns * _FOOTER_BYTES + sum(
            map(len, _file_metadata(facts, number, {}, last=True).values())
        )
        self.batches: list[pa.RecordBatch] = []
        self.actions = self.largest = 0

    @property
    def size(self) -> int:
        """At most so many bytes when it is closed now: what is written, and the footer that is still to come."""
        return self._out.tell() + self._footer

    def write(self, batch: pa.RecordBatch) -> None:
        for name, some in checkpoint_schema.leaves_of(batch).items():
            self._leaves.setdefault(name, set()).update(some)
        self._writer.write_batch(batch)
        self._footer += self._columns * _FOOTER_BYTES
        self.batches = [] if self.actions else [batch]
        self.actions += batch.num_rows

    def encoded(self, *, last: bool) -> EncodedCheckpoint:
        self._writer.add_key_value_metadata(_file_metadata(self._facts, self._number, self._leaves, last=last))
        self._writer.close()
        return EncodedCheckpoint(self._out.getvalue(), self._number, self.actions, last)


def tell_parquet(facts: StateFacts, files: Iterable[StateFile]) -> Told | None:
    """What `.checkpoint.json` tells besides of a checkpoint in one file; None where it is too much.

    That is also one with many removes: they are not told, and who asks for them must not wait for long.
    """
    if len(facts.txns) + len(facts.skips) > FEW or len(facts.removes) >= _FEW_REMOVES:
        return None
    listed = tell(map(checkpoint_order.unchanged, files))
    if listed == NOT_TOLD:
        return None
    found = Told(
        facts=side_facts(facts),
        protocol=body(facts.protocol),
        meta_data=NOT_TOLD if facts.metadata is None else body(facts.metadata),
        txns=[body(txn) for txn, _ in facts.txns],
        files=listed,
        removes=bool(facts.removes),
    )
    return found if len(msgspec.json.encode(found)) <= FEW_BYTES else None


def encode_parquet_checksums(
    version: int, size: int, checksums: Sequence[str], created_time: int, told: Told | None = None
) -> bytes:
    """The same for a writer that kept no file's bytes, but their SHA-256."""
    info = ParquetInfo(
        sha256=NO_SHA256,
        version=version,
        size=size,
        parts=len(checksums) if len(checksums) > 1 else None,
        created_time=created_time,
        checksums=tuple(checksums),
        told=told if len(checksums) == 1 else None,
    )
    return seal_document(msgspec.json.encode(info))


def decode_parquet_info(key: str, version: int, data: bytes) -> ParquetInfo:
    """What the small file says; CorruptObject names the object."""
    with names_object(key, "it"):
        info = _PARQUET_INFO.decode(data)
        if info.sha256 is not None:
            check_document(key, data, info.sha256)
        elif info.checksums:
            raise CorruptObject(key, "its checksum is missing")
    if info.version != version:
        raise CorruptObject(key, f"it describes version {info.version} in the place of {version}")
    if info.checksums and len(info.checksums) != (info.parts or 1):
        raise CorruptObject(key, f"it knows {len(info.checksums)} checksums for {info.parts or 1} files")
    return info


def told_part(key: str, version: int, found: Told, data: bytes, sha256: str) -> CheckpointPart | None:
    """A checkpoint's only part as `.checkpoint.json` tells it; None where that is for later versions only.

    `data` are its bytes: they must be those that it is about.
    """
    check_sha256(key, data, sha256)
    with names_object(key, "what is told of it"):
        files = told(found.files)
        if files is None:
            return None
        actions: list[Action] = [from_body(Protocol, found.protocol)]
        if found.meta_data != NOT_TOLD:
            actions.append(from_body(MetaData, found.meta_data))
        actions += [from_body(Txn, txn) for txn in found.txns]
        actions += [file.add for file in files]
        info = CheckpointInfo(
            version=version,
            last=True,
            facts=found.facts,
            versions=[file.added_at_version for file in files],
            times=[file.added_at_timestamp for file in files],
        )
    return CheckpointPart(
        key, info, actions, removes=LaterRemoves(lambda: _later(key, version, data)) if found.removes else None
    )


def _later(key: str, version: int, data: bytes) -> Sequence[StateRemove]:
    """The removes of a file whose checksum is right."""
    part = decode_parquet_part(key, data, sha256=sha256_hex(data))
    return join_parts(key, version, None, [part]).facts.removes


def decode_parquet_part(key: str, data: bytes, *, sha256: str | None = None) -> CheckpointPart:
    """The rows of one file, for `join_parts`; CorruptObject names the object. Check `sha256` whenever it is known."""
    check_sha256(key, data, sha256)
    with names_object(key, "its Parquet data"):
        # All of it is in memory: fetching it ahead, in other threads, would only cost.
        file = _ByNumber(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
        metadata: dict[bytes, bytes] = file.metadata.metadata or {}
        info = _CHECKPOINT_INFO.decode(metadata[_INFO]) if _INFO in metadata else None
        if info is not None and sha256 is not None and _LEAVES in metadata and file.metadata.num_rows < COLUMNS_FROM:
            return _few_rows(key, file, info, metadata)
        file.tell_paths()
        present = [name for name in checkpoint_schema.COLUMNS if name in file.schema_arrow.names]
        actions: list[Action] = []
        stamps: list[tuple[int, int]] = []
        columns: tuple[pa.RecordBatch, ...] = ()
        # Values in columns are looked at when a file is asked for: only where the checksum says that they are ours.
        if info is not None and sha256 is not None and file.metadata.num_rows >= COLUMNS_FROM:
            columns = _file_columns(file)
        if columns:
            present.remove("add")
        for batch in file.iter_batches(batch_size=_BATCH, columns=present):
            for name in present:
                _take(checkpoint_schema.COLUMNS[name], checkpoint_schema.members(batch.column(name)), actions, stamps)
        if info is None:
            return CheckpointPart(key, None, actions)
        if _PROTOCOL in metadata:
            own = from_body(Protocol, metadata[_PROTOCOL])
            actions = [own if isinstance(action, Protocol) else action for action in actions]
        return CheckpointPart(key, _with(stamps, info), actions, columns)


class _ByNumber(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file whose columns are asked for by number: pyarrow makes the paths of all only when told to.

    They cost as much as all else that opening does.
    """

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}

    def tell_paths(self) -> None:
        """From here on columns are found by name too. A pyarrow that does not make paths this way has made its own."""
        make = getattr(super(), "_build_nested_paths", None)
        if make is not None:
            self._nested_paths_by_prefix = make()

    def leaves(self, numbers: list[int]) -> pa.Table:
        """The columns of some leaves. For few rows: a thread would cost more than it reads."""
        return self.reader.read_all(column_indices=numbers, use_threads=False)


def _few_rows(key: str, file: _ByNumber, info: CheckpointInfo, metadata: dict[bytes, bytes]) -> CheckpointPart:
    """A file of ours with few rows: what it costs is its many columns, so only those with a value are read.

    Removes are left for later; the protocol and metaData that are there for Delta's readers are not read at all.
    """
    actions: list[Action] = []
    stamps: list[tuple[int, int]] = []
    leaves = _CHECKPOINT_LEAVES.decode(metadata[_LEAVES])
    removed = leaves.pop("remove", [])
    if _PROTOCOL in metadata:
        actions.append(from_body(Protocol, metadata[_PROTOCOL]))
        leaves.pop("protocol", None)
    if _META_DATA in metadata:
        actions.append(from_body(MetaData, metadata[_META_DATA]))
        leaves.pop("metaData", None)
    table = file.leaves([number for some in leaves.values() for number in some])
    for name in table.column_names:
        _take(checkpoint_schema.COLUMNS[name], checkpoint_schema.few_members(table.column(name)), actions, stamps)
    later = LaterRemoves(lambda: _removes(key, file, removed)) if removed else None
    return CheckpointPart(key, _with(stamps, info), actions, removes=later)


def _removes(key: str, file: _ByNumber, leaves: list[int]) -> list[StateRemove]:
    actions: list[Action] = []
    stamps: list[tuple[int, int]] = []
    with names_object(key, "its Parquet data"):
        _take(Remove, checkpoint_schema.few_members(file.leaves(leaves).column("remove")), actions, stamps)
    told = zip(actions, stamps, strict=True)
    return [StateRemove(action.path, *stamp, action) for action, stamp in told if isinstance(action, Remove)]


def _with(stamps: list[tuple[int, int]], info: CheckpointInfo) -> CheckpointInfo:
    versions, times = [stamp[0] for stamp in stamps], [stamp[1] for stamp in stamps]
    return msgspec.structs.replace(info, versions=versions, times=times)


def _file_columns(file: pq.ParquetFile) -> tuple[pa.RecordBatch, ...]:
    """The files as entries for `FileColumns`; none where they are not stored as this version does."""
    found = []
    for batch in file.iter_batches(batch_size=_BATCH, columns=["add"]):
        files = pa.RecordBatch.from_struct_array(batch.column("add").drop_null())
        if files.num_rows:
            found.append(files)
    try:
        return tuple(checked_entries(files) for files in found)
    except UnexpectedColumns:
        return ()


def _take(kind: type[Action], rows: list[dict[str, Any]], actions: list[Action], stamps: list[tuple[int, int]]) -> None:
    """Add the rows of one column to the actions; files and removes also say when they were written."""
    if kind is Add or kind is Remove:
        version, time = checkpoint_schema.ADDED_AT if kind is Add else checkpoint_schema.REMOVED_AT
        stamps.extend((row.pop(version, 0), row.pop(time, 0)) for row in rows)
    actions.extend(checkpoint_schema.from_row(kind, row) for row in rows)


def _record_batch(items: Sequence[Action | StateFile | StateRemove]) -> pa.RecordBatch:
    columns: dict[str, list[dict[str, Any] | None]] = {name: [None] * len(items) for name in checkpoint_schema.COLUMNS}
    for index, item in enumerate(items):
        name, row = checkpoint_schema.to_row(item)
        columns[name][index] = row
    arrays = [checkpoint_schema.column_array(name, rows) for name, rows in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=checkpoint_schema.SCHEMA)


def _file_metadata(facts: StateFacts, number: int, leaves: dict[str, set[int]], *, last: bool) -> dict[bytes, bytes]:
    first = number == 1
    info = CheckpointInfo(version=facts.version, part=number, last=last, facts=side_facts(facts) if first else None)
    there = {name: sorted(some) for name, some in leaves.items()}
    own = {_INFO: msgspec.json.encode(info), _LEAVES: msgspec.json.encode(there)}
    if first:
        own[_PROTOCOL] = bytes(body(facts.protocol))
        described = b"" if facts.metadata is None else bytes(body(facts.metadata))
        if 0 < len(described) <= _META_DATA_BYTES:
            own[_META_DATA] = described
    return own
