"""The index over HTTP: make what it holds of a table again."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import RebuildIndex
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import REBUILT
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.operations import STILL_RUNNING, long_answer
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.rebuild import RebuildView

_BODY = msgspec.json.Decoder(RebuildIndex)


class IndexRoutes:
    """The operations on the index."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def rebuild(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        await read_as(request, _BODY, self._limits, self._coordinator.world, empty=RebuildIndex())
        rebuilding = self._coordinator.rebuilding
        return await long_answer(
            request,
            self._coordinator.operations,
            "rebuild",
            lambda progress: rebuilding.rebuild(table_of(request), progress),
            facts=_facts,
        )

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="rebuild",
                method="POST",
                path="/v1/tables/{table}/rebuild",
                endpoint=self.rebuild,
                tag="service",
                summary="Make the index of a table again",
                description="Forgets what the index holds of a table and reads every version that the log still has. "
                "The index heals by itself; this is for history from before it was there, or after a doubt. Nothing in "
                "storage changes; commits and reads go on. Sent twice, it does no harm. Needs scope `write`.",
                scope="write",
                changes="rebuild",
                body=RebuildIndex,
                body_optional=True,
                example={},
                results={200: Result("What the index holds now", RebuildView, REBUILT), **STILL_RUNNING},
                problems=("index-unavailable", "too-many-waiting", "not-ready", "shutting-down"),
            ),
        ]


def _facts(made: RebuildView) -> dict[str, Any]:
    return {"versions": made.versions, "first": made.first_version, "last": made.last_version}
