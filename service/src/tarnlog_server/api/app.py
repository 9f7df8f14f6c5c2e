"""The HTTP application: the operations as routes, one layer around them, and the document that describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import metadata
from typing import Any

from fastapi import FastAPI
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from tarnlog_server.api.audits import AuditRoutes
from tarnlog_server.api.auth import ApiKey, Authenticator
from tarnlog_server.api.bodies import BodyLimits
from tarnlog_server.api.changes import ChangeRoutes
from tarnlog_server.api.commits import CommitRoutes
from tarnlog_server.api.dashboard.routes import Dashboard
from tarnlog_server.api.docs import docs_routes
from tarnlog_server.api.document import completed, extra_of
from tarnlog_server.api.edge import Edge
from tarnlog_server.api.erase import EraseRoutes
from tarnlog_server.api.index import IndexRoutes
from tarnlog_server.api.local_only import LocalOnly
from tarnlog_server.api.operation import Operation, OperationRoute
from tarnlog_server.api.operations import OperationRoutes
from tarnlog_server.api.plans import PlanRoutes
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.api.service import Metrics, ServiceRoutes
from tarnlog_server.api.sessions import SessionRoutes
from tarnlog_server.api.skips import SkipRoutes
from tarnlog_server.api.snapshots import SnapshotRoutes
from tarnlog_server.api.states import StateRoutes
from tarnlog_server.api.tables import TableRoutes
from tarnlog_server.api.vacuum import VacuumRoutes
from tarnlog_server.core.activity import Activity
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.replicas import Replicas

TITLE = "tarnlog"
DESCRIPTION = (
    "A coordinator for transactional tables on object storage. It serialises commits, and answers truthfully what "
    "became of each. Errors are problem documents (RFC 9457) whose `type` ends in a stable slug."
)
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class ApiSettings(Struct, frozen=True, kw_only=True):
    """Who may call, and how large a body may be: `limits` are those of commits, other requests take 1 MiB at most."""

    keys: tuple[ApiKey, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may be sent to besides loopback, while there are no keys."""
    limits: BodyLimits = BodyLimits(sent=72 * 1024 * 1024, inflated=256 * 1024 * 1024)


class Application(FastAPI):
    """FastAPI with one layer of ours in place of its own: every request passes the edge and goes to its route."""

    edge: ASGIApp
    operations: list[Operation]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.edge(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            for route in self.routes:
                if isinstance(route, OperationRoute):
                    route.openapi_extra = extra_of(route.operation)
            self.openapi_schema = completed(super().openapi(), self.operations)
        return self.openapi_schema


def create_app(
    coordinator: Coordinator,
    readiness: Readiness,
    settings: ApiSettings | None = None,
    *,
    metrics: Metrics = lambda _: b"",
    activity: Activity | None = None,
    lifespan: Lifespan | None = None,
    replicas: Replicas | None = None,
) -> Application:
    """The application around a coordinator. Its lifespan is the caller's: it opens and closes nothing by itself."""
    settings = settings or ApiSettings()
    small = settings.limits.small()
    replicas = replicas or Replicas()
    app = Application(
        title=TITLE,
        description=DESCRIPTION,
        version=metadata.version("tarnlog-server"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan or _nothing,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.operations = [
        *CommitRoutes(coordinator, settings.limits, replicas.forwarding).operations(),
        *TableRoutes(coordinator, small).operations(),
        *SnapshotRoutes(coordinator).operations(),
        *PlanRoutes(coordinator, small).operations(),
        *ChangeRoutes(coordinator, readiness).operations(),
        *SkipRoutes(coordinator, small).operations(),
        *StateRoutes(coordinator, small).operations(),
        *SessionRoutes(coordinator, small).operations(),
        *VacuumRoutes(coordinator, small).operations(),
        *EraseRoutes(coordinator, small).operations(),
        *AuditRoutes(coordinator, small).operations(),
        *IndexRoutes(coordinator, small).operations(),
        *OperationRoutes(coordinator).operations(),
        *ServiceRoutes(coordinator, readiness, small, metrics, replicas).operations(),
    ]
    dashboard = Dashboard(coordinator, readiness, activity or Activity(), replicas, app.operations)
    app.router.routes[:] = [
        *(OperationRoute.serving(operation, readiness) for operation in app.operations),
        *docs_routes(f"{TITLE} API", app.openapi),
        *dashboard.routes(),
    ]
    auth = Authenticator(settings.keys, coordinator.world)
    app.edge = Edge(app.router, auth, readiness, app.router.routes, dashboard, LocalOnly(settings.allowed_hosts))
    return app


@asynccontextmanager
async def _nothing(_: FastAPI) -> AsyncIterator[None]:
    yield
