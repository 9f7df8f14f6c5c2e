"""From a state to what replay would have given at its version, and back."""

from __future__ import annotations

from collections.abc import Iterable

import immutables
import msgspec

from tarnlog.protocol.actions import Remove, Skip, Txn
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.table_state import State, StateFacts, StateFile, StateRemove
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.stats_truncation import recorded_length
from tarnlog_server.core.table_settings import setting
from tarnlog_server.core.tombstones import Tombstones


def snapshot_of(state: State) -> Snapshot:
    """The snapshot a state describes, its files ordered by the version that added them. Columns cost nothing more."""
    facts = state.facts
    if isinstance(state.files, FileColumns):
        files = FileLog(state.files)
        total, counted, uncounted = state.files.totals()
    else:
        files, total, counted, uncounted = _logged(state.files, facts.version)
    txns: dict[str, tuple[Txn, int]] = {txn.app_id: (txn, version) for txn, version in facts.txns}
    skips: dict[str, Skip] = {path_key(skip.path): skip for skip in facts.skips}
    return Snapshot(
        version=facts.version,
        timestamp=facts.timestamp,
        protocol=facts.protocol,
        metadata=facts.metadata,
        txns=immutables.Map(txns),
        skips=immutables.Map(skips),
        tombstones=Tombstones(make=lambda: _removed(facts)),
        files=files,
        length=len(files),
        num_files=files.live_count,
        total_bytes=total,
        counted_records=counted,
        files_without_count=uncounted,
        dropped=facts.dropped,
        truncation=_truncation(facts),
        put_id=facts.version_put_id if state.ours else msgspec.UNSET,
    )


def _removed(facts: StateFacts) -> dict[str, tuple[Remove, int]]:
    return {path_key(removed.path): (removed.timed(), removed.version) for removed in facts.removes}


def _truncation(facts: StateFacts) -> int:
    """What the state recorded; another writer's recorded nothing, and cuts at the usual length or the table's."""
    configuration = facts.metadata.configuration if facts.metadata is not None else {}
    known = DEFAULT_TRUNCATION if facts.truncation_length is None else facts.truncation_length
    return recorded_length(known, int(setting(configuration, "stats.truncation.maxLength")))


def _logged(state_files: Iterable[StateFile], newest: int) -> tuple[FileLog, int, int, int]:
    """The files in a log, their bytes, the rows they tell of, and how many do not tell.

    Another writer's state may name versions above its own, and rows are in the order of versions for good: there they
    are of the state's.
    """
    files = FileLog()
    total = counted = uncounted = 0
    for file in sorted(state_files, key=lambda file: (min(file.added_at_version, newest), file.add.path)):
        added_at = min(file.added_at_version, newest)
        gone = files.add(path_key(file.add.path), file.add, added_at, file.added_at_timestamp)
        for add, sign in ((file.add, 1), (gone, -1)):
            if add is not None:
                total += sign * add.size
                counted += sign * (add.num_records or 0)
                uncounted += sign * (add.num_records is None)
    return files, total, counted, uncounted


def facts_of(
    snapshot: Snapshot,
    put_id: str | None,
    sha256: str,
    unexpired_since_ms: int,
    foreign_times: dict[int, int],
    adopted_from: int | None = None,
) -> StateFacts:
    """Everything of a snapshot but its files. A remove is kept while vacuum must still see it."""
    removes = []
    for _, (remove, version) in sorted(snapshot.tombstones.known.items()):
        deleted = remove.deletion_timestamp if remove.deletion_timestamp is not None else snapshot.timestamp
        if deleted > unexpired_since_ms:
            removes.append(StateRemove(remove.path, version, deleted, remove))
    return StateFacts(
        version=snapshot.version,
        timestamp=snapshot.timestamp,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        txns=tuple(snapshot.txns[app_id] for app_id in sorted(snapshot.txns)),
        skips=tuple(skip for _, skip in sorted(snapshot.skips.items())),
        removes=tuple(removes),
        truncation_length=snapshot.truncation,
        version_put_id=put_id,
        version_sha256=sha256,
        dropped=snapshot.dropped,
        adopted_from=adopted_from,
        version_timestamps=tuple(sorted((v, time) for v, time in foreign_times.items() if v <= snapshot.version)),
    )
