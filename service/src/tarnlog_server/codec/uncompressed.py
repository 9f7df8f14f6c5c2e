"""How large the objects of a state would be without compression, read from what each container says of itself.

For metrics only: nothing is inflated, and a container that does not tell counts as it is.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

_AVRO, _PARQUET, _FRAME, _GZIP, _ZSTD = b"Obj\x01", b"PAR1", b"\x01\x01", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SYNC_BYTES = 16


def uncompressed_size(data: bytes) -> int:
    """The size of an object that was just written. Costs a look at its headers."""
    if data.startswith((_GZIP, _FRAME + _GZIP)):
        return int.from_bytes(data[-4:], "little")
    try:
        if data.startswith(_AVRO):
            return _avro(data)
        if data.startswith(_PARQUET):
            return _parquet(data)
    except (IndexError, ValueError, pa.ArrowException):
        return len(data)
    return len(data)


def _parquet(data: bytes) -> int:
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    saved = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column in range(row_group.num_columns):
            chunk = row_group.column(column)
            saved += chunk.total_uncompressed_size - chunk.total_compressed_size
    return len(data) + saved


def _avro(data: bytes) -> int:
    """The header as it is, then each block by the size that its codec notes at its start."""
    codec, at = _avro_header(data)
    size = at
    while at < len(data):
        start = at
        _, at = _long(data, at)
        length, at = _length(data, at)
        size += at - start + _SYNC_BYTES + _inflated(codec, data, at, length)
        at += length + _SYNC_BYTES
    return size


def _avro_header(data: bytes) -> tuple[bytes, int]:
    """The codec, and where the blocks begin."""
    codec, at = b"null", len(_AVRO)
    while True:
        count, at = _long(data, at)
        if count == 0:
            return codec, at + _SYNC_BYTES
        if count < 0:
            _, at = _long(data, at)
        for _ in range(abs(count)):
            name, at = _bytes(data, at)
            value, at = _bytes(data, at)
            codec = value if name == b"avro.codec" else codec


def _inflated(codec: bytes, data: bytes, at: int, length: int) -> int:
    if codec == b"snappy":
        return _unsigned(data, at)[0]
    return _zstd(data, at, length) if codec == b"zstandard" else length


def _zstd(data: bytes, at: int, length: int) -> int:
    """The content size of a frame's header (RFC 8878, 3.1.1.1); the stored size where the header leaves it out."""
    if data[at : at + 4] != _ZSTD:
        return length
    descriptor = data[at + 4]
    single = descriptor >> 5 & 1
    width = (single, 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return length
    place = at + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(data[place : place + width], "little") + (256 if width == 2 else 0)


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _length(data, at)
    return data[at : at + length], at + length


def _length(data: bytes, at: int) -> tuple[int, int]:
    length, at = _long(data, at)
    if length < 0:
        raise ValueError("a length below zero")
    return length, at


def _long(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return value >> 1 ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
