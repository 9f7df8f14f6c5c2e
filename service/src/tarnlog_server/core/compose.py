"""A version from its members: who is in it, in which order, and what the log says about each."""

from __future__ import annotations

from msgspec import UNSET

from tarnlog.protocol.actions import CommitInfo, SubCommit
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.version_record import PutId, VersionRecord


def compose(
    version: int, timestamp: int, put_id: str, members: list[Intent], previous_put_id: PutId = UNSET
) -> VersionRecord:
    """The record of a version with these commits, in seq order. `previous_put_id` is that of the head it follows."""
    subs = tuple(
        SubCommit(
            commit_id=intent.commit_id,
            seq=seq,
            operation=intent.operation,
            operation_parameters=intent.parameters,
            operation_metrics=intent.metrics,
            is_blind_append=intent.blind,
            read_version=intent.read_version,
            isolation=intent.isolation,
            request_hash=intent.request_hash,
            action_count=len(intent.actions),
            committed_by=intent.committed_by,
        )
        for seq, intent in enumerate(members)
    )
    actions = members[0].actions if len(members) == 1 else tuple(a for intent in members for a in intent.actions)
    return VersionRecord(version, timestamp, put_id, subs, actions, members[0].adopted_from, previous_put_id)


def commit_info(record: VersionRecord, engine: str) -> CommitInfo:
    """The first line of a version file. Without its number where the version before is not known: see CommitInfo."""
    known = record.previous_put_id is not UNSET
    return CommitInfo(
        timestamp=record.timestamp,
        version=record.version if known else None,
        put_id=record.put_id,
        previous_put_id=record.previous_put_id if isinstance(record.previous_put_id, str) else None,
        engine_info=engine,
        sub_commits=record.sub_commits,
        adopted_from=record.adopted_from,
    )
