"""`_last_checkpoint`: where to start looking. A hint, so it is read leniently: all it must tell is a version.

Other readers reject members they do not know, so it never gets one of ours.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tarnlog_server.codec.version_file import CorruptObject, inflate


class LastCheckpoint(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`size` counts actions, `size_in_bytes` the bytes of the live files. A format of None means JSON."""

    version: int
    size: int
    size_in_bytes: int
    num_files: int
    created_time: int
    parts: int | None = None
    checkpoint_id: str | None = None
    format: str | None = None
    state_dir: str | None = None


_TEXTS = ("checkpointId", "format", "stateDir")
_NUMBERS = ("size", "sizeInBytes", "numFiles", "createdTime")


def encode_last_checkpoint(last: LastCheckpoint) -> bytes:
    """The bytes of the hint."""
    return msgspec.json.encode(last)


def decode_last_checkpoint(key: str, data: bytes) -> LastCheckpoint:
    """The hint, with zeros for counts that are missing; CorruptObject when it does not even tell a version."""
    try:
        found = msgspec.json.decode(inflate(key, data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptObject(key, f"it is not JSON ({error})") from error
    version = _number(found.get("version")) if isinstance(found, dict) else None
    if version is None:
        raise CorruptObject(key, "it names no version")
    known = {name: _number(found.get(name)) or 0 for name in _NUMBERS}
    texts = {name: found[name] for name in _TEXTS if isinstance(found.get(name), str)}
    return LastCheckpoint(
        version=version,
        size=known["size"],
        size_in_bytes=known["sizeInBytes"],
        num_files=known["numFiles"],
        created_time=known["createdTime"],
        parts=_number(found.get("parts")),
        checkpoint_id=texts.get("checkpointId"),
        format=texts.get("format"),
        state_dir=texts.get("stateDir"),
    )


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None
