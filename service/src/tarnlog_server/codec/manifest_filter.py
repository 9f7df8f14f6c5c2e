"""Which manifests of a state a filter may leave out, by the bounds that the state keeps of them.

A manifest is asked as a file would be: its bounds span the values of all its files. A column without bounds excludes
nothing, but for a partition column that is null in every file; and where none is null, is-null excludes the manifest.
Bounds of other writers hold only as far as their order is known: they are not used.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import msgspec

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.predicates import Predicate
from tarnlog_server.codec.column_bounds import bounded_columns
from tarnlog_server.codec.partition_bounds import PartitionBounds
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.file_filter import MAYBE_NULL, Bounds, Decider, FileFilter, Leaf, PartitionValues, proof
from tarnlog_server.core.match import file_filter
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.span_tests import Compared


class ManifestFilter:
    """A filter, asked of manifests. `metadata` is that of the version that is planned."""

    def __init__(self, predicate: Predicate, metadata: MetaData | None, truncation: int = DEFAULT_TRUNCATION) -> None:
        """Raises PredicateError."""
        schema = schema_of(metadata.schema_string if metadata is not None else "")
        self._bounded = bounded_columns(metadata).keys()
        self._tree = file_filter(predicate, schema, (), truncation)

    def may_hold(self, info: ManifestInfo) -> bool:
        """Whether a file of this manifest may hold a match."""
        return self.decided(info)[0]

    def kept(self, state: StateManifest) -> list[ManifestInfo]:
        """The manifests of a state that have to be read."""
        return [info for info in state.manifests if not state.ours or self.may_hold(info)]

    def decided(self, info: ManifestInfo) -> tuple[bool, tuple[Leaf, ...]]:
        """The same, with the comparisons that decided it."""
        low, high = self.bounds_of(info)
        return proof(_settled(self._tree, info.partition_bounds or {}), {}, low, high)

    def bounds_of(self, info: ManifestInfo) -> tuple[dict[str, str], dict[str, str]]:
        """The least and greatest values of a manifest's columns, where it tells both."""
        bounds = {name: (bound.min, bound.max) for name, bound in (info.partition_bounds or {}).items()}
        low = {name: least for name, (least, greatest) in bounds.items() if least is not None and greatest is not None}
        high = {name: greatest for name, (_, greatest) in bounds.items() if name in low and greatest is not None}
        for name, (least, greatest) in (info.column_bounds or {}).items():
            # A column may have another type than when the bounds were collected.
            if name in self._bounded:
                low[name], high[name] = least, greatest
        return low, high


class _Excluded(Leaf, frozen=True):
    """A leaf that no file of the manifest can make TRUE."""

    def __call__(self, values: PartitionValues, low: Bounds, high: Bounds) -> bool:
        return False


def _settled(tree: FileFilter, bounds: Mapping[str, PartitionBounds]) -> FileFilter:
    """The filter without the leaves that the nulls of partition columns decide."""
    if isinstance(tree, Leaf):
        bound = bounds.get(tree.column)
        if bound is None or not _excluded(tree, bound):
            return tree
        return _Excluded(tree.pointer, tree.column, Decider.BOUNDS, tree.order, null=tree.null)
    args = tuple(_settled(arg, bounds) for arg in tree.args)
    return tree if all(map(operator.is_, args, tree.args)) else msgspec.structs.replace(tree, args=args)


def _excluded(leaf: Leaf, bound: PartitionBounds) -> bool:
    if leaf.null is True:
        return bound.contains_null is False and not _may_mean_null(leaf, bound)
    # A comparison with null is never TRUE, and neither is `is not null` of it.
    return bound.contains_null is True and bound.min is None and bound.max is None


def _may_mean_null(leaf: Leaf, bound: PartitionBounds) -> bool:
    """Whether a value within the bounds is one of the texts that some writers use for null."""
    least, greatest = (None if text is None else leaf.order.exact(text) for text in (bound.min, bound.max))
    if least is None or greatest is None:
        return True
    texts = [leaf.order.exact(text) for text in MAYBE_NULL]
    return any(text is not None and Compared("eq", *text)(least[0], greatest[1]) for text in texts)
