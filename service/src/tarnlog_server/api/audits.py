"""Audits over HTTP: check a table whole, and make its broken states again."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import AuditTable
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import REPAIRED, VERIFIED
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.operations import STILL_RUNNING, long_answer
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.verify import AuditView

_BODY = msgspec.json.Decoder(AuditTable)
_TAG = "audits"


class AuditRoutes:
    """The operations that look whether a table is what its log says."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def verify(self, request: Request) -> Response:
        await self._no_wishes(request)
        verifying = self._coordinator.verifying
        return await long_answer(
            request,
            self._coordinator.operations,
            "verify",
            lambda progress: verifying.verify(table_of(request), progress),
            facts=_facts,
        )

    async def repair(self, request: Request) -> Response:
        await self._no_wishes(request)
        repairing = self._coordinator.repairing
        return await long_answer(
            request,
            self._coordinator.operations,
            "repair",
            lambda progress: repairing.repair(table_of(request), progress),
            facts=_facts,
        )

    async def _no_wishes(self, request: Request) -> None:
        query_as(request.scope["query_string"], NoQuery)
        await read_as(request, _BODY, self._limits, self._coordinator.world, empty=AuditTable())

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="verify",
                method="POST",
                path="/v1/tables/{table}/verify",
                endpoint=self.verify,
                tag=_TAG,
                summary="Check a table whole",
                description="Reads the whole log, every state and a listing of the data files, and changes nothing: is "
                "the log without a gap, is each object whole, does each state tell what replay gives, are the data "
                "files there. Works on tables that cannot be served. `status` is `success` or `failed`.",
                body=AuditTable,
                body_optional=True,
                example={},
                results={200: Result("The checks, and what each found", AuditView, VERIFIED), **STILL_RUNNING},
                problems=("too-many-waiting", "not-ready"),
            ),
            Operation(
                id="repair",
                method="POST",
                path="/v1/tables/{table}/repair",
                endpoint=self.repair,
                tag=_TAG,
                summary="Make broken states again",
                description="From the versions they describe, or older states. Version files and data files are never "
                "touched; what is put aside lies in `_damaged/` of the log. `status` is `incomplete` when a check "
                "still fails, and that check says what to do. Sent twice, it does nothing the second time. Needs "
                "scope `write`.",
                scope="write",
                changes="repair",
                body=AuditTable,
                body_optional=True,
                example={},
                results={200: Result("The checks afterwards, and what was done", AuditView, REPAIRED), **STILL_RUNNING},
                problems=(
                    "table-read-only",
                    "foreign-writer-detected",
                    "protocol-not-supported",
                    "commit-conflict",
                    "too-many-waiting",
                    "commit-contended",
                    "commit-unknown",
                    "not-ready",
                    "shutting-down",
                ),
            ),
        ]


def _facts(done: AuditView) -> dict[str, Any]:
    failed = [check.name for check in done.checks if not check.ok]
    return {"status": done.status, "failed": failed, "repaired": len(done.repaired)}
