"""Damage noticed: checksums, and one error that names the object.

Libraries that decode damaged bytes raise whatever they stumble over; here that becomes a CorruptObject.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from tarnlog_server.codec.version_file import CorruptObject


@contextlib.contextmanager
def names_object(key: str, what: str) -> Iterator[None]:
    """Turn any failure of a decoder into a CorruptObject about `key`. Only for code that does nothing but decode."""
    try:
        yield
    except CorruptObject:
        raise
    except Exception as error:
        raise CorruptObject(key, f"{what} cannot be read ({type(error).__name__}: {error})") from error


def sha256_hex(data: bytes) -> str:
    """The checksum by which states name the objects they consist of."""
    return hashlib.sha256(data).hexdigest()


def check_sha256(key: str, data: bytes, expected: str | None) -> None:
    """CorruptObject when the bytes are not those that were written; None checks nothing, as for foreign objects."""
    if expected is not None and sha256_hex(data) != expected:
        raise CorruptObject(key, "its checksum does not match its content")


_SEAL = b'{"sha256":"'
_AT = len(_SEAL)
NO_SHA256 = "0" * 64
"""What stands in a document's first member, `sha256`, while its checksum is taken."""


def seal_document(blank: bytes) -> bytes:
    """A JSON document that begins with `"sha256"` and zeros, with its own checksum in their place."""
    if not blank.startswith(_SEAL + NO_SHA256.encode()):
        raise ValueError("a sealed document begins with the place of its checksum")
    return _SEAL + sha256_hex(blank).encode() + blank[_AT + 64 :]


def check_document(key: str, text: bytes, claimed: str) -> None:
    """CorruptObject unless the document, whose decoded first member is `claimed`, is as it was sealed."""
    if text[:_AT] != _SEAL or claimed != sha256_hex(_SEAL + NO_SHA256.encode() + text[_AT + 64 :]):
        raise CorruptObject(key, "its checksum does not match its content")
