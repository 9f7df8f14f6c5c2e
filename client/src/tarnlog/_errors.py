"""What the client raises. One small tree; decide by class, read the sentence, which says what to do.

    TarnlogError
    ├── InvalidRequest       the request cannot be carried out as sent: change it
    ├── NotFound             the table, version, commit or application is not there
    │   └── Expired          it was there, and is older than what is kept
    ├── Denied               the API key is missing, wrong, or does not allow this
    ├── Conflict             something that is there already stands in the way
    │   └── CommitConflict   not committed, and never will be as sent; carries rule, winners and paths
    ├── Unavailable          not now: the service or its storage cannot serve this at the moment
    │   └── Unreachable      no answer at all came back
    ├── CommitUnknown        not settled: the commit may be in the log. Delete nothing; ask by id or resend the same id
    ├── Corrupt              an object of the table's log, or a data file, is missing or damaged
    └── ServerFault          a defect inside the service

`Client.commit` raises none of these for an outcome: it returns it. `raise_for_outcome` turns an outcome into its value
or its exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tarnlog._wording import python_words
from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted, NotNow, Rejected, Unknown, Winner
from tarnlog.protocol.problems import Kind, ProblemError, from_document


class TarnlogError(Exception):
    """Base of everything the client raises on purpose.

    `slug` is the stable problem code (empty when there was no answer), `fields` what the service added to it. `detail`
    says what to do in Python; `answered` is the service's own sentence, which speaks of HTTP.
    """

    def __init__(
        self,
        detail: str,
        *,
        slug: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        fields: dict[str, Any] | None = None,
        answered: str = "",
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.answered = answered or detail
        self.slug = slug
        self.status = status
        self.retry_after = retry_after
        self.fields = fields or {}


class InvalidRequest(TarnlogError):
    """The request cannot be carried out as sent."""


class NotFound(TarnlogError):
    """What was asked for is not there."""


class Expired(NotFound):
    """What was asked for is older than what is kept."""


class Denied(TarnlogError):
    """The API key is missing, wrong, or does not allow this."""


class Conflict(TarnlogError):
    """Something that is there already stands in the way."""


class CommitConflict(Conflict):
    """Not committed, and it never will be as sent. `outcome.retry` says whether a rebase can help.

    Its text names the rule, the commits that won and the files it is about; of each the first few.
    """

    def __init__(self, outcome: Conflicted) -> None:
        sentence = outcome.detail or "the commit conflicts with one in the log"
        detail = python_words("commit-conflict", sentence)
        super().__init__(detail, slug="commit-conflict", status=409, answered=sentence)
        self.outcome = outcome

    def __str__(self) -> str:
        facts = [f"rule {self.rule}"]
        if self.winners:
            facts.append("won by " + _few(str(winner) for winner in self.winners))
        if self.paths:
            facts.append("about " + _few(self.paths))
        return f"{self.detail} ({'; '.join(facts)})"

    @property
    def rule(self) -> str:
        """The name of the conflict rule that was broken, such as `append` or `delete-read`."""
        return self.outcome.rule

    @property
    def winners(self) -> tuple[Winner, ...]:
        """The commits in the log that this one conflicts with."""
        return self.outcome.winners

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the conflict is about."""
        return self.outcome.paths


def _few(items: Iterable[str], most: int = 3) -> str:
    listed = list(items)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


class Unavailable(TarnlogError):
    """Not now; the same request may succeed later."""


class Unreachable(Unavailable):
    """No answer came back from `url`. `sent` is False when the request certainly never left; `reason` is the
    transport's word."""

    def __init__(self, detail: str, *, sent: bool, reason: str = "", url: str = "") -> None:
        super().__init__(detail)
        self.sent = sent
        self.reason = reason
        self.url = url


class CommitUnknown(TarnlogError):
    """The commit is not settled: it may be in the log, or may still get there."""

    def __init__(self, outcome: Unknown) -> None:
        super().__init__(
            f"The outcome of commit {outcome.commit_id} is not known: it may be in the log. Delete nothing; ask for "
            "its status, or send the same commit again with the same commit id.",
            slug="commit-unknown",
            retry_after=outcome.retry_after,
        )
        self.commit_id = outcome.commit_id


class Corrupt(TarnlogError):
    """An object of the table's log, or a data file, is missing or damaged."""


class ServerFault(TarnlogError):
    """A defect inside the service."""


for _kind in (
    TarnlogError,
    InvalidRequest,
    NotFound,
    Expired,
    Denied,
    Conflict,
    CommitConflict,
    Unavailable,
    Unreachable,
    CommitUnknown,
    Corrupt,
    ServerFault,
):
    _kind.__module__ = "tarnlog"  # where users import it from, and so what tracebacks name
del _kind

_BY_KIND: dict[Kind, type[TarnlogError]] = {
    Kind.INVALID: InvalidRequest,
    Kind.NOT_FOUND: NotFound,
    Kind.GONE: Expired,
    Kind.DENIED: Denied,
    Kind.CONFLICT: Conflict,
    Kind.UNAVAILABLE: Unavailable,
    Kind.CORRUPT: Corrupt,
    Kind.INTERNAL: ServerFault,
}


def error_from(problem: ProblemError, status: int | None = None) -> TarnlogError:
    """The exception for a problem document."""
    return _BY_KIND[problem.code.kind](
        python_words(problem.slug, problem.detail),
        answered=problem.detail,
        slug=problem.slug,
        status=problem.code.status if status is None else status,
        retry_after=problem.retry_after,
        fields=problem.fields,
    )


def raise_for_outcome(outcome: CommitOutcome) -> Committed:
    """The outcome when it is Committed; otherwise the exception that stands for it."""
    match outcome:
        case Committed():
            return outcome
        case Conflicted():
            raise CommitConflict(outcome)
        case Unknown():
            raise CommitUnknown(outcome)
        case NotNow(problem=problem) if str(problem.get("type", "")).endswith("/service-unreachable"):
            known = {name: str(problem.get(name, "")) for name in ("reason", "url")}
            raise Unreachable(str(problem.get("detail", "")), sent=False, **known)
        case NotNow(problem=problem, retry_after=retry_after):
            raise error_from(from_document(int(problem.get("status", 503)), problem, retry_after))
        case Rejected(problem=problem):
            raise error_from(from_document(int(problem.get("status", 422)), problem))
