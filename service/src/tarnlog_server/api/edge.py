"""The outermost layer, and the only middleware: request ids, authentication, and an answer whatever goes wrong.

It is plain ASGI on purpose: one wrapper of Starlette's BaseHTTPMiddleware costs two thirds of the throughput.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import problem_answer
from tarnlog_server.api.auth import ANONYMOUS, LOCAL, Authenticator
from tarnlog_server.api.bodies import ClientGone, drain
from tarnlog_server.api.dashboard.pages import CHALLENGE
from tarnlog_server.api.dashboard.routes import Dashboard
from tarnlog_server.api.local_only import LocalOnly
from tarnlog_server.api.operation import CALLER
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.ports.telemetry import REQUEST_ID

_log = structlog.get_logger("tarnlog.http")
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}\Z")
CLOSE = (b"connection", b"close")
"""Said during a shutdown, so that no client sends its next request on a connection that is about to end."""
NOSNIFF = (b"x-content-type-options", b"nosniff")
"""On every answer: what a client sent and an answer repeats is never taken for a page or a script."""
DRAINED_AT_CLOSE = 1024 * 1024
SHOWN = frozenset({"/docs", "/openapi.json", "/metrics"})
DOCS_BELOW = "/docs/"
LIVE = "/v1/health/live"
OPEN_PATHS = frozenset({LIVE, "/v1/health/ready"})


class Edge:
    """Wraps the router."""

    def __init__(
        self,
        app: ASGIApp,
        auth: Authenticator,
        readiness: Readiness,
        routes: list[BaseRoute],
        dashboard: Dashboard,
        local_only: LocalOnly,
    ) -> None:
        self._app = app
        self._dashboard = dashboard
        self._auth = auth
        self._local_only = local_only
        self._readiness = readiness
        self._routes = routes
        assert isinstance(routes[0], Route)
        self._first = routes[0]
        """The route in a hurry: it is tried before the router, which costs as much again."""
        self._process = secrets.token_hex(6).encode()
        self._count = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        authorization, request_id, repeated = _of_interest(scope["headers"])
        request_id = request_id or self._new_id()
        header = (b"x-request-id", request_id)
        REQUEST_ID.set(request_id.decode("ascii"))  # each request is a task with a context of its own
        started = False

        async def identified(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], header, NOSNIFF]
                if self._readiness.closing:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            if repeated:
                raise ProblemError("bad-request", "there are two Authorization headers; send one")
            await self._admitted(scope, authorization, receive)
            match, found = self._first.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                await self._first.app(scope, receive, identified)
            else:
                await self._app(scope, receive, identified)
            return
        except ClientGone:
            return
        except ProblemError as problem:
            response = self._refusal(scope, problem)
        except HTTPException as error:
            response = self._unrouted(scope, error)
        except Exception as error:
            _log.error("unexpected error", method=scope["method"], path=scope["path"], exc_info=error)
            if started:
                raise
            detail = f"the service failed; its log says more under request id {request_id.decode('ascii')}"
            response = self._refusal(scope, ProblemError("internal-error", detail))
        await response(scope, receive, identified)

    def _new_id(self) -> bytes:
        """Unique: random for the process, then counted."""
        return b"%s-%x" % (self._process, next(self._count))

    async def _admitted(self, scope: Scope, authorization: bytes | None, receive: Receive) -> None:
        path = scope["path"]
        if self._readiness.closing and path not in OPEN_PATHS:
            # The connection ends with the answer: a client still sending its body would see a reset instead of it.
            await drain(receive, DRAINED_AT_CLOSE)
            raise ProblemError("shutting-down", "the service is shutting down; send it again", retry_after=1.0)
        if self._auth.open:
            if path != LIVE:
                self._local_only.check(scope["headers"])
            scope[CALLER] = LOCAL
            return
        if path == LIVE or (path in OPEN_PATHS and authorization is None):
            scope[CALLER] = ANONYMOUS
            return
        client = scope.get("client")
        try:
            # A browser adds these credentials to whatever a foreign page makes it send: they open what only reads.
            basic = scope["method"] in ("GET", "HEAD") and self._is_page(path)
            scope[CALLER] = await self._auth.caller(authorization, client[0] if client else "", basic=basic)
        except ProblemError:
            if authorization is not None:
                _log.warning("key refused", client=client[0] if client else None, path=path)
            if path not in OPEN_PATHS:
                raise
            scope[CALLER] = ANONYMOUS

    def _is_page(self, path: str) -> bool:
        """Whether a browser shows what is there: it cannot send a bearer key by itself, so it is asked for one."""
        return self._dashboard.owns(path) or path in SHOWN or path.startswith(DOCS_BELOW)

    def _refusal(self, scope: Scope, problem: ProblemError) -> Response:
        if self._dashboard.owns(scope["path"]):
            return self._dashboard.problem(Request(scope), problem)
        response = problem_answer(problem)
        if problem.code.status == 401 and self._is_page(scope["path"]):
            response.headers["www-authenticate"] = CHALLENGE
        return response

    def _unrouted(self, scope: Scope, error: HTTPException) -> Response:
        if error.status_code == 405:
            allowed = sorted({method for route in self._matching(scope) for method in route.methods or ()})
            names = ", ".join(allowed)
            problem = ProblemError("method-not-allowed", f"{scope['method']} is not possible here; this is: {names}")
            response = problem_answer(problem)
            response.headers["allow"] = names
            return response
        return problem_answer(ProblemError("not-found", "there is nothing at this path; /docs shows what there is"))

    def _matching(self, scope: Scope) -> Iterable[Route]:
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                yield route


def _of_interest(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes | None, bytes | None, bool]:
    """The Authorization header, the client's own id for the request if it is sane, and whether there are two of the
    former: a proxy may have let the request in by the other one."""
    authorization = request_id = None
    repeated = False
    for name, value in headers:
        if name == b"authorization":
            repeated = repeated or authorization is not None
            authorization = value
        elif name == b"x-request-id" and _SANE_ID.match(value):
            request_id = value
    return authorization, request_id, repeated
