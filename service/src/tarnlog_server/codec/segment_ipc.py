"""Decoded entries of a manifest as bytes for the index: an Arrow IPC stream, compressed, with a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def encode_segment(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches of one schema as bytes. Costs about as much as decoding them from Avro did."""
    sink = pa.BufferOutputStream()
    schema = batches[0].schema if batches else pa.schema([])
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def segment_digest(sha256: str, rows: int, data: bytes) -> str:
    """A digest of a segment's bytes, and of what they are said to be."""
    found = hashlib.blake2b(f"{sha256}:{rows}:".encode(), digest_size=16)
    found.update(data)
    return found.hexdigest()


def decode_segment(data: bytes) -> list[pa.RecordBatch]:
    """The batches. ValueError for what is no such stream."""
    try:
        with pa.ipc.open_stream(data) as reader:
            return list(reader)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Arrow stream: {error}") from error
