"""What the committer does to the files of a commit before they are written: mappings move out, long bounds are cut.

An inline document mapping becomes a reference, and its text goes into the table's registry once. Both rules depend on
the table's metaData alone, so they are looked up once for each; a file without mapping and long texts costs a glance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol
from tarnlog.protocol.schema import SchemaError, parse_schema_string
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.schema_dedup import externalise
from tarnlog_server.core.stats_truncation import text_columns, truncate
from tarnlog_server.core.table_settings import own_value, setting

DEDUPE_FROM = 3
"""The protocol version whose readers know references; older ones refuse a line with a field that they do not know."""
_FEATURE = "schemaDeduplication"
_KEPT = 256
_LENGTH = "stats.truncation.maxLength"


class Rules(msgspec.Struct, frozen=True):
    """How the files of one table are written."""

    metadata: MetaData
    protocol: Protocol
    dedupe: bool
    text_columns: frozenset[str]
    max_length: int
    """Units that are kept of a text minimum."""
    max_greatest: int
    """Units that are kept of a text maximum. By its length readers know that it was cut, and a log records only lengths
    that the table's own properties set: one of the service's is never below the length that every reader knows."""
    defaults: Mapping[str, str]


_known: dict[int, Rules] = {}


def rules_of(metadata: MetaData, protocol: Protocol, defaults: Mapping[str, str]) -> Rules:
    """The rules in force under a metaData; remembered for as long as it is the table's."""
    found = _known.get(id(metadata))
    if found is not None and found.metadata is metadata and found.protocol is protocol and found.defaults is defaults:
        return found
    if len(_known) >= _KEPT:
        _known.clear()
    columns: frozenset[str] = frozenset()
    with contextlib.suppress(SchemaError):  # what is not known to be text is never cut
        columns = text_columns(parse_schema_string(metadata.schema_string), metadata.partition_columns)
    own = own_value(metadata.configuration, _LENGTH)
    length = int(setting(metadata.configuration, _LENGTH, defaults))
    made = Rules(
        metadata=metadata,
        protocol=protocol,
        dedupe=protocol.min_reader_version >= DEDUPE_FROM or _FEATURE in (protocol.reader_features or ()),
        text_columns=columns,
        max_length=length,
        max_greatest=length if own is not None else max(length, DEFAULT_TRUNCATION),
        defaults=defaults,
    )
    _known[id(metadata)] = made
    return made


def rewritten(actions: tuple[Action, ...], adds: Iterable[Add], rules: Rules) -> tuple[Action, ...] | None:
    """The actions as they are written; None when they are right as they are.

    Mappings that are not registered yet come with a metaData that registers them: the commit's own, or the table's
    with nothing else changed.
    """
    changed: dict[int, Add] = {}
    entries: dict[str, str] = {}
    registry = rules.metadata.configuration
    for add in adds:
        after = add
        if add.doc_mapping_json is not None and rules.dedupe:
            moved = externalise(add, {**registry, **entries} if entries else registry)
            after = moved.add
            entries.update(moved.entries)
        if after.min_values or after.max_values:
            after = truncate(after, rules.text_columns, rules.max_length, rules.max_greatest)
        if after is not add:
            changed[id(add)] = after
    if not changed:
        return None
    found: list[Action] = [changed.get(id(action), action) for action in actions]
    return tuple(_registering(found, entries, rules.metadata) if entries else found)


def _registering(actions: list[Action], entries: dict[str, str], head: MetaData) -> list[Action]:
    for index, action in enumerate(actions):
        if isinstance(action, MetaData):
            actions[index] = msgspec.structs.replace(action, configuration={**action.configuration, **entries})
            return actions
    # Before the files that refer to it: a reader of the log meets the text first.
    return [msgspec.structs.replace(head, configuration={**head.configuration, **entries}), *actions]
