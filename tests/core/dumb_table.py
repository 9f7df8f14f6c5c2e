"""A table as plainly as it can be said: dicts, copied on every version. What the real replay must agree with."""

from __future__ import annotations

import copy

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip, Txn
from tarnlog.protocol.paths import path_key
from tarnlog_server.core.replay import Snapshot


class DumbTable:
    """The state after some versions. `apply` changes it in place; `copied` keeps an old one."""

    def __init__(self) -> None:
        self.version = -1
        self.files: dict[str, Add] = {}
        self.since: dict[str, int] = {}
        self.tombstones: dict[str, Remove] = {}
        self.skips: dict[str, Skip] = {}
        self.txns: dict[str, tuple[Txn, int]] = {}
        self.metadata: MetaData | None = None
        self.protocol: Protocol | None = None

    def apply(self, actions: tuple[Action, ...]) -> None:
        self.version += 1
        for action in actions:
            match action:
                case Add():
                    self.files[path_key(action.path)] = action
                    self.since[path_key(action.path)] = self.version
                    self.tombstones.pop(path_key(action.path), None)
                case Remove():
                    self.files.pop(path_key(action.path), None)
                    self.tombstones[path_key(action.path)] = action
                    self.skips.pop(path_key(action.path), None)
                case Skip():
                    self.skips[path_key(action.path)] = action
                case Txn():
                    self.txns[action.app_id] = (action, self.version)
                case MetaData():
                    self.metadata = action
                case Protocol():
                    self.protocol = action

    def copied(self) -> DumbTable:
        return copy.deepcopy(self)

    def assert_same(self, snapshot: Snapshot) -> None:
        """Every face of the snapshot, recomputed from scratch."""
        listed = [file for _, file in snapshot.rows()]
        in_order = sorted(self.files.items(), key=lambda item: (self.since[item[0]], item[1].path))
        assert listed == [file for _, file in in_order], "live files, in the order of versions, then of paths"
        assert snapshot.version == self.version
        assert snapshot.num_files == len(self.files)
        assert snapshot.total_bytes == sum(file.size for file in self.files.values())
        counts = [file.num_records for file in self.files.values()]
        known = [count for count in counts if count is not None]
        assert snapshot.num_records == (sum(known) if len(known) == len(counts) else None)
        assert {key: remove for key, (remove, _) in snapshot.tombstones.items()} == self.tombstones
        assert dict(snapshot.skips) == self.skips
        assert dict(snapshot.txns) == self.txns
        assert snapshot.metadata == self.metadata
        assert snapshot.protocol == (self.protocol or Protocol(min_reader_version=1, min_writer_version=1))
