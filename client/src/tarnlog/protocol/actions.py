"""The actions of a table's log, one frozen struct a type, with every field that tables in the field use.

Python names are snake_case, the wire is camelCase. Absent and null mean the same, so defaults are not written; fields
without a default (`dataChange` among them) always are, because other readers disagree on what their absence means.
Decoding against these types is strict; `action_json` is the lenient reader that keeps unknown fields.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=1024)]


class Action(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """Base of all actions. Like everything here they hold decoded JSON, in which nothing can refer back to itself: the
    garbage collector, which would look at each of the many that a table keeps, is told to pass them over."""


class Protocol(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """What a reader or writer must understand to touch the table."""

    min_reader_version: Count
    min_writer_version: Count
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Format(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What the data files are."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class MetaData(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """The table's identity, schema and properties; the newest one counts."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    created_time: Int64 | None = None


class Add(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A data file that becomes part of the table."""

    path: str
    partition_values: dict[str, str | None]
    size: Count
    modification_time: Int64
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    min_values: dict[str, str] | None = None
    max_values: dict[str, str] | None = None
    num_records: Count | None = None
    footer_start_offset: Int64 | None = None
    footer_end_offset: Int64 | None = None
    hotcache_start_offset: Int64 | None = None
    hotcache_length: Int64 | None = None
    has_footer_offsets: bool = False
    time_range_start: str | None = None
    time_range_end: str | None = None
    split_tags: tuple[str, ...] | None = None
    delete_opstamp: Int64 | None = None
    num_merge_ops: Int32 | None = None
    doc_mapping_json: str | None = None
    doc_mapping_ref: str | None = None
    uncompressed_size_bytes: Int64 | None = None
    companion_source_files: tuple[str, ...] | None = None
    companion_delta_version: Int64 | None = None
    companion_fast_field_mode: str | None = None


class Remove(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A data file that stops being part of the table; the file itself stays until vacuum."""

    path: str
    data_change: bool
    deletion_timestamp: Int64 | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Count | None = None
    tags: dict[str, str | None] | None = None


class Skip(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A live file that an operation could not process; written as `mergeskip`. It never removes the file."""

    path: str
    skip_timestamp: Int64
    reason: str
    operation: str
    partition_values: dict[str, str | None] | None = None
    size: Count | None = None
    retry_after: Int64 | None = None
    skip_count: Count = 1


class Txn(Action, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """How far an application got: the idempotence of streams."""

    app_id: Name
    version: Int64
    last_updated: Int64 | None = None


class SubCommit(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """One client's commit inside a version; its actions are the next `action_count` lines after the previous one's."""

    commit_id: str
    seq: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    operation: str = "UNKNOWN"
    operation_parameters: dict[str, Any] = {}
    operation_metrics: dict[str, Any] = {}
    is_blind_append: bool | UnsetType = UNSET
    read_version: int | None = None
    isolation: str | None = None
    request_hash: str | None = None
    action_count: Count | UnsetType = UNSET
    committed_by: str | None = None
    """The id of the API key that sent it, where keys are in use; never the key."""


class CommitInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Our record about a version; replay ignores it, dedupe and history live on it.

    `crc32` comes first so that its place in the bytes is fixed; the version file codec fills and checks it.
    `version` is the number of the file's own slot. Where it is set, `previous_put_id` is the putId of the version
    before, and None means that the version before has none: readers check both.
    """

    crc32: str | None = None
    timestamp: Int64 | None = None
    version: Int64 | None = None
    put_id: str | None = None
    previous_put_id: str | None = None
    engine_info: str | None = None
    sub_commits: tuple[SubCommit, ...] = ()
    adopted_from: int | None = None


class ActionLine(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """One line of a version file, or one element of a commit's `actions`: exactly one of these is set."""

    protocol: Protocol | None = None
    meta_data: MetaData | None = None
    add: Add | None = None
    remove: Remove | None = None
    mergeskip: Skip | None = None
    skip: Skip | None = None
    txn: Txn | None = None
    commit_info: CommitInfo | None = None


WIRE_NAMES: dict[type[Struct], str] = {
    Protocol: "protocol",
    MetaData: "metaData",
    Add: "add",
    Remove: "remove",
    Skip: "mergeskip",
    Txn: "txn",
    CommitInfo: "commitInfo",
}
TYPES_BY_WIRE_NAME: dict[str, type[Struct]] = {**{name: kind for kind, name in WIRE_NAMES.items()}, "skip": Skip}


def only_action(line: ActionLine) -> Action | CommitInfo:
    """The one action of a line; ValueError when there is none or more than one."""
    found: Action | CommitInfo | None = line.add
    for other in (line.remove, line.txn, line.meta_data, line.protocol, line.mergeskip, line.skip, line.commit_info):
        if other is not None:
            if found is not None:
                raise ValueError("an action object holds exactly one action; split this one into several objects")
            found = other
    if found is None:
        raise ValueError('an action object holds exactly one action, for example {"add": {...}}; this one is empty')
    return found


def to_wire(action: Struct) -> dict[str, Any]:
    """An action as the object a JSON reader sees, wrapped in its type name."""
    from tarnlog.protocol.action_json import encode_action

    decoded: dict[str, Any] = msgspec.json.decode(encode_action(action))
    return decoded
