"""Commits over HTTP: post one, look at the history, at a version, and at what became of a commit id."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.commits import CommitRequest, Committed
from tarnlog_server.api.answers import Plain, json_answer, large_answer
from tarnlog_server.api.bodies import BodyLimits, read_body
from tarnlog_server.api.commit_body import decoded_commit
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import COMMIT, COMMIT_ID, COMMIT_REQUEST, COMMITTED, VERSION
from tarnlog_server.api.forwarding import ForwardedCommits
from tarnlog_server.api.operation import Endpoint, Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.parameters import MAX_INT, NoQuery, OrderedVersions, version_in_path
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.history import HistoryPage, VersionView
from tarnlog_server.usecases.outcomes import outcome_problem

_ENCODE = msgspec.json.Encoder().encode
_TAG = "commits"


class UnknownView(Struct, frozen=True, rename="camel", tag_field="outcome", tag="unknown"):
    """A commit that is not settled: ask again, or resend it."""

    commit_id: Annotated[str, Meta(description="The id that was asked for.")]


class CommitRoutes:
    """The operations on commits."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits, forwarding: Forwarding | None = None) -> None:
        self._coordinator = coordinator
        self._limits = msgspec.structs.replace(limits, slug="commit-too-large")
        # Chosen once: a service on its own pays nothing for others that it could have.
        self._posted: Endpoint = (
            self.commit if forwarding is None else ForwardedCommits(forwarding, self.read, self.write).commit
        )

    async def commit(self, request: Request) -> Plain:
        if request.scope["query_string"]:
            query_as(request.scope["query_string"], NoQuery)
        return await self.write(request, await self.read(request))

    def read(self, request: Request) -> Coroutine[Any, Any, bytes]:
        return read_body(request, self._limits, self._coordinator.world)

    async def write(self, request: Request, body: bytes) -> Plain:
        wanted = await decoded_commit(body, self._limits.share(request), self._coordinator.world)
        outcome = await self._coordinator.commits.commit(table_of(request), wanted, caller_of(request).name)
        if not isinstance(outcome, Committed):
            audited(request, commit_id=outcome.commit_id, operation=wanted.operation)
            raise outcome_problem(outcome)
        audited(
            request,
            outcome="replayed" if outcome.replayed else "committed",
            version=outcome.version,
            seq=outcome.seq,
            commit_id=outcome.commit_id,
            operation=wanted.operation,
        )
        return Plain(_ENCODE(outcome), 200 if outcome.replayed else 201)

    async def history(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], OrderedVersions)
        page = await self._coordinator.history.commits(
            table_of(request),
            query.from_,
            query.to,
            query.order,
            query.limit,
            query.cursor,
            query.max_staleness_seconds,
        )
        return await large_answer(request, self._coordinator.world, page)

    async def version(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        view = await self._coordinator.history.version(table_of(request), version_in_path(request))
        return await large_answer(request, self._coordinator.world, view)

    async def by_id(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        found = await self._coordinator.commits.status(table_of(request), request.scope["path_params"]["commitId"])
        if isinstance(found, Committed):
            return json_answer(found)
        return json_answer(UnknownView(found.commit_id), 202, {"retry-after": "1"})

    def operations(self) -> list[Operation]:
        """What is served here. The commit is first: routes are tried in order, and it is the one in a hurry."""
        return [
            Operation(
                id="commit",
                method="POST",
                path="/v1/tables/{table}/commits",
                endpoint=self._posted,
                tag=_TAG,
                summary="Commit",
                description="Send intent, not a version; the service finds the slot. Keep the `commitId` (a UUID "
                "version 7) for every retry: a commit is never written twice. A blind append (adds alone, nothing "
                "read) needs no `readVersion`. After `commit-unknown` ask by id or resend, and delete nothing. "
                "Needs scope `write`.",
                scope="write",
                changes="commit",
                body=CommitRequest,
                example=COMMIT_REQUEST,
                results={
                    201: Result("Committed: durable, at this version, once", Committed, COMMITTED),
                    200: Result("It was committed before, there and then", Committed, {**COMMITTED, "replayed": True}),
                },
                problems=(
                    "commit-conflict",
                    "table-read-only",
                    "foreign-writer-detected",
                    "commit-invalid",
                    "commit-id-reused",
                    "commit-id-expired",
                    "protocol-not-supported",
                    "commit-too-large",
                    "too-many-waiting",
                    "commit-contended",
                    "clock-skew",
                    "commit-unknown",
                    "not-ready",
                    "shutting-down",
                ),
            ),
            Operation(
                id="listCommits",
                method="GET",
                path="/v1/tables/{table}/commits",
                endpoint=self.history,
                tag=_TAG,
                summary="The history of a table",
                description="Every commit of a range of versions. Several may share a version, told apart by `seq`.",
                query=OrderedVersions,
                results={200: Result("A page of commits", HistoryPage, {"commits": [COMMIT], "next": None})},
                problems=("version-expired",),
            ),
            Operation(
                id="getVersion",
                method="GET",
                path="/v1/tables/{table}/commits/{version}",
                endpoint=self.version,
                tag=_TAG,
                summary="One version, whole",
                description="Its commits, and its actions as they are in the log.",
                parameters={"version": {"type": "integer", "minimum": 0, "maximum": MAX_INT, "example": 0}},
                results={200: Result("The version", VersionView, VERSION)},
                problems=("version-not-found", "version-expired"),
            ),
            Operation(
                id="getCommit",
                method="GET",
                path="/v1/tables/{table}/commits/by-id/{commitId}",
                endpoint=self.by_id,
                tag=_TAG,
                summary="What became of a commit",
                description="404 says which versions were searched and is never final: resend the same commit to "
                "settle it. 410 means that the id is older than the time for which ids are remembered.",
                parameters={"commitId": {"type": "string", "format": "uuid", "example": COMMIT_ID}},
                results={
                    200: Result("It is committed", Committed, {**COMMITTED, "replayed": True}),
                    202: Result("Not settled yet", UnknownView, {"outcome": "unknown", "commitId": COMMIT_ID}),
                },
                problems=("commit-not-found", "commit-id-out-of-window", "commit-invalid"),
            ),
        ]
