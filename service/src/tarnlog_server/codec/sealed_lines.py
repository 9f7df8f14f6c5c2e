"""NDJSON whose first line starts with a CRC-32 of the whole text: how checkpoints notice a flipped bit.

The same frame and the same place for the checksum as in version files, so one look at the first bytes tells ours.
"""

from __future__ import annotations

import zlib

from tarnlog_server.codec.version_file import COMPRESS_ABOVE, CorruptObject, inflate

START = b'{"commitInfo":{"crc32":"'
_AT = len(START)
_NO_CRC = b"00000000"
UNSEALED = START + _NO_CRC
"""How a text begins before it is sealed."""


def seal(text: bytes, *, compress: bool) -> bytes:
    """The object's bytes for a text that begins with `UNSEALED`: framed gzip when that is asked for and worth it."""
    if not text.startswith(UNSEALED):
        raise ValueError("a sealed text begins with the place of its checksum")
    sealed = START + b"%08x" % zlib.crc32(text) + text[_AT + 8 :]
    if not compress or len(sealed) <= COMPRESS_ABOVE:
        return sealed
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"\x01\x01" + packer.compress(sealed) + packer.flush()


def unseal(key: str, data: bytes) -> tuple[bytes, bool]:
    """The text of an object and whether it is ours; CorruptObject when ours is damaged."""
    text = inflate(key, data)
    start = text[:_AT]
    if start == START:
        blank = UNSEALED + text[_AT + 8 :]
        if text[_AT : _AT + 8] != b"%08x" % zlib.crc32(blank):
            raise CorruptObject(key, "its checksum does not match its content")
        return text, True
    if len(start) == _AT and sum(a != b for a, b in zip(start, START, strict=True)) <= 2:
        raise CorruptObject(key, "its first line is damaged")
    return text, False
