"""The dashboard's routes. All of them only read, and need the scope `read` where keys are configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.dashboard.overview import Overview
from tarnlog_server.api.dashboard.pages import ASSETS, HERE, Pages
from tarnlog_server.api.dashboard.plan_page import PlanExplorer
from tarnlog_server.api.dashboard.table_pages import TablePages
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.operation import Operation, caller_of
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.core.activity import Activity
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.replicas import Replicas
from tarnlog_server.usecases.tables import parse_name

BELOW = "/dashboard/"
TABLE = f"{BELOW}tables/{{table}}"


class OverviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tables to show."""

    find: Annotated[str, Meta(max_length=256)] = ""
    after: Annotated[str, Meta(max_length=257)] | None = None


class Dashboard:
    """The pages."""

    def __init__(
        self,
        coordinator: Coordinator,
        readiness: Readiness,
        activity: Activity,
        replicas: Replicas,
        operations: list[Operation],
    ) -> None:
        self._pages = Pages()
        self._overview = Overview(coordinator, readiness, activity, replicas)
        self._plans = PlanExplorer(coordinator, self._pages)
        self._tables = TablePages(coordinator, self._overview, self._pages, operations)

    def owns(self, path: str) -> bool:
        """Whether a path is one of its pages: there, whatever goes wrong is told as a page."""
        return path == "/" or path.startswith(BELOW)

    def problem(self, request: Request, problem: ProblemError) -> Response:
        """What went wrong, as a page."""
        return self._pages.problem(request, problem)

    async def overview(self, request: Request) -> Response:
        """Every table, and how the service does."""
        query = query_as(request.scope["query_string"], OverviewQuery)
        caller = caller_of(request)
        caller.require("read")
        tables = await self._overview.tables(caller, query.find.strip(), query.after)
        return self._pages.page(
            request, "overview.html", health=self._overview.health(), tables=tables, find=query.find, after=query.after
        )

    async def nothing(self, request: Request) -> Response:
        """A path that no page has."""
        raise ProblemError("not-found", "there is no such page; the first one lists every table")

    def routes(self) -> list[BaseRoute]:
        """What is served here."""
        pages: list[tuple[str, Callable[[Request, TableName], Awaitable[Response]]]] = [
            ("", self._tables.table),
            ("/history", self._tables.history),
            ("/schema", self._tables.schema),
            ("/files", self._tables.files),
            ("/plan", self._plans.plan),
            ("/skips", self._tables.skips),
        ]
        return [
            Route("/", self._told(self.overview), methods=["GET"]),
            Mount(ASSETS, StaticFiles(directory=HERE / "assets")),
            *(Route(TABLE + below, self._told(self._of_table(page)), methods=["GET"]) for below, page in pages),
            Route(BELOW + "{rest:path}", self._told(self.nothing), methods=["GET"]),
        ]

    def _of_table(
        self, page: Callable[[Request, TableName], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            name = parse_name(request.path_params["table"])
            caller_of(request).require("read", name.namespace)
            return await page(request, name)

        return checked

    def _told(self, page: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def told(request: Request) -> Response:
            try:
                return await page(request)
            except ProblemError as problem:
                return self.problem(request, problem)

        return told
