"""The algebra of incremental states: which entries and tombstones describe a table, given an older state and what
happened since. No bytes, no storage; a state here is a list of manifests and a set of tombstones.

Two kinds of readers must see the same files. Ours knows when a tombstone was made and hides only entries older than
it. Readers in the field know a plain list of paths and hide every entry of a listed path, whenever it was added; they
also show a path twice if two manifests hold it. So every state that is written keeps three promises:

1. a path has at most one entry in all manifests of the state together;
2. a tombstone names a path that has an entry, spelled as that entry spells it, and that entry is dead;
3. so no live path is ever on the list, and both rules give the same set.

Removing a file costs a tombstone. Adding a new path costs an entry. Only a path that comes back while its old entry is
still in a shared manifest (removed and added again, or added over itself by another writer) costs more: the manifest
with the old entry is rewritten without it, and its tombstone goes with the entry. A path both added and removed since
the base leaves nothing. A tombstone is retired only together with the very entry it hides: dropping it because some
other manifest was rewritten is how removed files come back.

Which manifest holds an entry is found without reading them all: a tombstone remembers when its entry was added, and a
manifest knows the span of its entries' versions. A span may name several suspects; only those are read.

States of other writers keep no such promises: they are read by `visible` and never extended, only rewritten in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

UNKNOWN_TIME = 2**63 - 1
"""The version of a tombstone that does not tell its own: it hides every entry, as it does for readers in the field."""


class Entry(msgspec.Struct, frozen=True):
    """A file in a manifest. `key` identifies it, `path` is its spelling, `file` is the caller's and never looked at."""

    key: str
    path: str
    added_at: int
    size: int
    file: Any = None


class Removal(msgspec.Struct, frozen=True):
    """A remove action."""

    key: str
    version: int


Change: TypeAlias = Entry | Removal


class Tombstone(msgspec.Struct, frozen=True):
    """A dead entry in a shared manifest: its spelling, the version that removed it, the version that had added it."""

    key: str
    path: str
    version: int = UNKNOWN_TIME
    added_at: int | None = None


class Manifest(msgspec.Struct, frozen=True):
    """What a state knows of a manifest without reading it."""

    name: str
    num_entries: int
    min_added_at: int
    max_added_at: int


class Base(msgspec.Struct, frozen=True):
    """A state of ours that the next one is built on."""

    version: int
    manifests: tuple[Manifest, ...]
    tombstones: Mapping[str, Tombstone]
    num_files: int
    total_bytes: int


class Step(msgspec.Struct, frozen=True):
    """The next state, up to what only reading the suspects can tell.

    `added` are the entries to write, `superseded` the keys whose old entry must not survive, `suspects` the manifests
    that may hold one. `tombstones` already lacks the superseded keys.
    """

    added: tuple[Entry, ...]
    tombstones: Mapping[str, Tombstone]
    superseded: frozenset[str]
    suspects: tuple[str, ...]
    num_files: int
    total_bytes: int


class Settled(msgspec.Struct, frozen=True):
    """The next state: manifests that are shared as they are, entries to write anew, and all of its tombstones."""

    kept: tuple[Manifest, ...]
    written: tuple[Entry, ...]
    tombstones: Mapping[str, Tombstone]


def net(changes: Iterable[Change]) -> dict[str, Change]:
    """The last word on each touched path. Changes come in the order of the log."""
    last: dict[str, Change] = {}
    for change in changes:
        last[change.key] = change
    return last


def step(base: Base, changes: Iterable[Change], live_in_base: Callable[[str], Entry | None]) -> Step:
    """What follows from the changes since the base. Costs the changes and a copy of the tombstones, not the files.

    `live_in_base` gives the entry that the base shows for a key; it is asked for touched keys only.
    """
    tombstones = dict(base.tombstones)
    added: list[Entry] = []
    superseded: dict[str, int | None] = {}
    num_files, total_bytes = base.num_files, base.total_bytes
    for key, change in net(changes).items():
        old = live_in_base(key)
        if old is not None:
            num_files, total_bytes = num_files - 1, total_bytes - old.size
        if isinstance(change, Entry):
            added.append(change)
            num_files, total_bytes = num_files + 1, total_bytes + change.size
            dead = tombstones.pop(key, None)
            if dead is not None:
                superseded[key] = dead.added_at
            elif old is not None:
                superseded[key] = old.added_at
        elif old is not None:
            tombstones[key] = Tombstone(key, old.path, change.version, old.added_at)
    suspects = [
        manifest.name
        for manifest in base.manifests
        if any(may_hold(manifest, added_at) for added_at in superseded.values())
    ]
    return Step(tuple(added), tombstones, frozenset(superseded), tuple(suspects), num_files, total_bytes)


def may_hold(manifest: Manifest, added_at: int | None) -> bool:
    """Whether an entry that was added at a version can be in a manifest; unknown versions can be anywhere."""
    return added_at is None or manifest.min_added_at <= added_at <= manifest.max_added_at


def settle(base: Base, step: Step, contents: Mapping[str, Iterable[Entry]], compact: Iterable[str] = ()) -> Settled:
    """The next state, given the entries of every suspect and of every manifest that is to be compacted.

    A suspect that turns out to hold nothing superseded stays shared. Tombstones go with the entries they hide.
    """
    chosen = frozenset(compact)
    suspects = frozenset(step.suspects)
    kept: list[Manifest] = []
    written = list(step.added)
    retired: set[str] = set()
    for manifest in base.manifests:
        if manifest.name not in chosen and manifest.name not in suspects:
            kept.append(manifest)
            continue
        entries = list(contents[manifest.name])
        if manifest.name not in chosen and not any(entry.key in step.superseded for entry in entries):
            kept.append(manifest)
            continue
        for entry in entries:
            if entry.key in step.tombstones:
                retired.add(entry.key)
            elif entry.key not in step.superseded:
                written.append(entry)
    remaining = {key: tombstone for key, tombstone in step.tombstones.items() if key not in retired}
    return Settled(tuple(kept), tuple(written), remaining)


def visible(entries: Iterable[Entry], tombstones: Mapping[str, Tombstone]) -> dict[str, Entry]:
    """Our reading rule, for any state: a tombstone hides what is older than itself, and the newest entry counts.

    An entry that does not tell its version has 0, which is older than every tombstone.
    """
    shown: dict[str, Entry] = {}
    for entry in entries:
        tombstone = tombstones.get(entry.key)
        if tombstone is not None and entry.added_at < tombstone.version:
            continue
        other = shown.get(entry.key)
        if other is None or other.added_at <= entry.added_at:
            shown[entry.key] = entry
    return shown
