"""One request, one answer, taken literally: what the service says, not what a client makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import msgspec

from tarnlog import CommitOutcome, Committed, Conflicted, NotNow, Rejected, Unknown, new_commit_id
from tests.process.journal import Journal, Sent
from tests.process.load import TABLE
from tests.process.log_reading import Json

Trace = Callable[[str, dict[str, object]], Awaitable[None]]
JSON_TYPE = {"content-type": "application/json"}


def add(path: str) -> Json:
    """A new file, as JSON."""
    return {"add": {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}}


def slug(response: httpx.Response) -> str:
    """The code of a problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return str(response.json()["type"]).rsplit("/", 1)[-1]


class RawWriter:
    """Sends commits to one service and notes the answers in a journal."""

    def __init__(self, http: httpx.AsyncClient, journal: Journal, table: str = TABLE) -> None:
        self._http = http
        self._journal = journal
        self._path = f"/v1/tables/{table}/commits"

    def new(self, *actions: Json, read_version: int | None = None) -> Sent:
        """A commit that was not sent yet."""
        return self._journal.new(new_commit_id(), list(actions), read_version)

    async def append(self, path: str, trace: Trace | None = None) -> httpx.Response:
        """Commit one new file."""
        return await self.send(self.new(add(path)), trace)

    async def send(self, sent: Sent, trace: Trace | None = None) -> httpx.Response:
        """Send a commit once. No answer is noted as unknown and raised. `trace` hears of each step of the exchange."""
        extensions = {} if trace is None else {"trace": trace}
        try:
            response = await self._http.post(
                self._path, content=body_of(sent), headers=JSON_TYPE, extensions=extensions
            )
        except httpx.TransportError:
            sent.answers.append(Unknown(commit_id=sent.commit_id, retry_after=0))
            raise
        sent.answers.append(outcome_of(sent.commit_id, response))
        return response


def body_of(sent: Sent) -> bytes:
    """The request's body: the same bytes for every send."""
    body: Json = {"commitId": sent.commit_id, "operation": "TEST", "actions": sent.actions}
    if sent.read_version is not None:
        body["readVersion"] = sent.read_version
    return msgspec.json.encode(body)


def outcome_of(commit_id: str, response: httpx.Response) -> CommitOutcome:
    """The answer as a value; unknown is only what says so, or says nothing of the commit."""
    if response.status_code in (200, 201):
        committed = msgspec.json.decode(response.content, type=Committed)
        assert committed.replayed == (response.status_code == 200)
        return committed
    code, problem = slug(response), response.json()
    if code in ("commit-unknown", "internal-error"):
        return Unknown(commit_id=commit_id, retry_after=1)
    if code == "commit-conflict":
        return msgspec.convert({**problem, "commitId": commit_id, "outcome": "conflict"}, Conflicted)
    if response.status_code in (429, 503):
        assert float(response.headers["retry-after"]) >= 0
        return NotNow(commit_id=commit_id, problem=problem, retry_after=float(response.headers["retry-after"]))
    return Rejected(commit_id=commit_id, problem=problem)
