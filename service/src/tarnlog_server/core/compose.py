"""A version from its members: who is in it, in which order, and what the log says about each."""

from __future__ import annotations

from tarnlog.protocol.actions import CommitInfo, SubCommit
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.version_record import VersionRecord


def compose(version: int, timestamp: int, put_id: str, members: list[Intent]) -> VersionRecord:
    """The record of a version that holds these commits, in seq order."""
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
    return VersionRecord(version, timestamp, put_id, subs, actions, members[0].adopted_from)


def commit_info(record: VersionRecord, engine: str) -> CommitInfo:
    """What the first line of a version file says."""
    return CommitInfo(
        timestamp=record.timestamp,
        put_id=record.put_id,
        engine_info=engine,
        sub_commits=record.sub_commits,
        adopted_from=record.adopted_from,
    )
