"""One table of the in-memory fake: a list of versions, replayed from the start whenever it is looked at."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct, structs

from tarnlog._errors import Expired, InvalidRequest, NotFound
from tarnlog._fake_sessions import FakeSessions
from tarnlog._results import CommitRecord, SnapshotInfo, StateInfo, VersionChange, VersionInfo
from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip, Txn
from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted, Rejected, Winner
from tarnlog.protocol.paths import check_new_path, path_key
from tarnlog.protocol.problems import ProblemError


class State:
    """What replay arrives at."""

    def __init__(self) -> None:
        self.protocol: Protocol | None = None
        self.meta_data: MetaData | None = None
        self.files: dict[str, Add] = {}
        self.txns: dict[str, Txn] = {}
        self.skips: dict[str, Skip] = {}

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Add(path=path):
                    # It speaks of the commit and not of the file: the service lists none that changes data.
                    self.files[path_key(path)] = structs.replace(action, data_change=False)
                case Remove(path=path):
                    self.files.pop(path_key(path), None)
                    self.skips.pop(path_key(path), None)
                case Txn(app_id=app_id):
                    self.txns[app_id] = action
                case Skip(path=path):
                    self.skips[path_key(path)] = action
                case MetaData():
                    self.meta_data = action
                case Protocol():
                    self.protocol = action


class _Known(Struct, frozen=True):
    """A commit that was made: the answer it got and what it had asked for."""

    answer: Committed
    fingerprint: object


class FakeTable:
    """Versions from 0 on; each one holds exactly one commit."""

    def __init__(self, name: str, location: str, committed_by: str | None = None) -> None:
        self.name = name
        self.location = location
        self.committed_by = committed_by
        self.versions: list[VersionInfo] = []
        self.newest_state: StateInfo | None = None
        self.sessions = FakeSessions()
        self._known: dict[str, _Known] = {}

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    def append(
        self,
        actions: Iterable[Action],
        *,
        now_ms: int,
        operation: str,
        commit_id: str,
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        blind: bool = False,
    ) -> CommitRecord:
        """The next version, whatever it says; its time is later than that of the one before."""
        timestamp = max(now_ms, self.versions[-1].timestamp + 1) if self.versions else now_ms
        record = CommitRecord(
            version=len(self.versions),
            timestamp=timestamp,
            commit_id=commit_id,
            operation=operation,
            operation_parameters=dict(parameters or {}),
            operation_metrics=dict(metrics or {}),
            is_blind_append=blind,
            committed_by=self.committed_by,
        )
        said = tuple(actions)
        self.versions.append(
            VersionInfo(
                version=record.version,
                timestamp=timestamp,
                commits=(record,),
                action_counts=(len(said),),
                actions=said,
            )
        )
        return record

    def state(self, version: int | None = None) -> State:
        """The table at a version, by default the newest."""
        state = State()
        for info in self.versions[: (self.head if version is None else version) + 1]:
            state.apply(action for action in info.actions if isinstance(action, Action))
        return state

    def resolve(self, version: int | None, timestamp_ms: int | None) -> int:
        """The version that is meant."""
        if timestamp_ms is not None:
            found = [info.version for info in self.versions if info.timestamp <= timestamp_ms]
            if not found:
                raise Expired("The timestamp is before the oldest version that is kept.", slug="version-expired")
            return found[-1]
        if version is not None and not 0 <= version <= self.head:
            raise NotFound(f"Version {version} does not exist: the newest is {self.head}.", slug="version-not-found")
        return self.head if version is None else version

    def snapshot(self, version: int) -> SnapshotInfo:
        """The table at a version, as the service describes it."""
        state = self.state(version)
        assert state.meta_data is not None, "version 0 has it"
        files = state.files.values()
        return SnapshotInfo(
            version=version,
            timestamp=self.versions[version].timestamp,
            protocol=state.protocol,
            meta_data=state.meta_data,
            num_files=len(files),
            total_bytes=sum(file.size for file in files),
            num_records=sum(file.num_records or 0 for file in files),
            txns={app_id: txn.version for app_id, txn in state.txns.items()},
        )

    def change(self, version: int) -> VersionChange:
        """What a version did to the files."""
        info = self.versions[version]
        return VersionChange(
            version=version,
            timestamp=info.timestamp,
            commits=info.commits,
            adds=tuple(action for action in info.actions if isinstance(action, Add)),
            removes=tuple(action for action in info.actions if isinstance(action, Remove)),
        )

    def status(self, commit_id: str) -> Committed | None:
        known = self._known.get(commit_id)
        return None if known is None else known.answer

    def commit(
        self,
        actions: tuple[Action, ...],
        *,
        commit_id: str,
        read_version: int | None,
        blind: bool,
        fingerprint: object,
        now_ms: int,
        operation: str,
        parameters: Mapping[str, Any] | None,
        metrics: Mapping[str, Any] | None,
    ) -> CommitOutcome:
        """The rules that the fake knows, in the service's order: known id, validity, txn, delete-delete."""
        known = self._known.get(commit_id)
        if known is not None:
            if known.fingerprint == fingerprint:
                return Committed(
                    commit_id=commit_id,
                    version=known.answer.version,
                    seq=known.answer.seq,
                    timestamp=known.answer.timestamp,
                    replayed=True,
                )
            detail = "This commit id is in the log with another body: use a new id for a new commit."
            return rejected(commit_id, "commit-id-reused", detail, version=known.answer.version, seq=known.answer.seq)
        state = self.state()
        errors = [*self._invalid(actions, state, read_version, blind)]
        if errors:
            return rejected(
                commit_id, "commit-invalid", " ".join(errors), errors=[{"message": text} for text in errors]
            )
        conflict = self._txn_conflict(actions, state, commit_id) or self._removed_before(actions, state, commit_id)
        if conflict is not None and not conflict.winners:
            text = f"{', '.join(conflict.paths)} was never a file of the table: remove files that a plan names."
            return rejected(commit_id, "commit-invalid", text, errors=[{"message": text}])
        if conflict is not None:
            return conflict
        record = self.append(
            actions,
            now_ms=now_ms,
            operation=operation,
            commit_id=commit_id,
            parameters=parameters,
            metrics=metrics,
            blind=blind,
        )
        answer = Committed(commit_id=commit_id, version=record.version, seq=0, timestamp=record.timestamp)
        self._known[commit_id] = _Known(answer, fingerprint)
        return answer

    def _invalid(
        self, actions: tuple[Action, ...], state: State, read_version: int | None, blind: bool
    ) -> Iterable[str]:
        if not blind and read_version is None:
            yield "A commit that is not a blind append needs readVersion."
        if read_version is not None and read_version > self.head:
            yield f"readVersion {read_version} is above the newest version {self.head}."
        seen: set[str] = set()
        for action in actions:
            if not isinstance(action, (Add, Remove)):
                continue
            key = path_key(action.path)
            if key in seen:
                yield f"The path {action.path} is there twice: name it once."
            seen.add(key)
            if isinstance(action, Add) and (wrong := check_new_path(action.path)) is not None:
                yield wrong
            if isinstance(action, Add) and key in state.files:
                yield f"The path {action.path} is live already: give the new file a name of its own."

    def _txn_conflict(self, actions: tuple[Action, ...], state: State, commit_id: str) -> Conflicted | None:
        for action in actions:
            recorded = state.txns.get(action.app_id) if isinstance(action, Txn) else None
            if isinstance(action, Txn) and recorded is not None and action.version <= recorded.version:
                return Conflicted(
                    commit_id=commit_id,
                    rule="txn",
                    detail=f"Application {action.app_id} is already at {recorded.version}.",
                    winners=tuple(self._winners(partial(operator.eq, recorded)))[-1:],
                    retry="never",
                    last_txn_version=recorded.version,
                )
        return None

    def _removed_before(self, actions: tuple[Action, ...], state: State, commit_id: str) -> Conflicted | None:
        removes = {path_key(action.path): action.path for action in actions if isinstance(action, Remove)}
        gone = {key: path for key, path in removes.items() if key not in state.files}
        if not gone:
            return None
        return Conflicted(
            commit_id=commit_id,
            rule="delete-delete",
            detail="Files that this commit removes are not live: read the table again.",
            winners=tuple(self._winners(lambda one: isinstance(one, Remove) and path_key(one.path) in gone)),
            paths=tuple(gone.values()),
        )

    def _winners(self, touches: Callable[[object], bool]) -> Iterable[Winner]:
        for info in self.versions:
            if any(touches(action) for action in info.actions):
                done = info.commits[0]
                yield Winner(version=info.version, seq=0, commit_id=done.commit_id, operation=done.operation)


def rejected(commit_id: str | None, slug: str, detail: str, **fields: Any) -> Rejected:
    """A refusal with its problem document."""
    return Rejected(commit_id=commit_id, problem=ProblemError(slug, detail, **fields).document())


def must_be_live(state: State, path: str) -> Add:
    """The live file of that path."""
    file = state.files.get(path_key(path))
    if file is None:
        raise InvalidRequest(f"{path} is not a live file of the table.", slug="request-invalid")
    return file
