"""Planning a scan: the requests, how their answers are read, and the pages put together. No I/O."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from tarnlog._errors import InvalidRequest, ServerFault
from tarnlog._exchange import Answer, Call, Request
from tarnlog._extras import needed
from tarnlog._wire import JSON, Timestamp, actions, body, decoded, table_path, time_text
from tarnlog.protocol.action_json import DECODE_ERRORS
from tarnlog.protocol.actions import Add
from tarnlog.protocol.plans import MAX_PAGE, ExplainedFile, ExplainedManifest, Explanation, Ledger, PlanSince
from tarnlog.protocol.predicates import Predicate, PredicateError, parse_predicate, to_builtins

ARROW = "application/vnd.apache.arrow.stream"
Filter: TypeAlias = str | Mapping[str, Any] | Predicate
"""A SQL predicate, a tree as JSON has it, or a tree of `tarnlog.protocol.predicates`."""
T = TypeVar("T")
Pages: TypeAlias = Callable[[str | None], Call["PlanPage"]]


class Plan(Struct, frozen=True, kw_only=True):
    """The files of one version that may hold rows which a filter wants: none that could is left out.

    `filter` is what the service understood of it, None for every row.
    """

    version: int
    ledger: Ledger
    files: tuple[Add, ...]
    filter: Predicate | None = None


class ArrowPlan(Struct, frozen=True, kw_only=True):
    """The same with the files as a `pyarrow.Table`; `tarnlog.arrow_files.adds_of` makes actions of its batches.

    With `since` it has only the files that came since an older version, and the ledger counts those of the whole plan.
    """

    version: int
    ledger: Ledger
    files: Any
    filter: Predicate | None = None
    since: PlanSince | None = None


class PlanExplanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why manifests and files are read or not. `complete` is False where files are left that were not asked about."""

    version: int
    ledger: Ledger
    files: tuple[ExplainedFile, ...]
    manifests: tuple[ExplainedManifest, ...]
    complete: bool


class PlanPage(Struct, frozen=True, kw_only=True):
    """One page as it came."""

    version: int
    ledger: Ledger
    files: list[Add]
    next: str | None
    filter: Predicate | None
    explain: Explanation


class _Document(Struct, frozen=True, kw_only=True):
    version: int
    ledger: Ledger
    files: list[Any] = []
    next: str | None = None
    filter: dict[str, Any] | None = None
    explain: Explanation = Explanation()


def plan_pages(
    table: str,
    filter: Filter | None,  # noqa: A002
    *,
    version: int | None,
    timestamp: Timestamp | None,
    max_staleness_seconds: float | None,
    exclude_cooldowns: bool,
    time_zone: str | None,
    explain: bool = False,
    page_size: int | None = None,
) -> Pages:
    """The pages of a plan, each told by the cursor of the one before. Wrong arguments show at once."""
    fields = _fields(filter, version, timestamp, max_staleness_seconds, exclude_cooldowns, time_zone)
    fields |= {"limit": page_size or MAX_PAGE, "explain": explain or None}
    path = table_path(table, "plan")

    def call(cursor: str | None) -> Call[PlanPage]:
        request = Request(method="POST", path=path, headers=JSON, body=body(**fields, cursor=cursor))
        return Call(request=request, read=_page)

    return call


def plan_stream(
    table: str,
    filter: Filter | None,  # noqa: A002
    *,
    version: int | None,
    timestamp: Timestamp | None,
    max_staleness_seconds: float | None,
    exclude_cooldowns: bool,
    time_zone: str | None,
    fields: Sequence[str] | None,
    since: int | None,
) -> Call[ArrowPlan]:
    """The whole plan as an Arrow stream. InvalidRequest without pyarrow."""
    needed("pyarrow", "arrow")
    asked = _fields(filter, version, timestamp, max_staleness_seconds, exclude_cooldowns, time_zone)
    content = body(**asked, fields=None if fields is None else list(fields), since=since)
    headers = {**JSON, "accept": ARROW}
    return Call(
        request=Request(method="POST", path=table_path(table, "plan"), headers=headers, body=content), read=_stream
    )


Whole: TypeAlias = Generator[Call[PlanPage], PlanPage, T]
"""Asks for pages, gets them, and returns what they are together: the blocking and the asyncio client both drive it."""


def whole_plan(pages: Pages) -> Whole[Plan]:
    """All pages as one plan."""
    first = page = yield pages(None)
    files = list(page.files)
    while page.next is not None:
        page = yield pages(page.next)
        files += page.files
    return Plan(version=first.version, ledger=first.ledger, files=tuple(files), filter=first.filter)


def whole_explanation(pages: Pages, max_files: int | None) -> Whole[PlanExplanation]:
    """Pages until enough files are explained."""
    first = page = yield pages(None)
    files = list(page.explain.files)
    while page.next is not None and (max_files is None or len(files) < max_files):
        page = yield pages(page.next)
        files += page.explain.files
    return PlanExplanation(
        version=first.version,
        ledger=first.ledger,
        files=tuple(files[:max_files]),
        manifests=first.explain.manifests,
        complete=page.next is None and (max_files is None or len(files) <= max_files),
    )


def _fields(
    asked: Filter | None,
    version: int | None,
    timestamp: Timestamp | None,
    max_staleness_seconds: float | None,
    exclude_cooldowns: bool,
    time_zone: str | None,
) -> dict[str, Any]:
    if version is not None and timestamp is not None:
        raise InvalidRequest("Ask for a version or for a timestamp, not for both.")
    return {
        "filter": filter_document(asked),
        "time_zone": time_zone,
        "version": version,
        "timestamp": time_text(timestamp),
        "max_staleness_seconds": max_staleness_seconds,
        "exclude_cooldowns": exclude_cooldowns or None,
    }


def filter_document(asked: Filter | None) -> str | dict[str, Any] | None:
    """A filter as it goes over the wire."""
    if asked is None or isinstance(asked, str):
        return asked
    return dict(asked) if isinstance(asked, Mapping) else to_builtins(asked)


def _page(answer: Answer) -> PlanPage:
    found = decoded(answer, _Document)
    return PlanPage(
        version=found.version,
        ledger=found.ledger,
        files=actions(Add, found.files),
        next=found.next,
        filter=_understood(found.filter),
        explain=found.explain,
    )


def _stream(answer: Answer) -> ArrowPlan:
    pa = needed("pyarrow", "arrow")
    try:
        files = pa.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        files.validate(full=True)  # Arrow believes the offsets in a stream, and would read beyond it
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ServerFault(f"The Arrow stream could not be read ({error}).", status=answer.status) from error
    told: dict[bytes, bytes] = files.schema.metadata or {}
    try:
        ledger = msgspec.json.decode(told.get(b"ledger", b""), type=Ledger)
        tree = msgspec.json.decode(told.get(b"filter", b"null"))
        since = msgspec.json.decode(told.get(b"since", b"null"), type=PlanSince | None)
        version = msgspec.json.decode(told.get(b"version", b""), type=int)
    except DECODE_ERRORS as error:
        raise ServerFault(f"The Arrow stream does not say what it holds ({error}).", status=answer.status) from error
    if files.num_rows != (ledger.files_after_cooldowns if since is None else since.came):
        raise ServerFault("The Arrow stream broke off: it holds fewer files than it announced.", status=answer.status)
    return ArrowPlan(version=version, ledger=ledger, files=files, filter=_understood(tree), since=since)


def _understood(tree: Any) -> Predicate | None:
    try:
        return None if tree is None else parse_predicate(tree)
    except PredicateError as error:
        raise ServerFault(f"The service's filter could not be read ({error}). Is this client new enough?") from error
