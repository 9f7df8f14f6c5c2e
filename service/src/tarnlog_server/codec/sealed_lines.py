"""NDJSON whose first line starts with a CRC-32 of the whole text: version files and checkpoints notice a flipped bit.

The checksum is at a fixed place, so one look at the first bytes tells ours. Text is plain, or behind the frame `01 01`
as gzip; raw gzip is read too.
"""

from __future__ import annotations

import zlib

COMPRESS_ABOVE = 4 * 1024
MAX_INFLATED = 512 * 1024 * 1024
_FRAME = b"\x01\x01"
_GZIP = b"\x1f\x8b"
NO_CRC = "00000000"
START = b'{"commitInfo":{"crc32":"'
_AT = len(START)
UNSEALED = START + NO_CRC.encode()
"""How a text begins before it is sealed."""


class CorruptObject(ValueError):
    """An object of a log that cannot be what it should be; `key` names it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} is corrupt: {reason}")
        self.key = key
        self.reason = reason


def seal(text: bytes, *, compress: bool) -> bytes:
    """The object's bytes for a text that begins with `UNSEALED`: framed gzip when that is asked for and worth it."""
    if not text.startswith(UNSEALED):
        raise ValueError("a sealed text begins with the place of its checksum")
    sealed = START + b"%08x" % zlib.crc32(text) + text[_AT + 8 :]
    if not compress or len(sealed) <= COMPRESS_ABOVE:
        return sealed
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return _FRAME + packer.compress(sealed) + packer.flush()


def unseal(key: str, data: bytes) -> tuple[bytes, bool]:
    """The text of an object and whether it is ours; CorruptObject when ours is damaged."""
    text = inflate(key, data)
    return text, check_seal(key, text)


def check_seal(key: str, text: bytes) -> bool:
    """Whether a text is ours, its checksum verified. Others have none; a first line that is nearly ours is damaged."""
    start = text[:_AT]
    if start == START:
        if text[_AT : _AT + 8] != b"%08x" % zlib.crc32(text[_AT + 8 :], zlib.crc32(UNSEALED)):
            raise CorruptObject(key, "its checksum does not match its content")
        return True
    if len(start) == _AT and sum(a != b for a, b in zip(start, START, strict=True)) <= 2:
        raise CorruptObject(key, "its first line is damaged")
    return False


def inflate(key: str, data: bytes) -> bytes:
    """The text of an object, whatever it is wrapped in; CorruptObject on a bad or oversized stream."""
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
