"""Decoded entries of a manifest as bytes for the index: an Arrow IPC stream, compressed, with a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from tarnlog_server.codec.wanted_entries import with_numbers

_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def encode_segment(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches of one schema as bytes, as one batch with its numbers (`with_numbers`), so that a cold plan asks a range
    of it at once. Costs about as much as decoding them from Avro did."""
    sink = pa.BufferOutputStream()
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
    ready = [with_numbers(_told(batch)) for batch in whole]
    with pa.ipc.new_stream(sink, ready[0].schema if ready else pa.schema([]), options=_OPTIONS) as writer:
        for batch in ready:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _told(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the fields that no entry has, most of which are rare. Partition values are asked for in any case."""
    names = batch.schema.names
    return batch.select([n for n in names if n == "partitionValues" or batch.column(n).null_count < batch.num_rows])


def segment_digest(sha256: str, rows: int, data: bytes) -> str:
    """A digest of a segment's bytes, and of what they are said to be. Processors of today have instructions for it."""
    found = hashlib.sha256(f"{sha256}:{rows}:".encode())
    found.update(data)
    return found.hexdigest()


def decode_segment(data: bytes) -> list[pa.RecordBatch]:
    """The batches. ValueError for what is no such stream."""
    try:
        with pa.ipc.open_stream(data) as reader:
            return list(reader)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Arrow stream: {error}") from error
