"""Manifests: Avro object containers of FileEntry records, shared between states and never changed.

Written streaming, a bounded number of entries each; equal entries give equal bytes. A manifest has no checksum of its
own: the state that names it knows its SHA-256 and its number of entries, and both are checked before anything is
believed. Readers resolve by name, so any writer's fields and any namespace will do. `dataChange` speaks of the commit
that added a file and not of the file: as in the other formats of a state, it is false.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import fastavro
from fastavro.write import Writer
from msgspec import Struct

from tarnlog_server.codec import entry_blocks, file_entry
from tarnlog_server.codec.column_bounds import ColumnBoundsBuilder
from tarnlog_server.codec.damage import check_sha256, names_object, sha256_hex
from tarnlog_server.codec.partition_bounds import BoundsBuilder, PartitionBounds
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.version_file import CorruptObject

Compression = Literal["zstd", "snappy", "none"]
_CODECS: dict[Compression, str] = {"zstd": "zstandard", "snappy": "snappy", "none": "null"}
_BLOCK_BYTES = 256 * 1024
"""Larger blocks than the library's: a fifth smaller and faster with many similar entries."""
_FEW_BYTES = 64 * 1024
"""Up to which the entries of a manifest of ours are decoded at once, and not one by one as they are taken."""
_SYNC = hashlib.sha256(b"tarnlog avro block").digest()[:16]
"""Avro wants 16 bytes that do not occur by chance; fixed, so that equal content is equal bytes."""


class EncodedManifest(Struct, frozen=True):
    """A manifest's bytes, and what the state says about it."""

    data: bytes
    sha256: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: dict[str, PartitionBounds] | None
    column_bounds: dict[str, tuple[str, str]] | None
    total_bytes: int
    """The sum of the files' sizes."""

    @property
    def content_hash(self) -> str:
        """What the object's name starts with."""
        return self.sha256[:16]


class _Tally:
    """Counts entries as they pass by on their way into the file."""

    def __init__(self, bounds: BoundsBuilder, columns: ColumnBoundsBuilder) -> None:
        self.columns = columns
        self.bounds = bounds
        self.entries = 0
        self.size = 0
        self.low = self.high = 0

    def records(self, files: Iterable[StateFile]) -> Iterator[dict[str, Any]]:
        for file in files:
            version = file.added_at_version
            self.low = version if self.entries == 0 else min(self.low, version)
            self.high = max(self.high, version)
            self.entries += 1
            self.size += file.add.size
            self.bounds.note(file.add.partition_values)
            self.columns.note(file.add)
            record = file_entry.to_record(file)
            record["dataChange"] = False
            yield record


def encode_manifest(
    files: Iterable[StateFile],
    *,
    bounds: BoundsBuilder | None = None,
    compression: Compression = "zstd",
    level: int = 3,
) -> EncodedManifest:
    """One manifest of all `files`, taken one at a time. `bounds` knows the partition columns, and is filled here."""
    encoder = ManifestEncoder(bounds=bounds, compression=compression, level=level)
    encoder.take(files)
    return encoder.finish()


class ManifestEncoder:
    """One manifest, a few files at a time: encoding a large one in one go would keep other threads waiting."""

    def __init__(
        self,
        *,
        bounds: BoundsBuilder | None = None,
        columns: ColumnBoundsBuilder | None = None,
        compression: Compression = "zstd",
        level: int = 3,
    ) -> None:
        self._tally = _Tally(bounds or BoundsBuilder({}), columns or ColumnBoundsBuilder())
        self._container = ContainerWriter(file_entry.SCHEMA, compression, level)

    def take(self, files: Iterable[StateFile]) -> None:
        """Some more files."""
        self._container.write(self._tally.records(files))

    def finish(self) -> EncodedManifest:
        """The manifest of all that was taken."""
        data, tally = self._container.finish(), self._tally
        return EncodedManifest(
            data=data,
            sha256=sha256_hex(data),
            num_entries=tally.entries,
            min_added_at_version=tally.low,
            max_added_at_version=tally.high,
            partition_bounds=tally.bounds.result(),
            column_bounds=tally.columns.result(),
            total_bytes=tally.size,
        )


def read_manifest(
    key: str,
    data: bytes,
    *,
    sha256: str | None = None,
    num_entries: int | None = None,
    partition_columns: Sequence[str] = (),
) -> Iterator[StateFile]:
    """The entries of a manifest, one at a time; CorruptObject names the object. Check `sha256` whenever it is known."""
    check_sha256(key, data, sha256)
    found = 0
    with names_object(key, "an entry"):
        own = entry_blocks.own_records(data, own_headers()) if len(data) <= _FEW_BYTES else None
        for record in own if own is not None else read_container(key, data, "FileEntry"):
            found += 1
            yield file_entry.from_record(record, partition_columns)
    if num_entries is not None and found != num_entries:
        raise CorruptObject(key, f"its state announces {num_entries} entries, but {found} are there")


def decode_manifest(
    key: str,
    data: bytes,
    *,
    sha256: str | None = None,
    num_entries: int | None = None,
    partition_columns: Sequence[str] = (),
) -> list[StateFile]:
    """All entries of a manifest at once."""
    return list(read_manifest(key, data, sha256=sha256, num_entries=num_entries, partition_columns=partition_columns))


def write_container(schema: Any, records: Iterable[dict[str, Any]], compression: Compression, level: int) -> bytes:
    """An Avro object container; the same bytes for the same records."""
    container = ContainerWriter(schema, compression, level)
    container.write(records)
    return container.finish()


class ContainerWriter:
    """An Avro object container that grows; how records are handed over does not change its bytes."""

    def __init__(self, schema: Any, compression: Compression, level: int) -> None:
        if compression not in _CODECS:
            raise ValueError(f"compression is zstd, snappy or none, not {compression!r}")
        self._out = io.BytesIO()
        self._writer: Any = Writer(
            self._out,
            schema,
            codec=_CODECS[compression],
            sync_interval=_BLOCK_BYTES,
            sync_marker=_SYNC,
            compression_level=level if compression == "zstd" else None,
            options={"disable_tuple_notation": True},
        )

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """Some more records."""
        for record in records:
            self._writer.write(record)

    def finish(self) -> bytes:
        """All of it."""
        self._writer.flush()
        return self._out.getvalue()


@functools.cache
def own_headers() -> dict[bytes, str]:
    """How manifests of ours begin, by their codec."""
    return {
        ContainerWriter(file_entry.SCHEMA, compression, 3).finish(): codec for compression, codec in _CODECS.items()
    }


def written_here(data: bytes) -> bool:
    """Whether a container is of our making: ours all end in the same marker, others' in one made up by chance."""
    return data.endswith(_SYNC)


def read_container(key: str, data: bytes, record_name: str) -> Iterator[dict[str, Any]]:
    """The records of an Avro object container whose schema is a record called `record_name`, in any namespace."""
    with names_object(key, "its Avro container"):
        reader = fastavro.reader(io.BytesIO(data))
        schema = reader.writer_schema
        if not isinstance(schema, dict) or str(schema.get("name")).rsplit(".", 1)[-1] != record_name:
            raise CorruptObject(key, f"it does not hold {record_name} records")
        yield from reader  # type: ignore[misc]
