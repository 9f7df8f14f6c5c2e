"""Outcomes as problems, for verbs whose caller wants a result or an error."""

from __future__ import annotations

import msgspec

from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted, NotNow, Rejected, Unknown
from tarnlog.protocol.problems import ProblemError, from_document


def outcome_problem(outcome: Conflicted | Rejected | NotNow | Unknown) -> ProblemError:
    """The problem document an outcome other than committed is told with."""
    if isinstance(outcome, Conflicted):
        fields = msgspec.to_builtins(outcome)
        for name in ("outcome", "detail"):
            fields.pop(name, None)
        for name in ("lastTxnVersion", "asOfVersion"):
            if fields.get(name) is None:
                fields.pop(name, None)
        return ProblemError("commit-conflict", outcome.detail, **fields)
    if isinstance(outcome, Unknown):
        return ProblemError(
            "commit-unknown",
            "the store has not said whether the commit landed: ask for it by id, or resend it with the same commitId; "
            "delete none of its files",
            retry_after=outcome.retry_after,
            commitId=outcome.commit_id,
        )
    problem = from_document(int(outcome.problem["status"]), outcome.problem)
    if outcome.commit_id is not None:
        problem.fields.setdefault("commitId", outcome.commit_id)
    if isinstance(outcome, NotNow):
        problem.retry_after = outcome.retry_after
    return problem


def expect_committed(outcome: CommitOutcome) -> Committed:
    """The committed outcome, or the problem as an exception."""
    if isinstance(outcome, Committed):
        return outcome
    raise outcome_problem(outcome)
