"""Commits where several replicas share the work: one that belongs elsewhere is sent there, and its answer passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tarnlog.protocol.commits import Unknown
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import Plain
from tarnlog_server.api.decoding import query_as, refused
from tarnlog_server.api.operation import audited, table_of
from tarnlog_server.core.finality import judged_on_head
from tarnlog_server.core.routing import settles
from tarnlog_server.ports.peers import PeerAnswer
from tarnlog_server.ports.telemetry import REQUEST_ID
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.outcomes import outcome_problem

Read = Callable[[Request], Awaitable[bytes]]
Write = Callable[[Request, bytes], Awaitable[ASGIApp]]


class Addressed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit from one replica to another. No client sends this."""

    replica: Annotated[str, Meta(max_length=64)]


class ForwardedCommits:
    """The commit route of a replica: `read` takes a request's body, `write` commits it here."""

    def __init__(self, forwarding: Forwarding, read: Read, write: Write) -> None:
        self._forwarding = forwarding
        self._read = read
        self._write = write

    async def commit(self, request: Request) -> ASGIApp:
        """Write a commit here or have its table's owner do so. What another replica sent is never sent on."""
        query = request.scope["query_string"]
        if query:
            self._require_me(query_as(query, Addressed).replica)
            return await self._here(request, await self._read(request))
        body = await self._read(request)
        sent = await self._forwarding.attempt(str(table_of(request)), body, _headers(request))
        if sent.answer is not None:
            audited(request, outcome="forwarded", commit_id=sent.commit_id, owner=sent.owner)
            return _relayed(sent.answer)
        if not sent.unsure:
            return await self._here(request, sent.body)
        try:
            answer = await self._here(request, sent.body)
        except ProblemError as problem:
            if problem.slug != "commit-unknown" and settles(problem.slug, on_head=judged_on_head(problem.fields)):
                self._forwarding.settled(str(sent.commit_id))
                raise
            # Another replica may have written it, or may still: "not committed" would be a guess.
            audited(request, outcome="commit-unknown")
            raise outcome_problem(Unknown(commit_id=str(sent.commit_id), retry_after=1.0)) from problem
        self._forwarding.settled(str(sent.commit_id))
        return answer

    async def _here(self, request: Request, body: bytes) -> ASGIApp:
        answer = await self._write(request, body)
        self._forwarding.written(str(table_of(request)))
        return answer

    def _require_me(self, replica: str) -> None:
        if not self._forwarding.is_me(replica):
            raise refused("request-invalid", "/replica", "this is another replica; write the commit yourself")


def _headers(request: Request) -> dict[str, str]:
    """What the owner needs: whose commit it is, and the request's id for its log."""
    headers = {"x-request-id": REQUEST_ID.get()}
    authorization = request.headers.get("authorization")
    if authorization is not None:
        headers["authorization"] = authorization
    return headers


def _relayed(answer: PeerAnswer) -> ASGIApp:
    if answer.status < 300:
        return Plain(answer.body, answer.status)
    headers = {"retry-after": answer.retry_after} if answer.retry_after is not None else None
    return Response(answer.body, answer.status, headers, answer.media_type)
