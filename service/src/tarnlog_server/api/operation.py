"""One HTTP operation: what it is called, who may call it, what it takes and what it can answer.

The declaration is the single source: the route runs by it, and the OpenAPI document is made from it. FastAPI keeps the
routes and the document; its body parsing and dependencies are not used, because they halve what a process can commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from fastapi import Response
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import problem_answer
from tarnlog_server.api.auth import LOCAL, Caller, Scope
from tarnlog_server.api.bodies import ClientGone
from tarnlog_server.api.body_budget import released
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.usecases.tables import parse_name

Endpoint = Callable[[Request], Awaitable[ASGIApp]]
"""Takes a request, returns what answers it: a Response, as a rule."""
CALLER = "tarnlog.caller"
AUDIT = "tarnlog.audit"
_audit = structlog.get_logger("tarnlog.audit")


class Result(Struct, frozen=True):
    """A success: its meaning, its type (None: no JSON body), and an example."""

    description: str
    type: Any = None
    example: Any = None
    media: str = "application/json"
    or_media: str | None = None
    """Another form of the same, for clients that ask for it."""


class Operation(Struct, frozen=True, kw_only=True):
    """A method on a path. `changes` names what the audit log calls it; None for operations that change nothing."""

    id: str
    method: str
    path: str
    endpoint: Endpoint
    tag: str
    summary: str
    description: str
    results: dict[int, Result]
    problems: tuple[str, ...] = ()
    scope: Scope | None = "read"
    changes: str | None = None
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    body_optional: bool = False
    example: Any = None
    parameters: dict[str, dict[str, Any]] = {}
    """Schemas of path parameters other than the table, and of headers (`header:Name`)."""


class OperationRoute(APIRoute):
    """Runs an operation: may the caller, is the service ready, then the endpoint; problems become documents."""

    operation: Operation

    @classmethod
    def serving(cls, operation: Operation, readiness: Readiness) -> OperationRoute:
        """The route of an operation."""
        route = cls(
            operation.path,
            operation.endpoint,
            methods=[operation.method],
            name=operation.id,
            operation_id=operation.id,
            tags=[operation.tag],
            summary=operation.summary,
            description=operation.description,
            response_class=Response,
            response_model=None,
            status_code=next(iter(operation.results)),
        )
        route.operation = operation
        route.app = _served(operation, readiness)
        return route

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        return Route.matches(self, scope)  # without FastAPI's support for nested routers, which are not used

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await Route.handle(self, scope, receive, send)


def _served(operation: Operation, readiness: Readiness) -> ASGIApp:
    endpoint, scope_needed, changes = operation.endpoint, operation.scope, operation.changes

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refused: str | None = None
        try:
            table = scope["path_params"].get("table")
            name = None
            if table is not None:
                scope["path_params"]["table"] = name = parse_name(table)
            if scope_needed is not None:
                caller_of(request).require(scope_needed, name.namespace if name is not None else None)
            if changes is not None:
                readiness.require()
            response = await endpoint(request)
        except ProblemError as problem:
            refused = problem.slug
            response = problem_answer(problem)
        except ClientGone:
            raise
        except Exception:
            if changes is not None:
                _tell(request, changes, "internal-error")
            raise
        finally:
            released(scope)
        if changes is not None:
            _tell(request, changes, refused)
        await response(scope, receive, send)

    return app


def caller_of(request: Request) -> Caller:
    """Who sent the request."""
    caller: Caller = request.scope.get(CALLER, LOCAL)
    return caller


def table_of(request: Request) -> TableName:
    """The table in the path."""
    name: TableName = request.scope["path_params"]["table"]
    return name


def audited(request: Request, **facts: Any) -> None:
    """What the audit line of this request shall say besides who and what."""
    request.scope.setdefault(AUDIT, {}).update(facts)


def _tell(request: Request, changes: str, refused: str | None) -> None:
    facts: dict[str, Any] = {"who": caller_of(request).id, "what": changes, "outcome": "done"}
    table = request.scope["path_params"].get("table")
    if table is not None:
        facts["table"] = str(table)
    facts.update(request.scope.get(AUDIT, {}))
    if refused is not None:
        facts["outcome"] = refused
    _audit.info("audit", **facts)
