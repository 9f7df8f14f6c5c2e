"""What writers sent and what they were told, and whether the log agrees with every word of it."""

from __future__ import annotations

import collections
import dataclasses

from tarnlog import CommitOutcome, Committed, Conflicted, NotNow, Rejected
from tests.process.log_reading import Json, Log, Logged, Place

SERVICE_MADE = ("CREATE TABLE", "DROP")


@dataclasses.dataclass(slots=True, eq=False)
class Sent:
    """One commit: its id, its actions as JSON, and every answer to every send of it, in the order they came."""

    commit_id: str
    actions: list[Json]
    read_version: int | None = None
    answers: list[CommitOutcome] = dataclasses.field(default_factory=list)

    @property
    def committed(self) -> Committed | None:
        return next((answer for answer in self.answers if isinstance(answer, Committed)), None)

    @property
    def never(self) -> bool:
        """Somebody was told that it will never be in the log."""
        return any(isinstance(answer, Conflicted) or slug_of(answer) == "commit-invalid" for answer in self.answers)

    @property
    def only_refused(self) -> bool:
        """Every answer said that it is not committed. A send without an answer has no place here: it is Unknown."""
        return bool(self.answers) and all(isinstance(answer, (NotNow, Rejected)) for answer in self.answers)


class Journal:
    """Everything the writers of one table did."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def new(self, commit_id: str, actions: list[Json], read_version: int | None = None) -> Sent:
        """Note a commit before it is sent for the first time."""
        sent = Sent(commit_id, actions, read_version)
        self.sent.append(sent)
        return sent

    @property
    def acknowledged(self) -> int:
        return sum(sent.committed is not None for sent in self.sent)

    def counts(self) -> dict[str, int]:
        """How often each kind of answer was given."""
        return dict(collections.Counter(type(a).__name__ for sent in self.sent for a in sent.answers))


def slug_of(answer: CommitOutcome) -> str:
    """The code of a problem, else an empty string."""
    return str(answer.problem.get("type", "")).rsplit("/", 1)[-1] if isinstance(answer, (NotNow, Rejected)) else ""


def check(journal: Journal, log: Log) -> None:
    """Fail with every disagreement between the writers' answers and the log."""
    faults = [f"{sent.commit_id}: {fault}" for sent in journal.sent for fault in _faults(sent, log)]
    ours = {sent.commit_id for sent in journal.sent}
    faults += [
        f"{commit_id} at {logged.place}: nobody sent it"
        for commit_id, logged in log.commits.items()
        if commit_id not in ours and logged.operation not in SERVICE_MADE
    ]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:20])


def _faults(sent: Sent, log: Log) -> list[str]:
    logged = log.commits.get(sent.commit_id)
    faults = [fault for answer in sent.answers for fault in _faults_of_answer(answer, logged, log)]
    if logged is None:
        return faults
    if sent.never:
        faults.append(f"told that it never lands, and it is at {logged.place}")
    if sent.only_refused:
        faults.append(f"told only that it is not committed, and it is at {logged.place}")
    if logged.read_version != sent.read_version or not _same_actions(sent.actions, logged):
        faults.append(f"the log holds something else at {logged.place}")
    return faults


def _faults_of_answer(answer: CommitOutcome, logged: Logged | None, log: Log) -> list[str]:
    if isinstance(answer, Committed):
        told = Place(answer.version, answer.seq, answer.timestamp)
        if logged is None:
            return [f"LOST: acknowledged at {told} and not in the log"]
        return [] if told == logged.place else [f"told {told} but it is at {logged.place}"]
    if isinstance(answer, Conflicted):
        return [
            f"conflicts with {winner}, which is not in the log"
            for winner in answer.winners
            if winner.commit_id is None
            or (found := log.commits.get(winner.commit_id)) is None
            or (found.place.version, found.place.seq) != (winner.version, winner.seq)
        ]
    return []


def _same_actions(actions: list[Json], logged: Logged) -> bool:
    if len(actions) != len(logged.actions):
        return False
    for action, (kind, body) in zip(actions, logged.actions, strict=True):
        wanted = action.get(kind)
        # The service may fill in what was left out, such as a deletion time; what was sent must be there unchanged.
        if wanted is None or any(body.get(name) != value for name, value in wanted.items()):
            return False
    return True
