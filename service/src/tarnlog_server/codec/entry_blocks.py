"""Manifests of our own making, decoded without a general Avro reader: several times faster where entries are few.

Only a container that starts with exactly a header that we write is read here, so its schema is `file_entry.SCHEMA`.
Of anything else, and of what does not fit, nothing is told: the general reader then decides, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cramjam

from tarnlog_server.codec import file_entry

Read = Callable[[bytes, int], tuple[Any, int]]
"""A value, and where the next one begins."""
_SYNC_BYTES, _CRC_BYTES = 16, 4
_NULL, _VALUE = 0, 2
"""How the branches of `["null", ...]` are written."""


def own_records(data: bytes, headers: Mapping[bytes, str]) -> list[dict[str, Any]] | None:
    """The records of a container that starts with one of `headers`, each with its codec; None for any other.

    A null member is left out.
    """
    for header, codec in headers.items():
        if data.startswith(header):
            try:
                return [record for block in _blocks(data, len(header), codec) for record in block]
            except (IndexError, ValueError, cramjam.DecompressionError):
                return None
    return None


def _blocks(data: bytes, at: int, codec: str) -> Iterator[list[dict[str, Any]]]:
    sync = data[at - _SYNC_BYTES : at]
    while at < len(data):
        count, at = _long(data, at)
        length, at = _length(data, at)
        end = at + length
        if count < 0 or data[end : end + _SYNC_BYTES] != sync:
            raise ValueError("it is no block")
        yield _records(_inflated(data[at:end], codec), count)
        at = end + _SYNC_BYTES


def _inflated(data: bytes, codec: str) -> bytes:
    if codec == "zstandard":
        return bytes(cramjam.zstd.decompress(data))
    return bytes(cramjam.snappy.decompress_raw(data[:-_CRC_BYTES])) if codec == "snappy" else data


def _records(data: bytes, count: int) -> list[dict[str, Any]]:
    at = 0
    found = []
    for _ in range(count):
        record: dict[str, Any] = {}
        for name, nullable, read in _FIELDS:
            if nullable:
                branch = data[at]
                at += 1
                if branch == _NULL:
                    continue
                if branch != _VALUE:
                    raise ValueError("it is no branch of the union")
            record[name], at = read(data, at)
        found.append(record)
    if at != len(data):  # also where a length led out of it
        raise ValueError("a block holds less or more than its records")
    return found


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value >= 0x80:
        value &= 0x7F
        for shift in range(7, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ValueError("a number has too many bytes")
    return value >> 1 ^ -(value & 1), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    length, at = _long(data, at)
    if length < 0:
        raise ValueError("a length below zero")
    return length, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    twice = data[at]
    # Most texts are short: their length is one byte, an even one.
    if twice >= 0x80 or twice & 1:
        length, at = _length(data, at)
        end = at + length
    else:
        at += 1
        end = at + (twice >> 1)
    return data[at:end].decode(), end


def _flag(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError("it is neither true nor false")
    return data[at] == 1, at + 1


def _nullable_text(data: bytes, at: int) -> tuple[str | None, int]:
    if data[at] == _NULL:
        return None, at + 1
    if data[at] != _VALUE:
        raise ValueError("it is no branch of the union")
    return _text(data, at + 1)


def _run(data: bytes, at: int) -> tuple[int, int]:
    """Maps and lists come in runs of so many items, an empty one ends them; a negative count tells its bytes too."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
    return abs(count), at


def _texts(data: bytes, at: int) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    while True:
        count = data[at]
        if count & 0x81:
            count, at = _run(data, at)
        else:  # as nearly always
            count, at = count >> 1, at + 1
        if count == 0:
            return found, at
        for _ in range(count):
            name, at = _text(data, at)
            found[name], at = _text(data, at)


def _nullable_texts(data: bytes, at: int) -> tuple[dict[str, str | None], int]:
    found: dict[str, str | None] = {}
    while True:
        count, at = _run(data, at)
        if count == 0:
            return found, at
        for _ in range(count):
            name, at = _text(data, at)
            found[name], at = _nullable_text(data, at)


def _list(data: bytes, at: int) -> tuple[list[str], int]:
    found: list[str] = []
    while True:
        count, at = _run(data, at)
        if count == 0:
            return found, at
        for _ in range(count):
            text, at = _text(data, at)
            found.append(text)


_READERS: dict[str, Read] = {"string": _text, "long": _long, "int": _long, "boolean": _flag}


def _reader(kind: Any) -> Read:
    if isinstance(kind, str):
        return _READERS[kind]
    if kind["type"] == "array":
        return _list
    return _nullable_texts if isinstance(kind["values"], list) else _texts


def _fields(schema: Any) -> Iterator[tuple[str, bool, Read]]:
    for field in schema["fields"]:
        nullable = isinstance(field["type"], list)
        yield field["name"], nullable, _reader(field["type"][1] if nullable else field["type"])


_FIELDS = tuple(_fields(file_entry.SCHEMA))
