"""Planning scans over HTTP: which files a reader has to read for a filter, and why."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.plans import PlanRequest
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import arrow_answer, large_answer, wants_arrow
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as, refused
from tarnlog_server.api.examples import ADD
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.parameters import MAX_INT, NoQuery, epoch_ms
from tarnlog_server.codec.add_arrow import FIELDS
from tarnlog_server.codec.arrow_stream import MEDIA_TYPE
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.plans import PlanPage

_PLAN = msgspec.json.Decoder(PlanRequest)
_EXAMPLE: dict[str, Any] = {"filter": "day = '2024-01-01' AND id BETWEEN 5 AND 9"}
_PAGE: dict[str, Any] = {
    "version": 13,
    "files": [ADD],
    "next": None,
    "ledger": {
        "manifestsTotal": 4,
        "manifestsPruned": 3,
        "filesTotal": 4000,
        "filesAfterPartitionPruning": 12,
        "filesAfterDataSkipping": 1,
        "filesAfterCooldowns": 1,
    },
}


class PlanRoutes:
    """The operation that plans."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def plan(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        asked = await read_as(request, _PLAN, self._limits, self._coordinator.world, empty=PlanRequest())
        plans = self._coordinator.plans
        if wants_arrow(request):
            if asked.explain or asked.cursor is not None:
                raise ProblemError("not-acceptable", "an Arrow stream has no pages and explains nothing: ask for JSON")
            _check_fields(asked)
            return arrow_answer(await plans.arrow(table_of(request), asked, _moment(asked)))
        if asked.fields is not None:
            raise refused("request-invalid", "/fields", "a page tells all fields: ask for an Arrow stream")
        if asked.since is not None:
            raise refused("request-invalid", "/since", "pages are of whole plans: ask for an Arrow stream")
        page = await plans.encoded(table_of(request), asked, _moment(asked))
        return await large_answer(request, self._coordinator.world, page)

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="planScan",
                method="POST",
                path="/v1/tables/{table}/plan",
                endpoint=self.plan,
                tag="reads",
                summary="The files to read for a filter",
                description="The files of one version that may hold rows which a filter wants, in the order they were "
                "added; none that could is left out, and the reader still applies the filter. `ledger` counts what "
                "each step left. With `explain`, pages go through all files and say why each was kept or dropped. With "
                "`Accept: application/vnd.apache.arrow.stream`, all of them as one Arrow stream, with the version and "
                "the ledger in the schema's metadata.",
                body=PlanRequest,
                body_optional=True,
                example=_EXAMPLE,
                results={200: Result("A page of files", PlanPage, _PAGE, or_media=MEDIA_TYPE)},
                problems=("filter-invalid", "version-not-found", "version-expired", "not-acceptable"),
            ),
        ]


def _check_fields(asked: PlanRequest) -> None:
    for at, name in enumerate(asked.fields or ()):
        if name not in FIELDS:
            raise refused("request-invalid", f"/fields/{at}", f"files have no field {name!r}")


def _moment(asked: PlanRequest) -> int | None:
    if asked.timestamp is None:
        return None
    if asked.version is not None:
        raise refused("request-invalid", "/timestamp", "give version or timestamp, not both")
    if isinstance(asked.timestamp, str):
        return epoch_ms(asked.timestamp)
    if not 0 <= asked.timestamp <= MAX_INT:
        raise refused("request-invalid", "/timestamp", "epoch milliseconds are a whole number from 0 up")
    return asked.timestamp
