"""Versions as rows of the index and back. A row that is not as it was made does not come back: `IndexWrong`.

A checksum covers everything a row says, and which table and kind it is of, in 40 bits: few enough that a database adds
up millions of them in its integers, which is the content hash of a table.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from tarnlog_server.core.index_rows import Change, IndexWrong, VersionRow
from tarnlog_server.core.version_record import VersionRecord

CHECKSUM_BYTES = 5
UUID_LENGTH = 36


class CommitRow(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One commit of a version, as the index keeps it."""

    seq: int
    commit_id: str | None = None
    operation: str = "UNKNOWN"
    parameters: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    blind: bool = False
    request_hash: str | None = None
    by: str | None = None


_COMMITS = msgspec.json.Decoder(tuple[CommitRow, ...])
_ENCODE = msgspec.json.Encoder().encode


def change_of(location: str, record: VersionRecord) -> Change:
    """What a version adds to the index. Costs its commits."""
    commits = _ENCODE(_commits(record)).decode()
    checksum = checksum_of(location, "version", record.version, record.timestamp, commits)
    return Change(
        VersionRow(record.version, record.timestamp, commits, checksum),
        # Ids of ours are UUIDs; whatever else stands there is nothing that anyone asks for.
        tuple((sub.commit_id, sub.seq) for sub in record.sub_commits if len(sub.commit_id) == UUID_LENGTH),
    )


def commits_of(location: str, row: VersionRow) -> tuple[CommitRow, ...]:
    """The commits of a row; IndexWrong unless it is as it was made for this table."""
    _check(row.checksum, location, "version", row.version, row.timestamp, row.commits)
    with _readable():
        return _COMMITS.decode(row.commits)


def checksum_of(*parts: str | int) -> int:
    """The checksum of what a row says. Parts are told apart, so text cannot wander from one to the next."""
    data = msgspec.msgpack.encode(parts)
    return int.from_bytes(hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).digest(), "big")


def _commits(record: VersionRecord) -> tuple[CommitRow, ...]:
    return tuple(
        CommitRow(
            seq=sub.seq,
            commit_id=sub.commit_id or None,
            operation=sub.operation,
            parameters=sub.operation_parameters,
            metrics=sub.operation_metrics,
            blind=sub.is_blind_append is True,
            request_hash=sub.request_hash,
            by=sub.committed_by,
        )
        for sub in record.sub_commits
    )


def _check(checksum: int, *parts: str | int) -> None:
    try:
        found = checksum_of(*parts)
    except (OverflowError, TypeError) as error:
        raise IndexWrong(f"a row of the index holds what was never put: {error}") from error
    if found != checksum:
        raise IndexWrong(f"a {parts[1]} row of {parts[0]}, version {parts[2]}, is not as it was put")


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise IndexWrong(f"a row of the index cannot be read: {error}") from error
