"""The driver's half of a write: messages of the winning tasks in, one commit out, and the truth about its outcome.

Nothing is deleted unless the service said that the commit will never land (commit-conflict, commit-invalid). After any
other failure the files stay, covered by the write session until it expires, and then they are vacuum's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from tarnlog import (
    CommitConflict,
    CommitOutcome,
    Committed,
    Conflicted,
    NotNow,
    Reads,
    Rejected,
    TarnlogError,
    Unknown,
)
from tarnlog import raise_for_outcome as value_or_error
from tarnlog.protocol.actions import Action, Add, Remove
from tarnlog.protocol.commits import Isolation
from tarnlog_spark._errors import ConflictError
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    from tarnlog import Client

T = TypeVar("T")
REBASES = 10
"""How often an operation is done again after it lost to another commit."""

PATIENCE_SECONDS = 300.0
"""How long the driver goes on asking about a commit whose outcome is not settled."""

NEVER_LANDS = ("commit-conflict", "commit-invalid")
"""The answers after which a commit's own files may be deleted."""


class Job(Struct, frozen=True, kw_only=True):
    """What a commit says about itself, besides its actions. `commit_id` is one for the whole job, resends included."""

    table: str
    operation: str
    commit_id: str
    read_version: int | None = None
    reads: Reads | None = None
    isolation: Isolation | None = None
    parameters: dict[str, Any] = {}
    metrics: dict[str, str] = {}
    """What history is told besides what the actions tell."""


def new_job(
    table: str,
    operation: str,
    *,
    read_version: int | None = None,
    reads: Reads | None = None,
    isolation: Isolation | None = None,
    parameters: Mapping[str, Any] | None = None,
    metrics: Mapping[str, str] | None = None,
) -> Job:
    """A job with a commit id of its own; made before the first byte is written."""
    from tarnlog import new_commit_id  # tasks import this module, and need no HTTP library

    return Job(
        table=table,
        operation=operation,
        commit_id=new_commit_id(),
        read_version=read_version,
        reads=reads,
        isolation=isolation,
        parameters=dict(parameters or {}),
        metrics=dict(metrics or {}),
    )


def commit_job(
    client: Client,
    job: Job,
    actions: Iterable[Action],
    *,
    patience: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Committed:
    """Commit, and settle what is not settled by sending the same commit again.

    ConflictError when another commit got in between; CommitUnknown when patience ends before the truth is known.
    """
    sent = tuple(actions)
    give_up, uncertain = clock() + (PATIENCE_SECONDS if patience is None else patience), False
    while True:
        outcome = client.commit(
            job.table,
            sent,
            commit_id=job.commit_id,
            read_version=job.read_version,
            reads=job.reads,
            isolation=job.isolation,
            operation=job.operation,
            operation_parameters=job.parameters,
            operation_metrics={**metrics_of(sent), **job.metrics},
        )
        if uncertain and not _settles(outcome):
            # A first try may have landed: a refusal of the second says nothing about it.
            outcome = Unknown(commit_id=job.commit_id, retry_after=getattr(outcome, "retry_after", 1.0))
        if not isinstance(outcome, Unknown | NotNow) or clock() >= give_up:
            break
        uncertain = uncertain or isinstance(outcome, Unknown)
        sleep(min(max(outcome.retry_after, 0.05), 10.0))
    try:
        return value_or_error(outcome)
    except CommitConflict as error:
        raise ConflictError(error.outcome, job.table) from None


def rebased(attempt: Callable[[], T]) -> T:
    """Do it again, from a new version, while the answer is that this can help; ConflictError after that."""
    for _ in range(REBASES - 1):
        try:
            return attempt()
        except ConflictError as error:
            if error.retry != "rebase":
                raise
    return attempt()


def _settles(outcome: CommitOutcome) -> bool:
    """Whether an answer to a resend is true of the earlier send too: not if it was judged on the head of its moment."""
    if isinstance(outcome, Rejected):
        invalid = str(outcome.problem.get("type", "")).endswith("/commit-invalid")
        return invalid and outcome.problem.get("asOfVersion") is None
    if isinstance(outcome, Conflicted):
        return outcome.as_of_version is None
    return isinstance(outcome, Committed)


@contextlib.contextmanager
def files_in_flight(storage: Storage) -> Iterator[list[Add]]:
    """Collects the files of a job; deletes them when the block ends by an answer that says they are never needed."""
    written: list[Add] = []
    try:
        yield written
    except TarnlogError as error:
        if error.slug in NEVER_LANDS:
            discard(storage, written)
        raise


def discard(storage: Storage, files: Iterable[Add]) -> None:
    """Delete files that no commit will ever name; what cannot be deleted is vacuum's."""
    for file in files:
        with contextlib.suppress(OSError):
            storage.filesystem.delete_file(storage.path(file.path))


def removal(file: Add, *, data_change: bool = True) -> Remove:
    """The action that takes a live file out of the table."""
    return Remove(
        path=file.path,
        data_change=data_change,
        deletion_timestamp=time.time_ns() // 1_000_000,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        tags=file.tags,
    )


def metrics_of(actions: Iterable[Action]) -> dict[str, str]:
    """What history shows of a commit."""
    adds = [action for action in actions if isinstance(action, Add)]
    removes = [action for action in actions if isinstance(action, Remove)]
    return {
        "numFiles": str(len(adds)),
        "numOutputRows": str(sum(add.num_records or 0 for add in adds)),
        "numOutputBytes": str(sum(add.size for add in adds)),
        "numRemovedFiles": str(len(removes)),
    }
