"""A filter as questions to one file: a tree of leaves, each decided by a partition value, by bounds, or not at all.

Negation is already in the leaves. A tree is callable with a file's partition values, least and greatest values; the
answer is False only when no row of the file can make the filter TRUE. Whoever has many files walks the tree instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TypeAlias

import msgspec

from tarnlog_server.core.column_order import ColumnOrder, Span
from tarnlog_server.core.span_tests import Anything, SpanTest

PartitionValues: TypeAlias = Mapping[str, str | None]
Bounds: TypeAlias = Mapping[str, str] | None
FileTest: TypeAlias = Callable[[PartitionValues, Bounds, Bounds], bool]
"""(partition values, least values, greatest values) -> whether the file may hold a match."""
MAYBE_NULL = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that some writers use for null and others for themselves."""


class Decider(Enum):
    """What of a file a leaf looks at."""

    PARTITION = "partition"
    BOUNDS = "bounds"
    NEVER = "never"
    """No row can make it TRUE, in whatever file."""
    NOTHING = "nothing"
    """Nothing that the log tells of a file can decide it."""


def partition_value(values: PartitionValues, column: str) -> str | None:
    """The value of a partition column. Other writers may spell its name in another case, which readers pass over."""
    found = values.get(column)
    if found is None:
        wanted = column.lower()
        return next((value for name, value in values.items() if value is not None and name.lower() == wanted), None)
    return found


class Leaf(msgspec.Struct, frozen=True):
    """One comparison. `null` is the question of is-null (True) and is-not-null (False); None for the others."""

    pointer: str
    """Where it stands in the filter (RFC 6901)."""
    column: str
    decider: Decider
    order: ColumnOrder
    test: SpanTest = Anything()
    null: bool | None = None
    truncation: int = 0

    def __call__(self, values: PartitionValues, low: Bounds, high: Bounds) -> bool:
        if self.decider is Decider.PARTITION:
            return self.admits_value(partition_value(values, self.column))
        if self.decider is Decider.BOUNDS:
            return self.admits_bounds(low.get(self.column) if low else None, high.get(self.column) if high else None)
        return self.decider is Decider.NOTHING

    def admits_value(self, text: str | None) -> bool:
        """Whether a file of this partition value may hold a match."""
        if self.null is not None:
            return text in MAYBE_NULL or (text is None) is self.null
        if text is None:
            return False
        span = None if text in MAYBE_NULL else self.order.exact(text)
        return span is None or self.test(*span)

    def admits_bounds(self, least: str | None, greatest: str | None) -> bool:
        """Whether a file of these bounds may hold a match."""
        span = self.span(least, greatest)
        return span is None or self.test(*span)

    def span(self, least: str | None, greatest: str | None) -> Span | None:
        """The values that a file of these bounds may hold; None for any."""
        if least is None or greatest is None:
            return None
        return self.order.bounds(least, greatest, self.truncation)


class Every(msgspec.Struct, frozen=True):
    """All of them."""

    args: tuple[FileFilter, ...]

    def __call__(self, values: PartitionValues, low: Bounds, high: Bounds) -> bool:
        return all(test(values, low, high) for test in self.args)


class Some(msgspec.Struct, frozen=True):
    """At least one of them."""

    args: tuple[FileFilter, ...]

    def __call__(self, values: PartitionValues, low: Bounds, high: Bounds) -> bool:
        return any(test(values, low, high) for test in self.args)


FileFilter: TypeAlias = Leaf | Every | Some


def leaves(tree: FileFilter) -> Iterator[Leaf]:
    """All leaves, as they stand."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for arg in tree.args:
            yield from leaves(arg)


def by_partitions(tree: FileFilter) -> FileFilter | None:
    """What partition values alone can decide of a filter; None when that is nothing. It admits more, never less."""
    if isinstance(tree, Leaf):
        return tree if tree.decider in (Decider.PARTITION, Decider.NEVER) else None
    parts = [by_partitions(arg) for arg in tree.args]
    known = tuple(part for part in parts if part is not None)
    if isinstance(tree, Some):
        return Some(known) if len(known) == len(parts) else None
    return Every(known) if known else None


def proof(tree: FileFilter, values: PartitionValues, low: Bounds, high: Bounds) -> tuple[bool, tuple[Leaf, ...]]:
    """The answer for one file, and the leaves that decided it: one that failed, or all that had to hold."""
    if isinstance(tree, Leaf):
        return tree(values, low, high), (tree,)
    decisive = isinstance(tree, Some)
    deciding: tuple[Leaf, ...] = ()
    for arg in tree.args:
        answer, found = proof(arg, values, low, high)
        if answer is decisive:
            return answer, found
        deciding += found
    return not decisive, deciding
