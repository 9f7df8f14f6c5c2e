"""Which tables this service may read and write."""

from __future__ import annotations

import functools

from tarnlog.protocol.actions import Protocol

MAX_VERSION = 4
READER_FEATURES = frozenset(
    {"skippedFiles", "extendedMetadata", "footerOffsets", "multiPartCheckpoint", "schemaDeduplication", "avroState"}
)
WRITER_FEATURES = READER_FEATURES | {"checkpoint", "optimizeWrite"}
NEW_TABLE = Protocol(min_reader_version=4, min_writer_version=4)


def unsupported_for_reading(protocol: Protocol) -> str | None:
    """What the table needs that this service cannot read, or None."""
    return _unsupported(protocol.min_reader_version, protocol.reader_features, READER_FEATURES, "reader")


def unsupported_for_writing(protocol: Protocol) -> str | None:
    """What the table needs that this service cannot write, or None. A writer must be able to read as well."""
    return unsupported_for_reading(protocol) or _unsupported(
        protocol.min_writer_version, protocol.writer_features, WRITER_FEATURES, "writer"
    )


@functools.lru_cache(maxsize=64)
def _unsupported(version: int, features: tuple[str, ...] | None, known: frozenset[str], role: str) -> str | None:
    if version > MAX_VERSION:
        return f"{role} version {version} (this service knows 1 to {MAX_VERSION})"
    missing = sorted(set(features or ()) - known)
    return f"{role} feature {', '.join(missing)}" if missing else None
