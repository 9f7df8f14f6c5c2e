"""FORMING: which waiting commits become the next version together, and what the others are told.

Members of one version must be independent: each was validated against the state the version follows, so none may touch
what another touches, nor read what another adds. One that does is deferred to the head of the next batch, not refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.commits import Committed, Conflicted
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.conflict import (
    BEFORE_TXN,
    Ground,
    conflicted,
    find_conflict,
    find_missing_files,
    find_recorded_progress,
    reads_match,
    same_but_registry,
    winner_at,
)
from tarnlog_server.core.dedupe import Known
from tarnlog_server.core.finality import conflict_on, refused_on
from tarnlog_server.core.finalize import finalize
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Step

_NO_DEFAULTS: Mapping[str, str] = {}
Answer = Committed | Conflicted | ProblemError


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much one version may hold. A commit above them goes alone."""

    commits: int = 1000
    bytes: int = 8 * 1024 * 1024
    actions: int = 50_000


@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """What FORMING decided. `needs_history` are commits whose winners are no longer in memory."""

    members: list[Intent] = dataclasses.field(default_factory=list)
    deferred: list[Intent] = dataclasses.field(default_factory=list)
    answers: list[tuple[Intent, Answer]] = dataclasses.field(default_factory=list)
    needs_history: list[Intent] = dataclasses.field(default_factory=list)


class _Taken:
    """What the members taken so far touch, grown member by member."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.ids: set[str] = set()
        self.paths: set[str] = set()
        self.app_ids: set[str] = set()
        self.members: list[Intent] = []
        self.bytes = 0
        self.actions = 0

    def depends(self, intent: Intent) -> bool:
        """Whether `intent` clashes with a member or would have read from it. The usual append costs its own paths."""
        footprint = intent.footprint
        if intent.commit_id in self.ids or not self.paths.isdisjoint(footprint.adds):
            return True
        if intent.blind:
            return False
        reads = intent.reads
        if not (
            self.paths.isdisjoint(footprint.removes)
            and self.paths.isdisjoint(footprint.skips)
            and self.paths.isdisjoint(reads.paths)
            and self.app_ids.isdisjoint(footprint.txns)
            and self.app_ids.isdisjoint(reads.app_ids)
        ):
            return True
        if not (reads.whole_table or reads.filters):
            return False
        return any(self._read_by(intent, member) for member in self.members)

    def _read_by(self, intent: Intent, member: Intent) -> bool:
        if member.footprint.removes:
            return True
        return any(reads_match(intent, add, self.ground) for add in member.footprint.adds.values())

    def has_room(self, intent: Intent, limits: Limits) -> bool:
        return not self.members or (
            len(self.members) < limits.commits
            and self.bytes + intent.size <= limits.bytes
            and self.actions + len(intent.actions) <= limits.actions
        )

    def take(self, intent: Intent) -> None:
        self.members.append(intent)
        self.ids.add(intent.commit_id)
        self.paths.update(intent.footprint.adds)
        if not intent.blind:
            self.paths.update(intent.footprint.removes, intent.footprint.skips)
            self.app_ids.update(intent.footprint.txns)
        self.bytes += intent.size
        self.actions += len(intent.actions)


def form(
    waiting: Iterable[Intent],
    tracker: SnapshotTracker,
    *,
    floor: int,
    limits: Limits,
    coalesce: bool,
    older_steps: Callable[[int], list[Step] | None],
    defaults: Mapping[str, str] = _NO_DEFAULTS,
) -> Batch:
    """Sort the waiting commits, in order, into members of the next version, deferred ones and answers.

    Costs the actions looked at; a commit that read something also costs the winners since its readVersion.
    `older_steps(version)` gives the winners after a version when the tracker's window does not reach there.
    """
    head = tracker.head
    ground = _ground(head, head.metadata)
    taken = _Taken(ground)
    batch = Batch(members=taken.members)
    full = False
    for intent in waiting:
        known = tracker.ids.recent(intent.commit_id)
        if known is not None:
            batch.answers.append((intent, replayed(intent.commit_id, intent.request_hash, known)))
            continue
        if full:
            batch.deferred.append(intent)
            continue
        try:
            _note_registering(intent, tracker, older_steps)
            verdict = _verdict(intent, tracker, ground, floor, older_steps)
            if verdict is None:
                batch.needs_history.append(intent)
                continue
            if verdict is not True:
                batch.answers.append((intent, conflict_on(verdict, intent, head.version)))
                continue
            alone = intent.alone or not coalesce
            if taken.members and (alone or taken.depends(intent)):
                batch.deferred.append(intent)
                continue
            finalize(intent, head, defaults)
            if intent.alone and not alone:
                # It turned out to register document mappings: a version has at most one metaData.
                alone = True
                if taken.members:
                    batch.deferred.append(intent)
                    continue
        except ProblemError as problem:
            batch.answers.append((intent, refused_on(problem, head.version)))
            continue
        if not taken.has_room(intent, limits):
            full = True
            batch.deferred.append(intent)
            continue
        taken.take(intent)
        full = alone
    return batch


def replayed(commit_id: str, sent_hash: str, known: Known) -> Committed | ProblemError:
    """The answer to an id that is in the log already."""
    if known.request_hash is not None and known.request_hash != sent_hash:
        return ProblemError(
            "commit-id-reused",
            f"commit {commit_id} is in the log at version {known.version} with another body; "
            "make a new commit id for a new commit",
            version=known.version,
            seq=known.seq,
        )
    return Committed(
        commit_id=commit_id, version=known.version, seq=known.seq, timestamp=known.timestamp, replayed=True
    )


def _verdict(
    intent: Intent,
    tracker: SnapshotTracker,
    ground: Ground,
    floor: int,
    older_steps: Callable[[int], list[Step] | None],
) -> Conflicted | Literal[True] | None:
    """True to admit, a conflict, or None when older winners must be read first."""
    head = ground.head
    read_version = intent.read_version
    if read_version is not None and read_version > head.version:
        raise ProblemError(
            "commit-invalid",
            f"readVersion {read_version} is above the newest version {head.version}; nothing was written",
            errors=[{"pointer": "/readVersion", "message": f"the newest version is {head.version}"}],
        )
    if intent.blind:
        return True
    recorded = find_recorded_progress(intent, ground, tracker.step)
    if read_version is not None:
        if read_version < floor:
            detail = f"readVersion {read_version} is below {floor}, the oldest version kept: read again and rebase"
            # What followed readVersion is gone: the oldest version that is kept stands for it.
            return conflicted(intent, "expired", detail, [winner_at(floor, tracker.step, lambda _: True)], [])
        if read_version < head.version and (not intent.reads.nothing or not intent.footprint.only_adds):
            steps = tracker.steps_after(read_version)
            if steps is None:
                steps = older_steps(read_version)
            if steps is None:
                return None
            # What was in force at readVersion is what the first winner found.
            since = _ground(head, steps[0].metadata_before)
            conflict = find_conflict(intent, steps, since)
            if conflict is not None and (recorded is None or conflict.rule in BEFORE_TXN):
                return conflict
    return recorded or find_missing_files(intent, ground, tracker.step) or True


def _note_registering(
    intent: Intent, tracker: SnapshotTracker, older_steps: Callable[[int], list[Step] | None]
) -> None:
    """Decide once, before finalizing rewrites it, whether a commit's metaData only registers document mappings."""
    ours, read_version = intent.footprint.metadata, intent.read_version
    if ours is None or intent.registers_only is not None or read_version is None:
        return
    if read_version >= tracker.base_version:
        intent.registers_only = same_but_registry(tracker.metadata_at(read_version), ours)
    elif (older := older_steps(read_version)) is not None:
        # What was in force then is what the first winner found; until it was read, the commit waits for it.
        intent.registers_only = same_but_registry(older[0].metadata_before, ours)


def _ground(head: Snapshot, read_metadata: MetaData | None) -> Ground:
    metadata = head.metadata
    if metadata is None:
        return Ground(head, schema_of('{"type":"struct","fields":[]}'), (), read_metadata)
    return Ground(head, schema_of(metadata.schema_string), metadata.partition_columns, read_metadata)
