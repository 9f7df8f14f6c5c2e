"""A commit on its way: parsed, validated as far as it can be without the head, and encoded once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip, Txn
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.predicates import Predicate
from tarnlog.protocol.schema import Schema
from tarnlog_server.core.replay import Snapshot


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReadSet:
    """What the client's decision rested on, parsed."""

    whole_table: bool = False
    filters: tuple[Predicate, ...] = ()
    paths: frozenset[str] = frozenset()
    app_ids: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        return not (self.whole_table or self.filters or self.paths or self.app_ids)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """What a commit touches, by path key; the conflict rules look at nothing else."""

    adds: dict[str, Add]
    removes: dict[str, Remove]
    skips: frozenset[str]
    txns: dict[str, Txn]
    metadata: MetaData | None
    protocol: Protocol | None

    @property
    def only_adds(self) -> bool:
        return not (self.removes or self.skips or self.txns or self.metadata or self.protocol)

    @property
    def rearranges_only(self) -> bool:
        """A compaction: file actions alone, and none of them changes data."""
        if self.skips or self.txns or self.metadata or self.protocol:
            return False
        for add in self.adds.values():
            if add.data_change:
                return False
        return bool(self.adds or self.removes) and not any(remove.data_change for remove in self.removes.values())


def footprint_of(actions: tuple[Action, ...]) -> Footprint:
    """Sort actions by what they touch. Of two actions on one path the later counts; validation refuses such pairs."""
    adds: dict[str, Add] = {}
    removes: dict[str, Remove] = {}
    skips: set[str] = set()
    txns: dict[str, Txn] = {}
    metadata: MetaData | None = None
    protocol: Protocol | None = None
    for action in actions:
        if isinstance(action, Add):
            adds[path_key(action.path)] = action
        elif isinstance(action, Remove):
            removes[path_key(action.path)] = action
        elif isinstance(action, Skip):
            skips.add(path_key(action.path))
        elif isinstance(action, Txn):
            txns[action.app_id] = action
        elif isinstance(action, MetaData):
            metadata = action
        elif isinstance(action, Protocol):
            protocol = action
    return Footprint(adds, removes, frozenset(skips), txns, metadata, protocol)


Evaluate = Callable[[Snapshot], tuple[Action, ...]]
"""Actions as a function of the head they will follow (PATCH, skips, DROP); raises ProblemError to refuse."""


@dataclasses.dataclass(slots=True, eq=False)
class Intent:
    """One commit. `lines` are its encoded actions; `evaluate`, where set, makes them anew on the head in FORMING."""

    commit_id: str
    request_hash: str
    actions: tuple[Action, ...]
    lines: bytes
    footprint: Footprint
    reads: ReadSet
    read_version: int | None
    isolation: str
    operation: str
    parameters: dict[str, Any]
    metrics: dict[str, Any]
    blind: bool
    alone: bool = False
    evaluate: Evaluate | None = None
    partition_columns: tuple[str, ...] | None = None
    """The partition columns its files were checked against; None when it adds none."""
    judged_by: Schema | None = None
    """The schema that the values of its files were checked against; None when it adds none."""
    doubts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """Faults in the partition values of its removes and skips, by path key: no faults if the live file has the same."""
    adopted_from: int | None = None
    """Set by REGISTER: the version at which another writer's log was taken over."""
    registers_only: bool | None = None
    """Whether its metaData differs from the one it was planned on by document mappings alone; None until FORMING."""
    for_dropped: bool = False
    """Whether it may follow a DROP (only REGISTER may)."""
    committed_by: str | None = None
    """The id of the API key that sent it; None without keys, and for what the service does by itself."""

    @property
    def size(self) -> int:
        return len(self.lines)
