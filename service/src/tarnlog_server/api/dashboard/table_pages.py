"""The pages of one table. Each costs what it shows: counters, or one page of a listing; never the whole table."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.ids import TableName
from tarnlog_server.api.dashboard.overview import Overview
from tarnlog_server.api.dashboard.pages import Pages
from tarnlog_server.api.dashboard.schema_rows import MOST_ROWS, schema_rows
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.operation import Operation
from tarnlog_server.api.parameters import Cursor, NoQuery, VersionNumber
from tarnlog_server.usecases.coordinator import Coordinator

LOOK_SECONDS = 5.0
"""How old what a table's page shows may be: a look at the log costs one LIST, however many people watch."""
LATEST = 10
HISTORY_A_PAGE = 50
FILES_A_PAGE = 100
SKIPS_A_PAGE = 100
PARTITIONS = 15
MOST_PROPERTIES = 200


class TableQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which partition column the picture is about."""

    by: Annotated[str, Meta(max_length=1024)] | None = None


class HistoryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a page of the history begins."""

    cursor: Cursor | None = None


class FilesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which files: those of a version, from a place on."""

    version: VersionNumber | None = None
    cursor: Cursor | None = None


class SkipsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which skip record on."""

    start: Annotated[int, Meta(ge=0, le=2**53)] = 0


class Action(Struct, frozen=True):
    """A call of the API, and where its documentation is."""

    method: str
    path: str
    summary: str
    link: str


class TablePages:
    """Gathers what each page of a table shows."""

    def __init__(
        self,
        coordinator: Coordinator,
        overview: Overview,
        pages: Pages,
        operations: list[Operation],
    ) -> None:
        self._coordinator = coordinator
        self._overview = overview
        self._pages = pages
        self._actions = [
            Action(one.method, one.path, one.summary, f"/docs#/{one.tag}/{one.id}")
            for one in operations
            if one.path.startswith("/v1/tables/{table}")
        ]

    async def table(self, request: Request, name: TableName) -> Response:
        """The first page: facts, what happened last, partitions, state."""
        query = query_as(request.scope["query_string"], TableQuery)
        table = await self._coordinator.open_tables.get(name, LOOK_SECONDS)
        view = self._coordinator.tables.view(table)
        latest = await self._coordinator.history.commits(name, None, None, "desc", LATEST, None)
        return self._pages.page(
            request,
            "table.html",
            tab="",
            table=view,
            row=self._overview.row(table),
            floor=table.live.oldest,
            commits=latest.commits,
            partitions=await self._coordinator.partitions.of(name, query.by, PARTITIONS),
            state=await self._coordinator.checkpoints.describe(name),
            skips=len(table.live.head.skips),
            txns=len(table.live.head.txns),
            actions=self._actions,
            started_ms=self._overview.started_ms,
        )

    async def history(self, request: Request, name: TableName) -> Response:
        """Every commit, newest first. Costs the versions of the page."""
        query = query_as(request.scope["query_string"], HistoryQuery)
        page = await self._coordinator.history.commits(
            name, None, None, "desc", HISTORY_A_PAGE, query.cursor, LOOK_SECONDS
        )
        return self._pages.page(
            request,
            "history.html",
            tab="history",
            table=await self._coordinator.tables.describe(name),
            commits=page.commits,
            next=page.next,
            first=query.cursor is None,
            started_ms=self._overview.started_ms,
        )

    async def schema(self, request: Request, name: TableName) -> Response:
        """The columns as a tree, and the properties."""
        query_as(request.scope["query_string"], NoQuery)
        view = await self._coordinator.tables.describe(name, LOOK_SECONDS)
        rows = schema_rows(view.schema, view.partition_columns)
        properties = sorted(view.properties.items())
        return self._pages.page(
            request,
            "schema.html",
            tab="schema",
            table=view,
            rows=rows,
            cut=len(rows) == MOST_ROWS,
            properties=properties[:MOST_PROPERTIES],
            more_properties=max(0, len(properties) - MOST_PROPERTIES),
        )

    async def files(self, request: Request, name: TableName) -> Response:
        """The files of a version, in pages. Costs the page; a version of the past is rebuilt once and kept a while."""
        query = query_as(request.scope["query_string"], FilesQuery)
        page = await self._coordinator.snapshots.files(
            name, query.version, None, LOOK_SECONDS, FILES_A_PAGE, query.cursor
        )
        return self._pages.page(
            request,
            "files.html",
            tab="files",
            table=await self._coordinator.tables.describe(name),
            page=page,
            asked=query.version,
            first=query.cursor is None,
        )

    async def skips(self, request: Request, name: TableName) -> Response:
        """Files that could not be processed, and which are left alone now. Costs sorting the records."""
        query = query_as(request.scope["query_string"], SkipsQuery)
        every = await self._coordinator.skips.all(name, LOOK_SECONDS)
        end = query.start + SKIPS_A_PAGE
        return self._pages.page(
            request,
            "skips.html",
            tab="skips",
            table=await self._coordinator.tables.describe(name),
            skips=every[query.start : end],
            total=len(every),
            start=query.start,
            next=end if end < len(every) else None,
            now_ms=self._coordinator.world.now_ms(),
        )
