"""Replay: what a table is after a version. The newest action about a thing wins.

`append` is the only way forward: it demands the next version and gives back a new Snapshot; old ones stay valid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import immutables
import msgspec

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip, Txn
from tarnlog.protocol.paths import path_key
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.stats_truncation import recorded_length
from tarnlog_server.core.table_settings import setting
from tarnlog_server.core.tombstones import Tombstones
from tarnlog_server.core.version_record import PutId, VersionRecord

NO_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=1)
"""What a log without any protocol action means."""


class ReplayError(ValueError):
    """A version that does not follow the state it is applied to."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A table at one version. Cheap to keep: files are shared with every other snapshot of the same log."""

    version: int
    timestamp: int
    protocol: Protocol
    metadata: MetaData | None
    txns: immutables.Map[str, tuple[Txn, int]]
    skips: immutables.Map[str, Skip]
    tombstones: Tombstones
    files: FileLog
    length: int
    num_files: int
    total_bytes: int
    counted_records: int
    files_without_count: int
    dropped: bool
    truncation: int = DEFAULT_TRUNCATION
    """The smallest length to which text bounds were ever cut: a maximum that long has no upper end."""
    put_id: PutId = msgspec.UNSET
    """The identity of the version's own file, which the next version names."""

    @property
    def num_records(self) -> int | None:
        """Rows in the table, or None while a file does not tell."""
        return self.counted_records if self.files_without_count == 0 else None

    @property
    def table_id(self) -> str | None:
        return self.metadata.id if self.metadata is not None else None

    def paths(self) -> Iterator[str]:
        """The paths of all live files, in the order they were added: cheaper than their rows."""
        return self.files.paths(self.version, self.length)

    def rows(self, start: int = 0) -> Iterator[tuple[int, Add]]:
        """Live files from row `start` on, in the order they were added: a stable order for paging."""
        return self.files.rows(self.version, self.length, start)


def empty(version: int = -1) -> Snapshot:
    """The state before the first version."""
    nothing: immutables.Map[str, object] = immutables.Map()
    return Snapshot(
        version=version,
        timestamp=-1,
        protocol=NO_PROTOCOL,
        metadata=None,
        txns=nothing,  # type: ignore[arg-type]
        skips=nothing,  # type: ignore[arg-type]
        tombstones=Tombstones(),
        files=FileLog(),
        length=0,
        num_files=0,
        total_bytes=0,
        counted_records=0,
        files_without_count=0,
        dropped=False,
        put_id=None if version < 0 else msgspec.UNSET,
    )


@dataclasses.dataclass(slots=True, eq=False)
class Applied:
    """A step of replay: the new snapshot, and the files it took away (conflict rules match on their values)."""

    snapshot: Snapshot
    removed: dict[str, Add | None]
    gone_since: dict[str, tuple[Add, int]]
    """Files that were live before and are not any more (removed or replaced), each with the version that added it."""


def append(state: Snapshot, record: VersionRecord) -> Applied:
    """The state after `record`. Costs the record's actions, whatever the table's size."""
    if record.version != state.version + 1:
        raise ReplayError(f"attempted to replay version {record.version}, but the state is at version {state.version}")
    files = state.files
    protocol, metadata = state.protocol, state.metadata
    txns, skips, tombstones = state.txns, state.skips, state.tombstones.known
    num_files, total_bytes, truncation = state.num_files, state.total_bytes, state.truncation
    counted, uncounted = state.counted_records, state.files_without_count
    removed: dict[str, Add | None] = {}
    gone_since: dict[str, tuple[Add, int]] = {}
    for key, action in _in_row_order(record.actions):
        gone: Add | None = None
        since = None
        if isinstance(action, Add):
            since = files.live_since(key)
            gone = files.add(key, action, record.version, record.timestamp)
            num_files += 1
            total_bytes += action.size
            if action.num_records is None:
                uncounted += 1
            else:
                counted += action.num_records
            if tombstones and key in tombstones:
                tombstones = tombstones.delete(key)
        elif isinstance(action, Remove):
            since = files.live_since(key)
            gone = files.remove(key, record.version)
            removed[key] = gone
            tombstones = tombstones.set(key, (_timed(action, record.timestamp), record.version))
            if key in skips:
                skips = skips.delete(key)
        elif isinstance(action, Txn):
            txns = txns.set(action.app_id, (action, record.version))
        elif isinstance(action, Skip):
            skips = skips.set(key, cooled(action, skips.get(key)))
        elif isinstance(action, MetaData):
            metadata = action
            truncation = recorded_length(truncation, int(setting(action.configuration, "stats.truncation.maxLength")))
        elif isinstance(action, Protocol):
            protocol = action
        if gone is not None:
            if since is not None and since < record.version:
                gone_since.setdefault(key, (gone, since))
            num_files -= 1
            total_bytes -= gone.size
            if gone.num_records is None:
                uncounted -= 1
            else:
                counted -= gone.num_records
    if record.erases:
        tombstones = immutables.Map()  # no state names a removed file any more
    dropped = (state.dropped or record.drops_table) and not record.registers_table
    after = Snapshot(
        version=record.version,
        timestamp=record.timestamp,
        protocol=protocol,
        metadata=metadata,
        txns=txns,
        skips=skips,
        tombstones=state.tombstones if tombstones is state.tombstones.known else Tombstones(tombstones),
        files=files,
        length=len(files),
        num_files=num_files,
        total_bytes=total_bytes,
        counted_records=counted,
        files_without_count=uncounted,
        dropped=dropped,
        truncation=truncation,
        put_id=record.put_id,
    )
    return Applied(after, removed, gone_since)


def cooled(skip: Skip, previous: Skip | None) -> Skip:
    """A skip with the cooldown in force: a later skip of the same file extends it, and never ends it earlier."""
    if previous is None or previous.retry_after is None:
        return skip
    if skip.retry_after is not None and skip.retry_after >= previous.retry_after:
        return skip
    return msgspec.structs.replace(skip, retry_after=previous.retry_after)


def _timed(remove: Remove, timestamp: int) -> Remove:
    """A remove with its time. Other writers may leave it out: then it is its version's, from which on vacuum counts."""
    if remove.deletion_timestamp is not None:
        return remove
    return msgspec.structs.replace(remove, deletion_timestamp=timestamp)


def _in_row_order(actions: tuple[Action, ...]) -> list[tuple[str, Action]]:
    """The actions with the keys of their files, so that files of one version become rows in the order of their paths.

    States list them in that order too: a listing that began on the log goes on where it was on a state. Actions on one
    file stay in their order, and so do those on none.
    """
    keyed = [(path_key(one.path) if isinstance(one, Add | Remove | Skip) else "", one) for one in actions]
    spelled = {key: one.path for key, one in keyed if isinstance(one, Add)}
    if len(spelled) > 1:
        keyed.sort(key=lambda pair: spelled.get(pair[0], pair[0]))
    return keyed
