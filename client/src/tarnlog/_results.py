"""What the service answers, as frozen values.

Only what identifies a thing is required: a newer service may add fields, an older one may leave some out.
Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tarnlog.protocol.actions import Action, Add, CommitInfo, MetaData, Protocol, Remove


class TableEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """A table as a listing names it."""

    name: str
    id: str
    location: str


class PropertyNote(Struct, frozen=True):
    """A table property that is accepted and does nothing, and what took its place."""

    property: str
    message: str


class TableInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A table at its newest version. `schema` is Spark's StructType JSON.

    `defaults` are properties that the service sets for tables which do not set them themselves, `notes` what to know of
    properties that do nothing.
    """

    name: str
    id: str
    location: str
    version: int
    schema: dict[str, Any] = {}
    partition_columns: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    description: str | None = None
    protocol: dict[str, Any] = {}
    created_time: int | None = None
    num_files: int = 0
    total_bytes: int = 0
    num_records: int | None = None
    read_only: bool = False
    defaults: dict[str, str] = {}
    notes: tuple[PropertyNote, ...] = ()


class SnapshotInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A table as it is at one version, without its files. `txns` maps an application to how far it got."""

    version: int
    timestamp: int
    meta_data: MetaData
    protocol: Protocol | None = None
    num_files: int = 0
    total_bytes: int = 0
    num_records: int | None = None
    txns: dict[str, int] = {}


class CommitRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One client's commit in the history; several may share a version, told apart by `seq`."""

    version: int
    timestamp: int
    seq: int = 0
    commit_id: str | None = None
    operation: str = "UNKNOWN"
    operation_parameters: dict[str, Any] = {}
    operation_metrics: dict[str, Any] = {}
    is_blind_append: bool | None = None
    committed_by: str | None = None
    """The id of the API key that sent it, where the service asks for keys."""


class VersionInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything one version says. `action_counts`: how many of the actions are each commit's, in the order of both."""

    version: int
    timestamp: int
    commits: tuple[CommitRecord, ...] = ()
    action_counts: tuple[int, ...] = ()
    actions: tuple[Action | CommitInfo, ...] = ()


class VersionChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """The files one version added and removed, and by which commits."""

    version: int
    timestamp: int
    commits: tuple[CommitRecord, ...] = ()
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()


class TxnInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """How far an application got in this table."""

    app_id: str
    version: int
    last_updated: int | None = None


class CheckpointInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A state that was written, of the version it names."""

    table_name: str
    checkpoint_version: int
    status: str = "success"
    num_actions: int = 0
    num_files: int = 0
    protocol_version: int = 0
    is_multi_part: bool = False


class StateInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a table's newest state does. `status` is `ours`, `foreign`, or `none`; then format and version are None."""

    table_name: str
    format: str | None = None
    version: int | None = None
    num_files: int = 0
    num_manifests: int = 0
    num_tombstones: int = 0
    tombstone_ratio: float = 0.0
    total_bytes: int = 0
    needs_compaction: bool = False
    status: str = "none"


class CleanupInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a cleanup of a table's log deleted, or would delete (`status` is `dry-run`).

    `floor` is the oldest version that can be read. Other statuses: `success`; `partial`, when some deletions failed;
    `failed`, when one did and `cleanup.failurePolicy` is `fail`, so that nothing was deleted after it;
    `disabled` by `cleanup.enabled`; `anchor-damaged`, when nothing was deleted because the floor's state is broken.
    """

    table_name: str
    status: str
    floor: int = 0
    checkpoint_version: int | None = None
    versions_deleted: int = 0
    checkpoints_deleted: int = 0
    states_deleted: int = 0
    manifests_deleted: int = 0
    files_preserved: int = 0
    message: str = ""


class RebuildInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the index holds of a table after it was made again: the versions first to last, without a gap."""

    table_name: str
    status: str = "success"
    first_version: int = 0
    last_version: int = -1
    versions: int = 0
    content_hash: str = ""


class OrphanInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A data file that nothing leads to."""

    path: str
    size: int = 0
    modified_time: int | None = None


class KeptInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many objects of a table's folder vacuum leaves alone, by reason."""

    referenced: int = 0
    young: int = 0
    in_session: int = 0
    not_data: int = 0
    other_table: int = 0
    older_than_table: int = 0


class VacuumInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a vacuum deleted, or would delete; `examples` are the first files of those that were found."""

    table_name: str
    status: str
    orphaned_files_found: int = 0
    orphaned_files_deleted: int = 0
    size_bytes_found: int = 0
    size_bytes_deleted: int = 0
    retention_hours: float = 0.0
    dry_run: bool = True
    duration_ms: int = 0
    message: str = ""
    kept: KeptInfo = KeptInfo()
    examples: tuple[OrphanInfo, ...] = ()


class WithheldInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many removed files an erase leaves, by reason."""

    in_session: int = 0
    written_again: int = 0
    older_than_table: int = 0
    other_table: int = 0
    not_data: int = 0


class EraseInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an erase deleted, or would delete; `status` is `partial` when it has to be run again."""

    table_name: str
    status: str
    version: int | None = None
    floor: int = 0
    files_found: int = 0
    files_deleted: int = 0
    size_bytes_found: int = 0
    size_bytes_deleted: int = 0
    versions_erased: int = 0
    checkpoints_deleted: int = 0
    states_deleted: int = 0
    manifests_deleted: int = 0
    dry_run: bool = False
    duration_ms: int = 0
    message: str = ""
    withheld: WithheldInfo = WithheldInfo()
    examples: tuple[OrphanInfo, ...] = ()


class CheckInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """One question that was asked of a table, and the answer."""

    name: str
    ok: bool
    detail: str = ""


class RepairedInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that a repair did."""

    object: str
    action: str = ""


class AuditInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `verify` found, or `repair` did and left. `status` is `success`, else `failed` or `incomplete`."""

    table_name: str
    status: str
    checks: tuple[CheckInfo, ...] = ()
    repaired: tuple[RepairedInfo, ...] = ()

    @property
    def failed(self) -> tuple[CheckInfo, ...]:
        """The checks that are not fine."""
        return tuple(check for check in self.checks if not check.ok)


class SessionInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A write session: vacuum deletes nothing below `prefix` (empty: in the whole table) until it expires."""

    id: str
    prefix: str = ""
    expires_at: int = 0


class NotInLog(Struct, frozen=True, kw_only=True, rename="camel"):
    """The commit was not found between these versions. Never final: resend the same commit id to settle it."""

    commit_id: str
    from_version: int | None = None
    as_of_version: int | None = None


class Health(Struct, frozen=True, kw_only=True):
    """Whether the service can serve, and what it says about it."""

    ready: bool
    detail: dict[str, Any] = {}
