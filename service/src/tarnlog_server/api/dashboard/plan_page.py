"""The plan explorer: what a filter leaves of a table's files, step by step, and why each file was kept or dropped."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import ExplainedFile, ExplainedManifest, Ledger, PlanRequest, Reason
from tarnlog.protocol.problems import Kind, ProblemError
from tarnlog_server.api.dashboard import words
from tarnlog_server.api.dashboard.pages import Pages
from tarnlog_server.api.decoding import query_as, refused
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.plans import PlanPage

FILES_A_PAGE = 100
MOST_MANIFESTS = 100
STALE_SECONDS = 5.0
_VERSION = re.compile(r"(0|[1-9][0-9]{0,17})\Z", re.ASCII)


class PlanQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the form asks. `show`: the files to read, or every file with its reason."""

    filter: Annotated[str, Meta(max_length=4000)] = ""
    version: Annotated[str, Meta(max_length=20)] = ""
    cooldowns: Literal["", "exclude"] = ""
    show: Literal["files", "why"] = "files"
    cursor: Annotated[str, Meta(max_length=16_384)] = ""


class Step(Struct, frozen=True):
    """One step of the funnel: what it is, and how many files it left."""

    label: str
    files: int


class Line(Struct, frozen=True):
    """A file or a manifest, and what became of it."""

    path: str
    kept: bool
    reasons: tuple[str, ...]
    files: int | None = None


class PlanExplorer:
    """Gathers the page."""

    def __init__(self, coordinator: Coordinator, pages: Pages) -> None:
        self._coordinator = coordinator
        self._pages = pages

    async def plan(self, request: Request, name: TableName) -> Response:
        """The form, and below it the plan it asks for. Costs what the same plan costs over the API."""
        query = query_as(request.scope["query_string"], PlanQuery)
        table = await self._coordinator.tables.describe(name, STALE_SECONDS)
        page: PlanPage | None = None
        problem: ProblemError | None = None
        if request.scope["query_string"]:
            try:
                page = await self._coordinator.plans.page(name, _asked(query), None)
            except ProblemError as error:
                if error.code.kind not in (Kind.INVALID, Kind.NOT_FOUND, Kind.GONE):
                    raise
                problem = error
        told = page.explain if page is not None and page.explain is not msgspec.UNSET else None
        return self._pages.page(
            request,
            "plan.html",
            200 if problem is None else problem.code.status,
            tab="plan",
            table=table,
            query=query,
            problem=problem,
            page=page,
            steps=[] if page is None else steps(page.ledger),
            lines=[] if told is None else [line(one) for one in told.files],
            manifests=[] if told is None else [line(one) for one in told.manifests[:MOST_MANIFESTS]],
            more_manifests=0 if told is None else max(0, len(told.manifests) - MOST_MANIFESTS),
            link=lambda **other: urlencode({**msgspec.structs.asdict(query), "cursor": "", **other}),
        )


def _asked(query: PlanQuery) -> PlanRequest:
    version = query.version.strip()
    if version and not _VERSION.match(version):
        raise refused("request-invalid", "/version", "a version is a whole number from 0 up; leave it empty for now")
    return PlanRequest(
        filter=query.filter.strip() or None,
        version=int(version) if version else None,
        max_staleness_seconds=STALE_SECONDS,
        limit=FILES_A_PAGE,
        cursor=query.cursor or None,
        exclude_cooldowns=query.cooldowns == "exclude",
        explain=query.show == "why",
    )


def steps(ledger: Ledger) -> list[Step]:
    """The ledger as a funnel."""
    return [
        Step("in the table", ledger.files_total),
        Step("after partition values", ledger.files_after_partition_pruning),
        Step("after column bounds", ledger.files_after_data_skipping),
        Step("after cooldowns", ledger.files_after_cooldowns),
    ]


def line(one: ExplainedFile | ExplainedManifest) -> Line:
    """A file or a manifest with its reasons in words."""
    files = one.num_entries if isinstance(one, ExplainedManifest) else None
    return Line(one.path, one.kept, tuple(reason_text(reason) for reason in one.because), files)


def reason_text(reason: Reason) -> str:
    """One reason in words."""
    if reason.by == "partition":
        value = "null" if reason.value is None else repr(reason.value)
        told = f"{reason.column} is {value}"
        if reason.value is None and (reason.least is not None or reason.greatest is not None):
            told = f"{reason.column} is in {reason.least!r} to {reason.greatest!r}"
    elif reason.by == "bounds":
        told = f"{reason.column} is in {reason.least!r} to {reason.greatest!r}"
    elif reason.by == "cooldown":
        told = f"it is left alone until {words.moment(reason.until)} UTC"
    elif reason.by == "never":
        told = "no row can satisfy the filter"
    else:
        told = f"nothing is known of {reason.column}" if reason.column else "nothing is known of it"
    return words.short(told)
