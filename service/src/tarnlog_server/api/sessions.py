"""Write sessions over HTTP: begin, extend, end, list."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import BeginSession, ExtendSession
from tarnlog_server.api.answers import json_answer
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import SESSION
from tarnlog_server.api.operation import Operation, Result, audited, table_of
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.sessions import SessionsView, SessionView

_BEGIN = msgspec.json.Decoder(BeginSession)
_EXTEND = msgspec.json.Decoder(ExtendSession)
_TAG = "sessions"
_PATH = "/v1/tables/{table}/sessions"
_WRITING = ("table-read-only", "protocol-not-supported", "not-ready", "shutting-down")
_ID = {"session": {"type": "string", "format": "uuid"}}


class SessionRoutes:
    """The operations on write sessions."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def begin(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _BEGIN, self._limits, self._coordinator.world)
        name = table_of(request)
        session = await self._coordinator.sessions.begin(name, wanted.prefix, wanted.ttl_seconds)
        audited(request, session=session.id, prefix=session.prefix)
        return json_answer(session, 201, {"location": f"/v1/tables/{name}/sessions/{session.id}"})

    async def extend(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _EXTEND, self._limits, self._coordinator.world)
        session_id = _session_of(request)
        return json_answer(await self._coordinator.sessions.extend(table_of(request), session_id, wanted.ttl_seconds))

    async def end(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        await self._coordinator.sessions.end(table_of(request), _session_of(request))
        return Response(status_code=204)

    async def listed(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        return json_answer(await self._coordinator.sessions.list(table_of(request)))

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="beginSession",
                method="POST",
                path=_PATH,
                endpoint=self.begin,
                tag=_TAG,
                summary="Begin a write session",
                description="Vacuum deletes no file below the prefix (without one: of the whole table) until the "
                "session ends or expires. Needed by writers that commit files older than the retention. "
                "Needs scope `write`.",
                scope="write",
                changes="begin session",
                body=BeginSession,
                example={"prefix": "day=2024-01-01/", "ttlSeconds": 900},
                results={201: Result("The session", SessionView, SESSION)},
                problems=(*_WRITING, "too-many-waiting"),
            ),
            Operation(
                id="listSessions",
                method="GET",
                path=_PATH,
                endpoint=self.listed,
                tag=_TAG,
                summary="List write sessions",
                description="Those that have not expired, oldest first.",
                results={200: Result("The sessions", SessionsView, {"sessions": [SESSION]})},
            ),
            Operation(
                id="extendSession",
                method="PUT",
                path=f"{_PATH}/{{session}}",
                endpoint=self.extend,
                tag=_TAG,
                summary="Extend a write session",
                description="It then lasts `ttlSeconds` from now, or as long as it would have if that is longer. "
                "Needs scope `write`.",
                scope="write",
                changes="extend session",
                body=ExtendSession,
                example={"ttlSeconds": 900},
                parameters=_ID,
                results={200: Result("The session", SessionView, SESSION)},
                problems=("session-not-found", "session-expired", *_WRITING),
            ),
            Operation(
                id="endSession",
                method="DELETE",
                path=f"{_PATH}/{{session}}",
                endpoint=self.end,
                tag=_TAG,
                summary="End a write session",
                description="Vacuum then treats its files like any other. Needs scope `write`.",
                scope="write",
                changes="end session",
                parameters=_ID,
                results={204: Result("It is ended")},
                problems=("session-not-found", *_WRITING),
            ),
        ]


def _session_of(request: Request) -> str:
    session_id: str = request.scope["path_params"]["session"]
    audited(request, session=session_id)
    return session_id
