"""Which manifests a compaction rewrites, and in which order and pieces their entries are written again.

Rewriting everything is always right. Rewriting some is cheaper and right only because `state_files.settle` retires a
tombstone together with its entry; which ones are chosen here decides the cost, never what is visible.
Entries are sorted by partition values, as the columns' types order them, then by path: a manifest then covers few
partitions, its bounds stay tight, and a filter on a partition reads few manifests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from tarnlog.protocol.schema import Field, Schema
from tarnlog_server.core.column_order import column_order
from tarnlog_server.core.state_files import Manifest, Tombstone, may_hold

SMALLEST_SPREAD = 5000
"""Entries below which cutting a state into more manifests saves no time."""
T = TypeVar("T")
Rank: TypeAlias = Callable[[Mapping[str, str | None]], tuple[Any, ...]]
"""The place of a file's partition values in the order of a compacted state."""


class Rewrite(msgspec.Struct, frozen=True):
    """The manifests to rewrite. `full` means all of them, written from the live files; then no tombstone remains."""

    full: bool
    names: tuple[str, ...] = ()


FULL = Rewrite(full=True)


def choose(
    manifests: tuple[Manifest, ...],
    tombstones: Mapping[str, Tombstone],
    num_files: int,
    num_added: int,
    *,
    tombstone_threshold: float,
    max_manifests: int,
    entries_per_manifest: int,
    dead_first: bool = False,
) -> Rewrite:
    """The cheapest rewrite after which neither tombstones nor the number of manifests ask for another one.

    `dead_first` rewrites every manifest with a dead entry, whatever their share (after OPTIMIZE or MERGE). Where it is
    not known which manifest holds a dead entry, or where half of all entries would be written anyway: everything.
    """
    dead = dead_entries(manifests, tombstones)
    if dead is None and (dead_first or len(tombstones) > tombstone_threshold * num_files):
        return FULL
    counts = dead or {}
    chosen: dict[str, Manifest] = {}
    left = len(tombstones)
    # Below half the threshold, so that the next few removals do not bring it back at once.
    allowed = 0 if dead_first else tombstone_threshold * num_files
    if left > allowed:
        by_share = sorted(manifests, key=lambda one: -counts[one.name] / max(one.num_entries, 1))
        for manifest in by_share:
            if left <= allowed / 2 or not counts[manifest.name]:
                break
            chosen[manifest.name] = manifest
            left -= counts[manifest.name]
    limit = manifest_limit(max_manifests, num_files, entries_per_manifest)
    target = max(limit * 3 // 4, ideal_manifests(num_files, entries_per_manifest))
    too_many = len(manifests) + (num_added > 0) > limit
    if too_many and not _add_small(chosen, manifests, counts, num_added, entries_per_manifest, target):
        return FULL
    rewritten = sum(one.num_entries for one in chosen.values())
    if not chosen or 2 * rewritten >= sum(one.num_entries for one in manifests):
        return FULL
    return Rewrite(full=False, names=tuple(one.name for one in manifests if one.name in chosen))


def _add_small(
    chosen: dict[str, Manifest],
    manifests: tuple[Manifest, ...],
    dead: Mapping[str, int],
    num_added: int,
    entries_per_manifest: int,
    target: int,
) -> bool:
    """Choose the smallest manifests too, until at most `target` are left; whether that can be reached."""

    def left() -> int:
        return len(manifests) - len(chosen) + -(-written // entries_per_manifest)

    written = num_added + sum(one.num_entries - dead.get(one.name, 0) for one in chosen.values())
    for manifest in sorted(manifests, key=lambda one: one.num_entries):
        if left() <= target:
            break
        if manifest.name not in chosen:
            chosen[manifest.name] = manifest
            written += manifest.num_entries - dead.get(manifest.name, 0)
    return left() <= target


def dead_entries(manifests: Iterable[Manifest], tombstones: Mapping[str, Tombstone]) -> dict[str, int] | None:
    """How many dead entries each manifest holds; None when a tombstone's entry may be in more than one."""
    manifests = tuple(manifests)
    counts = dict.fromkeys((manifest.name for manifest in manifests), 0)
    holders: dict[int | None, str | None] = {}
    for tombstone in tombstones.values():
        if tombstone.added_at not in holders:
            names = [one.name for one in manifests if may_hold(one, tombstone.added_at)]
            holders[tombstone.added_at] = names[0] if len(names) == 1 else None
        holder = holders[tombstone.added_at]
        if holder is None:
            return None
        counts[holder] += 1
    return counts


def ideal_manifests(num_files: int, entries_per_manifest: int) -> int:
    """How many manifests a full rewrite leaves."""
    return max(1, -(-num_files // entries_per_manifest))


def manifest_limit(max_manifests: int, num_files: int, entries_per_manifest: int) -> int:
    """How many manifests a state may have before it is compacted.

    A table that fills several manifests may have twice as many as it fills, whatever the setting: else every state of
    a table as large as the setting allows would be rewritten in full, for nothing.
    """
    ideal = ideal_manifests(num_files, entries_per_manifest)
    return max_manifests if ideal == 1 else max(max_manifests, 2 * ideal)


def partition_rank(schema: Schema, partition_columns: Iterable[str]) -> Rank:
    """The order of partition values: nulls first, then values by the column's type, then what cannot be read."""
    fields = schema.by_name()
    places = [(name, _value_rank(fields.get(name.lower()))) for name in partition_columns]
    return lambda values: tuple([place(values.get(name)) for name, place in places])


def _value_rank(field: Field | None) -> Callable[[str | None], tuple[Any, ...]]:
    """The place of one column's value. Remembered, because thousands of files share a partition."""
    order = None if field is None else column_order(field)

    @functools.lru_cache(maxsize=65_536)
    def place(text: str | None) -> tuple[Any, ...]:
        # Values of unlike types are never compared: the first part tells them apart.
        if text is None:
            return (0,)
        span = None if order is None else order.exact(text)
        return (2, text) if span is None else (1, span[0], text)

    return place


def spread_entries(count: int, entries_per_manifest: int, max_manifests: int) -> int:
    """How many entries a manifest of a state that is written anew gets, at most what the setting says.

    A filter on a partition reads a whole manifest, so a few smaller ones serve it better than one large one; half of
    the manifests that a state may have are left for the increments to come.
    """
    return min(entries_per_manifest, max(SMALLEST_SPREAD, -(-count // max(1, max_manifests // 2))))


def pieces(count: int, entries_per_manifest: int) -> list[tuple[int, int]]:
    """Where each new manifest of so many entries starts and stops."""
    number = -(-count // entries_per_manifest)
    return [(count * i // number, count * (i + 1) // number) for i in range(number)]
