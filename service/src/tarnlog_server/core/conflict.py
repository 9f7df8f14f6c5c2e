"""The conflict rules, one function each, in the order they are asked.

A rule sees one loser (a commit that wants in) and one winner (a commit in the log since the loser's readVersion) and
answers None, or the paths that clash. `find_conflict` walks the winners and names those that the first broken rule
has. What a rule cannot know it takes for a conflict: a lost update is worse than a retry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial

import msgspec

from tarnlog.protocol.actions import Action, Add, MetaData, Remove, SubCommit
from tarnlog.protocol.commits import Conflicted, Winner
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.schema import Schema, SchemaError, parse_schema_string
from tarnlog_server.core.evolution import columns_changed
from tarnlog_server.core.intent import Footprint, Intent, footprint_of
from tarnlog_server.core.match import may_match
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import Step
from tarnlog_server.core.validate import invalid

MAX_WINNERS = 20
MAX_PATHS = 100
REGISTRY_PREFIX = "docMappingSchema."
Clash = list[str]
"""The paths that clash; may be empty when the clash is not about paths."""


class WinningCommit:
    """One sub-commit of the log, seen as a winner. Its footprint is only computed when a rule asks."""

    def __init__(self, step: Step, sub: SubCommit | None, actions: tuple[Action, ...]) -> None:
        self.step = step
        self.sub = sub
        self.actions = actions

    @cached_property
    def footprint(self) -> Footprint:
        return footprint_of(self.actions)

    @property
    def blind(self) -> bool:
        return self.sub is not None and self.sub.is_blind_append is True

    def removed_file(self, key: str) -> Add | None:
        """The file as it was before this commit removed it; None when nobody knows its values."""
        return self.step.removed.get(key)

    def named(self) -> Winner:
        sub = self.sub
        return Winner(
            version=self.step.record.version,
            seq=sub.seq if sub else 0,
            commit_id=sub.commit_id if sub else None,
            operation=sub.operation if sub else "UNKNOWN",
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What rules may look at besides loser and winner: the head, and the metaData the loser was planned on."""

    head: Snapshot
    schema: Schema
    partition_columns: tuple[str, ...]
    read_metadata: MetaData | None


Rule = Callable[[Intent, WinningCommit, Ground], Clash | None]


def protocol_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """Both change the protocol, or the winner's needs what this service cannot do."""
    theirs = winner.footprint.protocol
    if theirs is None:
        return None
    return [] if loser.footprint.protocol is not None or unsupported_for_writing(theirs) else None


def metadata_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """Both change the metaData, or the winner changed a column or the partitioning the loser's files were written for.

    Registering a document mapping is no change: those keys are merged.
    """
    theirs, before = winner.footprint.metadata, winner.step.metadata_before
    if theirs is None or same_but_registry(before, theirs):
        return None
    ours = loser.footprint.metadata
    if ours is not None and not (loser.registers_only or same_but_registry(ground.read_metadata, ours)):
        return []
    if before is None or theirs.partition_columns != before.partition_columns:
        return []
    changed = _changed_columns(before, theirs)
    return [] if any(_columns_of(add) & changed for add in loser.footprint.adds.values()) else None


def txn_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """The winner recorded progress of an application that the loser read."""
    return [] if loser.reads.app_ids & winner.footprint.txns.keys() else None


def append_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """The winner added a file that the loser's reads would have found."""
    if loser.isolation == "snapshot" or (loser.isolation == "write-serializable" and winner.blind):
        return None
    if not (loser.reads.whole_table or loser.reads.filters):
        return None
    found = [add.path for add in winner.footprint.adds.values() if reads_match(loser, add, ground)]
    return found or None


def delete_read_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """The winner removed a file that the loser read: by path, by filter, or by reading everything."""
    if loser.reads.nothing or not winner.footprint.removes:
        return None
    found = []
    for key, remove in winner.footprint.removes.items():
        read = key in loser.reads.paths or loser.reads.whole_table
        if not read and loser.reads.filters:
            file = winner.removed_file(key)
            read = file is None or reads_match(loser, file, ground)
        if read:
            found.append(remove.path)
    return found or None


def delete_delete_rule(loser: Intent, winner: WinningCommit, ground: Ground) -> Clash | None:
    """Both remove the same file."""
    both = loser.footprint.removes.keys() & winner.footprint.removes.keys()
    return [loser.footprint.removes[key].path for key in sorted(both)] or None


BEFORE_TXN = ("protocol", "metadata")
"""The rules whose news comes before `recorded already, never send it again`."""
RULES: tuple[tuple[str, Rule], ...] = (
    ("protocol", protocol_rule),
    ("metadata", metadata_rule),
    ("txn", txn_rule),
    ("append", append_rule),
    ("delete-read", delete_read_rule),
    ("delete-delete", delete_delete_rule),
)
DETAILS = {
    "protocol": "the table's protocol changed since readVersion: read the table again and send a new commit",
    "metadata": "the table's schema or properties changed since readVersion: read the table again and rebase on it",
    "txn": "another commit recorded progress of an application this one read: read its txn again and rebase",
    "append": "files that match what this commit read were added since readVersion: read them and rebase",
    "delete-read": "files that this commit read were removed since readVersion: read again and rebase",
    "delete-delete": "files that this commit removes are already removed: read again and rebase",
}


def find_conflict(loser: Intent, steps: Iterable[Step], ground: Ground) -> Conflicted | None:
    """The first rule broken by any winner, with every winner that breaks it. Costs the winners' actions."""
    broken: str | None = None
    winners: list[Winner] = []
    paths: list[str] = []
    for winner in _winners(steps):
        for name, rule in RULES:
            if broken is not None and name != broken:
                continue
            clash = rule(loser, winner, ground)
            if clash is not None:
                broken = name
                winners.append(winner.named())
                paths.extend(clash)
                break
        if len(winners) >= MAX_WINNERS:
            break
    if broken is None:
        return None
    return conflicted(loser, broken, DETAILS[broken], winners, paths)


StepOf = Callable[[int], Step | None]
"""A version of the window; None for one that left memory."""


def find_recorded_progress(loser: Intent, ground: Ground, step_of: StepOf) -> Conflicted | None:
    """The txn rule against the head: what it wants to record is recorded already, so it is done."""
    for app_id, txn in loser.footprint.txns.items():
        recorded = ground.head.txns.get(app_id)
        if recorded is not None and txn.version <= recorded[0].version:
            winner = winner_at(recorded[1], step_of, partial(_records, app_id))
            return Conflicted(
                commit_id=loser.commit_id,
                rule="txn",
                detail=f"application {app_id!r} already committed its version {recorded[0].version} at table version "
                f"{recorded[1]}: this one ({txn.version}) is done or superseded; do not send it again",
                winners=(winner,),
                retry="never",
                last_txn_version=recorded[0].version,
            )
    return None


def find_missing_files(loser: Intent, ground: Ground, step_of: StepOf) -> Conflicted | None:
    """The delete-delete rule against the head: a file to remove was removed at or before readVersion.

    ProblemError `commit-invalid` if no removal of any of these files is known: they were never live, or were removed
    longer ago than deletedFileRetention.duration. No winner could be named for that.
    """
    live = ground.head.files.has
    gone = {key: remove.path for key, remove in loser.footprint.removes.items() if not live(key)}
    if not gone:
        return None
    removed = {key: found[1] for key in gone if (found := ground.head.tombstones.get(key)) is not None}
    if not removed:
        raise invalid(
            [
                {
                    "pointer": f"/actions/{index}/remove/path",
                    "message": f"{action.path!r} is not a live file of the table at version {ground.head.version}, and "
                    "no kept version removed it: remove files that a plan or a listing names",
                }
                for index, action in enumerate(loser.actions)
                if isinstance(action, Remove) and path_key(action.path) in gone
            ]
        )
    winners = [
        winner_at(version, step_of, partial(_removes, {key for key, at in removed.items() if at == version}))
        for version in sorted(set(removed.values()))
    ]
    paths = [gone[key] for key in sorted(removed)]
    return conflicted(loser, "delete-delete", DETAILS["delete-delete"], winners, paths)


def winner_at(version: int, step_of: StepOf, touches: Callable[[Footprint], bool]) -> Winner:
    """The sub-commit of a version that touches something. A version that left memory is named alone, without it."""
    step = step_of(version)
    if step is not None:
        for winner in _winners([step]):
            if touches(winner.footprint):
                return winner.named()
    return Winner(version=version, seq=0, commit_id=None, operation="UNKNOWN")


def _records(app_id: str, touched: Footprint) -> bool:
    return app_id in touched.txns


def _removes(keys: set[str], touched: Footprint) -> bool:
    return not keys.isdisjoint(touched.removes)


def conflicted(loser: Intent, rule: str, detail: str, winners: list[Winner], paths: list[str]) -> Conflicted:
    """A conflict outcome with its lists cut to a readable size. There is at least one winner."""
    return Conflicted(
        commit_id=loser.commit_id,
        rule=rule,
        detail=detail,
        winners=tuple(winners[:MAX_WINNERS]),
        paths=tuple(paths[:MAX_PATHS]),
    )


def reads_match(loser: Intent, file: Add, ground: Ground) -> bool:
    """Whether a file could hold rows that the loser's reads select."""
    if loser.reads.whole_table:
        return True
    return any(
        may_match(
            predicate,
            ground.schema,
            ground.partition_columns,
            file.partition_values,
            file.min_values,
            file.max_values,
            ground.head.truncation,
        )
        for predicate in loser.reads.filters
    )


def same_but_registry(before: MetaData | None, after: MetaData) -> bool:
    """Whether two metaData differ at most by registered document mappings."""
    return before is not None and _without_registry(before) == _without_registry(after)


def merge_registry(head: MetaData, ours: MetaData) -> MetaData:
    """The head's registry entries, added to ours: nobody's entry is lost when another is registered."""
    registry = {key: value for key, value in head.configuration.items() if key.startswith(REGISTRY_PREFIX)}
    missing = registry.keys() - ours.configuration.keys()
    if not missing:
        return ours
    return msgspec.structs.replace(
        ours, configuration={**ours.configuration, **{key: registry[key] for key in missing}}
    )


def add_to_registry(head: MetaData, ours: MetaData) -> MetaData:
    """Our registry entries, added to the head's metaData: what a commit that only registers mappings writes."""
    registry = {key: value for key, value in ours.configuration.items() if key.startswith(REGISTRY_PREFIX)}
    return msgspec.structs.replace(head, configuration={**head.configuration, **registry})


def _without_registry(metadata: MetaData) -> tuple[object, ...]:
    plain = {key: value for key, value in metadata.configuration.items() if not key.startswith(REGISTRY_PREFIX)}
    return (
        metadata.id,
        metadata.name,
        metadata.description,
        metadata.format,
        metadata.schema_string,
        metadata.partition_columns,
        plain,
    )


def _winners(steps: Iterable[Step]) -> Iterator[WinningCommit]:
    for step in steps:
        for sub, actions in step.record.groups():
            yield WinningCommit(step, sub, actions)


def _changed_columns(before: MetaData, after: MetaData) -> frozenset[str]:
    if before.schema_string == after.schema_string:
        return frozenset()
    try:
        return columns_changed(parse_schema_string(before.schema_string), parse_schema_string(after.schema_string))
    except SchemaError:
        return frozenset()


def _columns_of(add: Add) -> frozenset[str]:
    """The columns a file is known to have: those it has statistics or partition values for."""
    return frozenset((add.min_values or {}).keys() | (add.max_values or {}).keys() | add.partition_values.keys())
