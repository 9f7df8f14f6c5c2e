"""What an audit of a table decides without looking at storage: gaps, doubles, and where two snapshots differ."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import path_key
from tarnlog_server.core.replay import Snapshot, cooled
from tarnlog_server.core.schema_dedup import lookup, mapping_ref

SHOWN = 5
"""How many examples a finding names: an audit of a broken table must not be as large as the table."""


class Check(Struct, frozen=True):
    """One question that was asked of a table, and the answer."""

    name: str
    ok: bool
    detail: str


def some(examples: Sequence[str], total: int | None = None) -> str:
    """The first few of many, and how many more there are."""
    count = len(examples) if total is None else total
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    return ", ".join(examples[:SHOWN]) + more


def missing_versions(versions: Sequence[int], first: int, last: int) -> list[int]:
    """The numbers in first..last that are not among the versions, which are in order."""
    there = iter(version for version in versions if version >= first)
    following = next(there, None)
    missing = []
    for number in range(first, last + 1):
        if number == following:
            following = next(there, None)
        else:
            missing.append(number)
    return missing


class SeenIds:
    """Commit ids by a hash of 64 bits, 16 bytes each: a million versions fit into memory."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._versions = array("q")

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, commit_id: str, version: int) -> None:
        self._ids.append(int.from_bytes(hashlib.blake2b(commit_id.encode(), digest_size=8).digest()))
        self._versions.append(version)

    def twice(self) -> list[tuple[int, ...]]:
        """For each id that was seen more than once, the versions it was seen in."""
        doubled: set[int] = set()
        last = None
        for one in sorted(self._ids):
            if one == last:
                doubled.add(one)
            last = one
        places: dict[int, list[int]] = {}
        for one, version in zip(self._ids, self._versions, strict=True) if doubled else ():
            if one in doubled:
                places.setdefault(one, []).append(version)
        return sorted(tuple(found) for found in places.values())


def differences(replayed: Snapshot, stored: Snapshot, since: int = -1) -> list[str]:
    """Where a state tells something else than replay, as sentences. Costs the files of both.

    `since` is the version that replay began with: a state of that one, written later, may have forgotten removes which
    the stored one still has.

    A state forgets removes that vacuum needs no more, a checkpoint tells of no change of data, and a mapping may go by
    another name that means the same; all of that is right.
    """
    names = ("version", "timestamp", "protocol", "metadata", "dropped", "num_files", "total_bytes")
    found = [
        f"its {name.replace('_', ' ')} differs" for name in names if getattr(replayed, name) != getattr(stored, name)
    ]
    if dict(replayed.txns) != dict(stored.txns):
        found.append("its txns differ")
    if not _same_skips(replayed, stored):
        found.append("its skips differ")
    for key, (_, version) in stored.tombstones.known.items():
        known = replayed.tombstones.known.get(key)
        if (known is None and version > since) or (known is not None and known[1] != version):
            found.append(f"it remembers a removal of {key!r} that never was")
            break
    return found + list(_file_differences(replayed, stored))


def _same_skips(replayed: Snapshot, stored: Snapshot) -> bool:
    """States of before a shorter skip was kept from ending a longer cooldown tell the shorter one."""
    told = {key: cooled(skip, replayed.skips.get(key)) for key, skip in stored.skips.items()}
    return told == dict(replayed.skips)


def _file_differences(replayed: Snapshot, stored: Snapshot) -> Iterator[str]:
    """At most one sentence: the first file that differs. Equal numbers of files make one direction enough."""
    shown = {path_key(add.path): (row, add) for row, add in stored.rows()}
    for row, add in replayed.rows():
        other = shown.get(path_key(add.path))
        if other is None:
            yield f"the file {add.path!r} is missing from it"
            return
        since = (replayed.files.added_at(row), stored.files.added_at(other[0]))
        same = _told(add) == _told(other[1]) and _mapping(add, replayed) == _mapping(other[1], stored)
        if not same or since[0] != since[1]:
            yield f"it tells something else of the file {add.path!r}"
            return


def _told(add: Add) -> tuple[object, ...]:
    return (
        path_key(add.path),
        add.size,
        add.modification_time,
        add.num_records,
        dict(add.partition_values),
        add.stats,
    )


def _mapping(add: Add, snapshot: Snapshot) -> str | None:
    """What a file's mapping means, whatever it is called; a name that nobody knows stands for itself."""
    ref = add.doc_mapping_ref
    if ref is None or snapshot.metadata is None:
        return ref
    text = lookup(ref, snapshot.metadata.configuration)
    return ref if text is None else mapping_ref(text)
