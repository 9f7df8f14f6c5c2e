"""The last look at a commit, on the very head it will follow: what it says becomes exactly what is written."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tarnlog.protocol.action_json import encode_action, with_unknown_fields
from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import SchemaError, parse_schema_string
from tarnlog_server.core.conflict import add_to_registry, merge_registry
from tarnlog_server.core.evolution import SchemaChangeNotAllowed, check_evolution, check_replacement
from tarnlog_server.core.free_form import check_schema_metadata
from tarnlog_server.core.intent import Intent, footprint_of
from tarnlog_server.core.new_files import rewritten, rules_of
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.replay import Snapshot, cooled
from tarnlog_server.core.schema_dedup import lookup
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.table_settings import PropertyError, check_properties
from tarnlog_server.core.validate import invalid, judge_again

_NO_DEFAULTS: Mapping[str, str] = {}


def finalize(intent: Intent, head: Snapshot, defaults: Mapping[str, str] = _NO_DEFAULTS) -> None:
    """Check `intent` against `head` and fix its actions and bytes. Raises ProblemError.

    `defaults` are the service's settings for table properties.
    """
    if head.dropped and not intent.for_dropped:
        raise ProblemError("table-not-found", "the table was dropped; create it again or use another name")
    lacking = unsupported_for_writing(head.protocol)
    if lacking is not None:
        raise ProblemError("protocol-not-supported", f"writing to this table needs {lacking}; nothing was written")
    _check_partitioning(intent, head)
    if intent.evaluate is not None:
        _rewrite(intent, intent.evaluate(head))
    is_live = head.files.has
    for key, add in intent.footprint.adds.items():
        if is_live(key):
            message = f"{add.path!r} is already a live file of the table: give new files new names"
            raise invalid([{"pointer": "/actions", "message": message}])
    _check_mappings(intent, head)
    _check_values(intent, head)
    _rewrite_files(intent, head, defaults)
    if intent.footprint.metadata or intent.footprint.protocol or intent.footprint.skips:
        _rewrite(intent, tuple(_finalized(action, intent, head, defaults) for action in intent.actions))


def _check_mappings(intent: Intent, head: Snapshot) -> None:
    """A file that refers to a document mapping comes after the mapping: else no reader could ever resolve it."""
    if not any(add.doc_mapping_ref and add.doc_mapping_json is None for add in intent.footprint.adds.values()):
        return
    registry = dict(head.metadata.configuration) if head.metadata is not None else {}
    for action in intent.actions:
        if isinstance(action, MetaData):
            registry.update(action.configuration)
    errors = []
    for index, action in enumerate(intent.actions):
        ref = action.doc_mapping_ref if isinstance(action, Add) and action.doc_mapping_json is None else None
        if ref and lookup(ref, registry) is None:
            message = (
                f"the table has no document mapping {ref!r}: "
                "send the mapping itself as docMappingJson, and it is registered with this commit"
            )
            errors.append({"pointer": f"/actions/{index}/add/docMappingRef", "message": message})
    if errors:
        raise invalid(errors)


def _rewrite_files(intent: Intent, head: Snapshot, defaults: Mapping[str, str]) -> None:
    """Move document mappings out and cut long bounds. A commit that registers a mapping then goes alone."""
    if head.metadata is None or not intent.footprint.adds:
        return
    rules = rules_of(head.metadata, head.protocol, defaults)
    actions = rewritten(intent.actions, intent.footprint.adds.values(), rules)
    if actions is None:
        return
    if len(actions) > len(intent.actions):
        intent.registers_only = intent.alone = True
    _rewrite(intent, actions)


def _check_partitioning(intent: Intent, head: Snapshot) -> None:
    """Only another writer can change the partition columns; files of the old ones then do not fit any more."""
    columns = head.metadata.partition_columns if head.metadata is not None else ()
    if intent.partition_columns is not None and intent.partition_columns != columns:
        message = f"the table's partition columns are {list(columns)} now: read the table again and write new files"
        raise invalid([{"pointer": "/actions", "message": message}])


def _check_values(intent: Intent, head: Snapshot) -> None:
    """Judge the files by the schema that the version will have, if that is not the one they were judged by.

    A blind append meets another schema without a conflict: a commit before it may have replaced every file. Partition
    values of removes and skips that do not fit are those of an older log if the live file has them too.
    """
    ours = None if intent.registers_only else intent.footprint.metadata
    metadata = ours or head.metadata
    if intent.judged_by is not None and metadata is not None:
        schema = schema_of(metadata.schema_string)
        if schema is not intent.judged_by:
            judge_again(intent.actions, schema, head.truncation)
            intent.judged_by = schema
    if intent.doubts:
        for action in intent.actions:
            if isinstance(action, Remove | Skip) and (fault := intent.doubts.get(path_key(action.path))) is not None:
                live = head.files.live(path_key(action.path))
                if live is None or live.partition_values != action.partition_values:
                    raise invalid([fault])


def _rewrite(intent: Intent, actions: tuple[Action, ...]) -> None:
    if actions == intent.actions and intent.lines:
        return
    intent.actions = actions
    intent.footprint = footprint_of(actions)
    intent.lines = b"\n".join(encode_action(action) for action in actions)


def _finalized(action: Action, intent: Intent, head: Snapshot, defaults: Mapping[str, str]) -> Action:
    if isinstance(action, Skip):
        return _counted_skip(action, head)
    if isinstance(action, MetaData):
        if intent.registers_only and head.metadata is not None:
            # Everything but the mappings is the head's: what others changed since it was planned stays.
            action = add_to_registry(head.metadata, action)
        return _checked_metadata(action, head, defaults, replaces_all=_replaces_all(intent, head))
    if isinstance(action, Protocol):
        _check_protocol(action, head)
    return action


def _counted_skip(skip: Skip, head: Snapshot) -> Skip:
    key = path_key(skip.path)
    if not head.files.has(key):
        message = f"{skip.path!r} is not a live file of the table, so there is nothing to skip"
        raise invalid([{"pointer": "/path", "message": message}])
    previous = head.skips.get(key)
    # Written as it is in force, for readers that look at the newest skip of a file alone.
    return msgspec.structs.replace(cooled(skip, previous), skip_count=1 + (previous.skip_count if previous else 0))


def _replaces_all(intent: Intent, head: Snapshot) -> bool:
    """Whether no live file outlives the commit, or there is none: then none has to be readable under its schema.

    A PATCH is not asked: its schemas only grow.
    """
    removes = intent.footprint.removes
    return intent.evaluate is None and len(removes) == head.num_files and all(map(head.files.has, removes))


def _checked_metadata(ours: MetaData, head: Snapshot, defaults: Mapping[str, str], *, replaces_all: bool) -> MetaData:
    """Only what PATCH would allow: the same table, an allowed evolution, valid properties.

    A commit that leaves no file of before may set any schema that has the partition columns as they are.
    """
    current = head.metadata
    if current is None:
        return ours
    if ours.id != current.id:
        raise invalid([{"pointer": "/actions", "message": f"metaData.id must stay {current.id!r}"}])
    if ours.partition_columns != current.partition_columns:
        raise ProblemError(
            "schema-change-not-allowed",
            f"partitionColumns must stay {list(current.partition_columns)}: write to a new table to change them",
        )
    if ours.format.provider != current.format.provider:
        raise invalid([{"pointer": "/actions", "message": f"format.provider must stay {current.format.provider!r}"}])
    try:
        new = parse_schema_string(ours.schema_string)
        if ours.schema_string != current.schema_string:
            check_schema_metadata(new)
        check = check_replacement if replaces_all else check_evolution
        check(schema_of(current.schema_string), new, current.partition_columns)
        check_properties(ours.configuration, current.configuration, defaults)
    except SchemaError as error:
        raise ProblemError("schema-invalid", str(error)) from error
    except SchemaChangeNotAllowed as error:
        raise ProblemError("schema-change-not-allowed", str(error)) from error
    except PropertyError as error:
        raise ProblemError("property-invalid", str(error)) from error
    # The creation time decides which files are the table's to delete: no commit changes it.
    dated = msgspec.structs.replace(merge_registry(current, ours), created_time=current.created_time)
    merged = with_unknown_fields(dated, current)
    assert isinstance(merged, MetaData)
    return merged


def _check_protocol(ours: Protocol, head: Snapshot) -> None:
    lacking = unsupported_for_writing(ours)
    if lacking is not None:
        raise ProblemError("protocol-not-supported", f"the protocol asks for {lacking}; the table was not changed")
    current = head.protocol
    lower = ours.min_reader_version < current.min_reader_version or ours.min_writer_version < current.min_writer_version
    dropped = (set(current.reader_features or ()) | set(current.writer_features or ())) - (
        set(ours.reader_features or ()) | set(ours.writer_features or ())
    )
    if lower or dropped:
        message = f"a protocol only grows: the table is at {current.min_reader_version}/{current.min_writer_version}"
        raise invalid([{"pointer": "/actions", "message": message}])
