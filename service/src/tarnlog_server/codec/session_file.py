"""`_sessions/<id>.json`: a writer that is at work below a prefix, and until when it is believed to be."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tarnlog_server.codec.version_file import CorruptObject


class SessionFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A write session as it is stored. The empty prefix is the whole table; times are epoch milliseconds."""

    id: str
    prefix: str
    expires_at: int
    created_at: int = 0


_DECODER = msgspec.json.Decoder(SessionFile)


def encode_session(session: SessionFile) -> bytes:
    """The bytes of a session."""
    return msgspec.json.encode(session)


def decode_session(key: str, data: bytes) -> SessionFile:
    """A session. CorruptObject when it cannot be read: what it covers is then not known, so nothing may be deleted."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptObject(key, f"the write session cannot be read ({error}); end it with DELETE") from error
