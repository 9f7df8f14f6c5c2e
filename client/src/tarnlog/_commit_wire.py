"""A commit over the wire: its body, its answers, and the one rule for sending it again.

Every send of one call carries the same commit id, so a resend can never commit twice. Once a send may have arrived
without its answer coming back, only `committed`, `conflict` and `commit-invalid` settle the commit: any other answer
is about the resend alone, and the outcome stays unknown. So it does after a refusal that was judged on the newest
version of that moment (`asOfVersion`): the earlier send may be judged on another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tarnlog._errors import InvalidRequest, error_from
from tarnlog._exchange import (
    CHECK,
    Answer,
    Attempts,
    Call,
    Exchange,
    NoAnswer,
    Pace,
    Request,
    Send,
    no_answer_text,
    not_now_text,
    received,
)
from tarnlog._results import NotInLog
from tarnlog._wire import JSON, convert, decoded, problem_document, problem_of, retry_after, table_path
from tarnlog.protocol.action_json import DECODE_ERRORS, encode_action
from tarnlog.protocol.actions import Action
from tarnlog.protocol.commits import (
    CommitOutcome,
    Committed,
    Conflicted,
    Isolation,
    NotNow,
    Reads,
    Rejected,
    Unknown,
)
from tarnlog.protocol.problems import TYPE_PREFIX

_NOT_COMMITTED_YET = frozenset(
    {"too-many-waiting", "commit-contended", "clock-skew", "not-ready", "request-timeout", "too-many-connections"}
)
_NEVER_RESENT = frozenset({"log-corrupt"})
_HEAD_TOO_LARGE = 431
"""An earlier release answers it to commits of about 700 files that it has written: it settles nothing, and a resend
of the same bytes gets it again."""
_DEFAULT_RETRY_AFTER = 1.0


def commit_request(
    table: str,
    actions: Iterable[Action],
    *,
    commit_id: str,
    read_version: int | None,
    reads: Reads | None,
    isolation: Isolation | None,
    operation: str,
    operation_parameters: Mapping[str, Any] | None,
    operation_metrics: Mapping[str, Any] | None,
    coalesce: bool | None,
) -> Request:
    """The request of a commit, the same bytes for every send."""
    wanted = tuple(actions)
    if not wanted:
        raise InvalidRequest("A commit needs at least one action.", slug="commit-invalid")
    content: dict[str, Any] = {"commitId": commit_id, "operation": operation}
    optional = {
        "readVersion": read_version,
        "isolation": isolation,
        "coalesce": coalesce,
        "reads": reads,
        "operationParameters": operation_parameters,
        "operationMetrics": operation_metrics,
    }
    content.update((key, value) for key, value in optional.items() if value is not None)
    try:
        content["actions"] = [msgspec.Raw(encode_action(action)) for action in wanted]
        encoded = msgspec.json.encode(content)
    except (UnicodeError, TypeError, ValueError) as error:
        raise InvalidRequest(f"The commit cannot be written as JSON: {error}", slug="commit-invalid") from error
    return Request(method="POST", path=table_path(table, "commits"), headers=JSON, body=encoded)


def commit_exchange(request: Request, commit_id: str, pace: Pace) -> Exchange[CommitOutcome]:
    """Send until the commit is settled or the time is up; never raises for an outcome.

    The deadline holds for the whole: the caller learns in time that the outcome is unknown.
    """
    attempts = Attempts(pace)
    uncertain = False
    while True:
        began = pace.clock()
        reply = received((yield Send(request=request, timeout=min(pace.timeout, attempts.left))))
        outcome = _unanswered(reply, commit_id, pace) if isinstance(reply, NoAnswer) else read_outcome(reply, commit_id)
        if uncertain and not _settles(outcome):
            wait = getattr(outcome, "retry_after", _DEFAULT_RETRY_AFTER)
            again = isinstance(outcome, (NotNow, Unknown))
            outcome = Unknown(commit_id=commit_id, retry_after=wait)
            if not again:
                return outcome
        if not isinstance(outcome, (NotNow, Unknown)):
            return outcome
        if isinstance(reply, Answer) and reply.status == _HEAD_TOO_LARGE:
            return outcome
        uncertain = uncertain or isinstance(outcome, Unknown)
        wait_for = None if isinstance(reply, NoAnswer) else retry_after(reply)
        pause = attempts.pause(wait_for, _trouble(reply, pace), pace.clock() - began)
        if pause is None:
            return outcome
        yield pause


def _settles(outcome: CommitOutcome) -> bool:
    if isinstance(outcome, Rejected):
        return _slug(outcome.problem) == "commit-invalid" and outcome.problem.get("asOfVersion") is None
    if isinstance(outcome, Conflicted):
        return outcome.as_of_version is None
    return isinstance(outcome, Committed)


def _trouble(reply: Answer | NoAnswer, pace: Pace) -> str:
    """Why a send settled nothing, in a sentence."""
    if isinstance(reply, NoAnswer):
        return no_answer_text(pace, reply)
    return not_now_text(pace, str(problem_document(reply).get("detail", f"HTTP {reply.status}")))


def _unanswered(reply: NoAnswer, commit_id: str, pace: Pace) -> CommitOutcome:
    if reply.sent:
        return Unknown(commit_id=commit_id, retry_after=_DEFAULT_RETRY_AFTER)
    problem = {
        "type": TYPE_PREFIX + "service-unreachable",
        "title": "The service cannot be reached",
        "status": 503,
        "detail": f"{no_answer_text(pace, reply)} Nothing was sent. {CHECK}",
        "reason": reply.reason,
        "url": pace.url,
    }
    return NotNow(commit_id=commit_id, problem=problem, retry_after=_DEFAULT_RETRY_AFTER)


def read_outcome(answer: Answer, commit_id: str) -> CommitOutcome:
    """What an answer says about the commit; whatever does not say it clearly is unknown."""
    wait = retry_after(answer)
    unknown = Unknown(commit_id=commit_id, retry_after=_DEFAULT_RETRY_AFTER if wait is None else wait)
    if answer.status < 300:
        try:
            committed = msgspec.json.decode(answer.body, type=Committed)
        except DECODE_ERRORS:
            return unknown
        return committed if committed.commit_id.lower() == commit_id.lower() else unknown
    document = problem_document(answer)
    slug = _slug(document)
    if answer.status == 429 or slug in _NOT_COMMITTED_YET:
        return NotNow(commit_id=commit_id, problem=document, retry_after=unknown.retry_after)
    if slug == "commit-conflict":
        return _conflict(document, commit_id)
    if (answer.status >= 500 or answer.status in (408, _HEAD_TOO_LARGE)) and slug not in _NEVER_RESENT:
        return unknown
    return Rejected(commit_id=commit_id, problem={"status": answer.status, **document})


def _conflict(document: dict[str, Any], commit_id: str) -> CommitOutcome:
    known = {"commitId": commit_id, "rule": "", "detail": "", **document, "outcome": "conflict"}
    try:
        return msgspec.convert(known, Conflicted)
    except msgspec.ValidationError:
        # The code alone is clear enough; a field in a newer spelling must not turn it into something else.
        return Conflicted(commit_id=commit_id, rule=str(known["rule"]), detail=str(known["detail"]))


def _slug(document: Mapping[str, Any]) -> str:
    return str(document.get("type", "")).rsplit("/", 1)[-1]


def commit_status(table: str, commit_id: str) -> Call[Committed | Unknown | NotInLog]:
    """What became of a commit: committed, not settled, or not in the log as far as it was searched."""
    request = Request(method="GET", path=table_path(table, "commits", "by-id", commit_id))
    return Call(request=request, read=lambda answer: _status(answer, commit_id), accept=(404,))


def _status(answer: Answer, commit_id: str) -> Committed | Unknown | NotInLog:
    if answer.status == 202:
        wait = retry_after(answer)
        return Unknown(commit_id=commit_id, retry_after=_DEFAULT_RETRY_AFTER if wait is None else wait)
    if answer.status == 404:
        problem = problem_of(answer)
        if problem.slug != "commit-not-found":
            raise error_from(problem)
        searched = {key: problem.fields.get(key) for key in ("fromVersion", "asOfVersion")}
        return convert({"commitId": commit_id, **searched}, NotInLog)
    return decoded(answer, Committed)
