"""The files of a stored state that a filter may select, read without opening the table.

Manifests whose partition bounds exclude the filter are not read at all. What is left is decided by partition values
first, once for each partition, and only the files of those that stay are made and looked at by their own bounds.
"""

from __future__ import annotations

from msgspec import Struct

from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.predicates import Predicate
from tarnlog_server.codec.state_manifest import ManifestInfo
from tarnlog_server.codec.table_state import State, StateFacts
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.match import FileTest, compile_predicate
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.usecases.state_read import Kind, StateRef, States


class Matching(Struct, frozen=True):
    """What may match, and what was read for it."""

    files: list[Add]
    manifests: int
    manifests_read: int


async def matching(states: States, ref: StateRef, predicate: Predicate) -> Matching:
    """The files of one state that may hold a match. Raises CorruptObject, StoreError; PredicateError for the filter.

    Costs the manifests that may hold one; a state in another format is read whole.
    """
    if ref.kind is not Kind.AVRO:
        loaded = await states.read(ref, thorough=False)
        return Matching(_matching(loaded.state, predicate), 0, 0)
    manifest = await states.manifest(ref.version)
    metadata = manifest.facts.metadata
    # Bounds of another writer hold only as far as its order is known: they are not used here.
    kept = [info for info in manifest.manifests if not manifest.ours or _may_hold(info, predicate, metadata)]
    columns = metadata.partition_columns if metadata is not None else ()
    test = _test(manifest.facts, predicate)
    files = await states.files(manifest, kept, lambda values: test(dict(zip(columns, values, strict=True)), None, None))
    state = State(manifest.facts, files, manifest.ours)
    return Matching(_matching(state, predicate), len(manifest.manifests), len(kept))


def _may_hold(info: ManifestInfo, predicate: Predicate, metadata: MetaData | None) -> bool:
    """Whether a manifest's partition bounds leave room for a match. A column without bounds excludes nothing."""
    test = compile_predicate(predicate, schema_of(metadata.schema_string if metadata is not None else ""), ())
    bounds = info.partition_bounds or {}
    low = {name: bound.min for name, bound in bounds.items() if bound.min is not None and bound.max is not None}
    high = {name: bound.max for name, bound in bounds.items() if bound.min is not None and bound.max is not None}
    return test({}, low, high)


def _matching(state: State, predicate: Predicate) -> list[Add]:
    test = _test(state.facts, predicate)
    adds = (file.add for file in state.files)
    return [add for add in adds if test(add.partition_values, add.min_values, add.max_values)]


def _test(facts: StateFacts, predicate: Predicate) -> FileTest:
    metadata, recorded = facts.metadata, facts.truncation_length
    schema = schema_of(metadata.schema_string if metadata is not None else "")
    columns = metadata.partition_columns if metadata is not None else ()
    return compile_predicate(predicate, schema, columns, DEFAULT_TRUNCATION if recorded is None else recorded)
