"""Version files: NDJSON, plain or compressed, `commitInfo` first.

Reads plain text, raw gzip, and gzip behind the two-byte frame `01 01`. Writes plain text below 4 KiB and framed gzip
above: every known reader takes both. Our files carry a CRC-32 of their own text at a fixed place, so that a flipped bit
is noticed even where the JSON still parses. Anything empty, cut off or unparsable is corruption and says so.
"""

from __future__ import annotations

import zlib

import msgspec

from tarnlog.protocol.action_json import MalformedLine, decode_lines, encode_action
from tarnlog.protocol.actions import Action, CommitInfo
from tarnlog_server.core.version_record import VersionRecord

COMPRESS_ABOVE = 4 * 1024
MAX_INFLATED = 512 * 1024 * 1024
_FRAME = b"\x01\x01"
_GZIP = b"\x1f\x8b"
_CRC_PREFIX = b'{"commitInfo":{"crc32":"'
_CRC_AT = len(_CRC_PREFIX)
_NO_CRC = b"00000000"


class CorruptObject(ValueError):
    """An object of a log that cannot be what it should be; `key` names it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} is corrupt: {reason}")
        self.key = key
        self.reason = reason


def encode(info: CommitInfo, lines: list[bytes], *, compress: bool) -> bytes:
    """The bytes of a version: its commitInfo, then the encoded action lines. Costs their size."""
    first = encode_action(msgspec.structs.replace(info, crc32=_NO_CRC.decode()))
    blank = b"\n".join([first, *(line for line in lines if line), b""])
    text = _CRC_PREFIX + b"%08x" % zlib.crc32(blank) + blank[_CRC_AT + 8 :]
    if not compress or len(text) <= COMPRESS_ABOVE:
        return text
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return _FRAME + packer.compress(text) + packer.flush()


def decode(key: str, version: int, data: bytes, modified_ms: int | None = None) -> VersionRecord:
    """A version from its bytes; CorruptObject names the object. `modified_ms` stands in for a missing timestamp."""
    text = inflate(key, data)
    if not text.strip():
        raise CorruptObject(key, "it is empty")
    _check_crc(key, text)
    try:
        decoded = decode_lines(text)
    except MalformedLine as error:
        raise CorruptObject(key, str(error)) from error
    except msgspec.MsgspecError as error:
        raise CorruptObject(key, str(error)) from error
    if not decoded:
        raise CorruptObject(key, "it holds no action")
    info = next((action for action in decoded if isinstance(action, CommitInfo)), None)
    actions = tuple(action for action in decoded if isinstance(action, Action))
    if info is not None and info.sub_commits:
        expected = sum(sub.action_count for sub in info.sub_commits if isinstance(sub.action_count, int))
        if expected != len(actions):
            raise CorruptObject(key, f"its commitInfo announces {expected} actions, but {len(actions)} are there")
    timestamp = info.timestamp if info is not None and info.timestamp is not None else modified_ms
    return VersionRecord(
        version=version,
        timestamp=timestamp if timestamp is not None else -1,
        put_id=info.put_id if info else None,
        sub_commits=info.sub_commits if info else (),
        actions=actions,
        adopted_from=info.adopted_from if info else None,
    )


def _check_crc(key: str, text: bytes) -> None:
    """Verify our checksum. Other writers' files have none; a first line that is nearly ours is a damaged one."""
    start = text[:_CRC_AT]
    if start == _CRC_PREFIX:
        blank = start + _NO_CRC + text[_CRC_AT + 8 :]
        if text[_CRC_AT : _CRC_AT + 8] != b"%08x" % zlib.crc32(blank):
            raise CorruptObject(key, "its checksum does not match its content")
    elif len(start) == _CRC_AT and sum(a != b for a, b in zip(start, _CRC_PREFIX, strict=True)) <= 2:
        raise CorruptObject(key, "its first line is damaged")


def put_id_of(key: str, data: bytes) -> str | None:
    """Whose object this is; None for other writers' files. Only looks at the first line."""
    text = inflate(key, data)
    first = text.split(b"\n", 1)[0]
    try:
        found = decode_lines(first)
    except MalformedLine:
        return None
    return next((action.put_id for action in found if isinstance(action, CommitInfo)), None)


def inflate(key: str, data: bytes) -> bytes:
    """The text of a version file, whatever it is wrapped in; CorruptObject on a bad or oversized stream."""
    if data.startswith(_FRAME):
        data = data[2:]
        if not data.startswith(_GZIP):
            raise CorruptObject(key, "its frame promises gzip, but none follows")
    if not data.startswith(_GZIP):
        return data
    unpacker = zlib.decompressobj(31)
    try:
        text = unpacker.decompress(data, MAX_INFLATED)
        if unpacker.unconsumed_tail:
            raise CorruptObject(key, f"it inflates to more than {MAX_INFLATED} bytes")
        text += unpacker.flush()
    except zlib.error as error:
        raise CorruptObject(key, f"its gzip stream is broken ({error})") from error
    if not unpacker.eof:
        raise CorruptObject(key, "its gzip stream is cut off")
    return text
