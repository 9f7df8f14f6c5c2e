"""`ids.bin`: the commit ids that a state still answers for, as one sealed run.

A header, then three columns, all little-endian: 64-bit hashes in ascending order, the version and the seq of each.
The header's SHA-256 covers everything, with zeros in its own place. A hit is a candidate, verified in the version file.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable

from msgspec import Struct

from tarnlog_server.codec.version_file import CorruptObject

MAGIC = b"TARNIDS\n"
FORMAT_VERSION = 1
_HEADER = struct.Struct("<8sIIqqqq32s")
_NO_SHA = bytes(32)
_ID_BYTES = 8 + 8 + 4


class CommitIdRun(Struct, frozen=True):
    """Parallel columns, sorted by hash; ids of versions from `oldest_ms` to `newest_ms` are all here."""

    state_version: int
    oldest_ms: int
    newest_ms: int
    hashes: array[int]
    versions: array[int]
    seqs: array[int]


def make_run(
    state_version: int, oldest_ms: int, newest_ms: int, entries: Iterable[tuple[int, int, int]]
) -> CommitIdRun:
    """A run of (hash, version, seq). Entries in order, such as a merge of sorted runs, are never held as objects."""
    hashes, versions, seqs = array("Q"), array("q"), array("i")
    last = (-1, 0, 0)
    in_order = True
    for entry in entries:
        in_order = in_order and last <= entry
        last = entry
        hashes.append(entry[0])
        versions.append(entry[1])
        seqs.append(entry[2])
    if not in_order:
        ordered = sorted(zip(hashes, versions, seqs, strict=True))
        hashes = array("Q", (entry[0] for entry in ordered))
        versions = array("q", (entry[1] for entry in ordered))
        seqs = array("i", (entry[2] for entry in ordered))
    return CommitIdRun(state_version, oldest_ms, newest_ms, hashes, versions, seqs)


def encode_ids(run: CommitIdRun) -> bytes:
    """The bytes of `ids.bin`: 80 for the header and 20 for each id."""
    columns = b"".join(_little(column).tobytes() for column in (run.hashes, run.versions, run.seqs))
    header = _header(run.state_version, len(run.hashes), run.oldest_ms, run.newest_ms, _NO_SHA)
    digest = hashlib.sha256(header)
    digest.update(columns)
    return header[:-32] + digest.digest() + columns


def decode_ids(key: str, data: bytes) -> CommitIdRun:
    """The run; CorruptObject names the object."""
    if len(data) < _HEADER.size:
        raise CorruptObject(key, "it is cut off")
    magic, form, _, version, count, oldest, newest, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptObject(key, "it is not a file of commit ids")
    if form != FORMAT_VERSION:
        raise CorruptObject(key, f"its format {form} is not known here, only {FORMAT_VERSION}")
    if count < 0 or len(data) != _HEADER.size + count * _ID_BYTES:
        raise CorruptObject(key, f"its {len(data)} bytes do not hold the {count} ids that it announces")
    expected = hashlib.sha256(data[: _HEADER.size - 32] + _NO_SHA)
    expected.update(memoryview(data)[_HEADER.size :])
    if expected.digest() != digest:
        raise CorruptObject(key, "its checksum does not match its content")
    at = _HEADER.size
    columns = []
    for code, width in (("Q", 8), ("q", 8), ("i", 4)):
        column = array(code)
        column.frombytes(data[at : at + count * width])
        columns.append(_little(column))
        at += count * width
    return CommitIdRun(version, oldest, newest, *columns)


def _header(version: int, count: int, oldest: int, newest: int, digest: bytes) -> bytes:
    return _HEADER.pack(MAGIC, FORMAT_VERSION, 0, version, count, oldest, newest, digest)


def _little(column: array[int]) -> array[int]:
    """The column with its bytes in the file's order, or back."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
