"""Vacuum over HTTP: which data files nothing leads to, and deleting them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import VacuumTable
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import VACUUM
from tarnlog_server.api.operation import Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.operations import STILL_RUNNING, long_answer
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.vacuum import VacuumView

_VACUUM = msgspec.json.Decoder(VacuumTable)


class VacuumRoutes:
    """The operation about data files that nothing leads to."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def vacuum(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _VACUUM, self._limits, self._coordinator.world, empty=VacuumTable())
        name = table_of(request)
        audited(request, dry_run=wanted.dry_run)
        if wanted.override_minimum:
            caller_of(request).require("admin", name.namespace)
            audited(request, override_minimum=True)
        return await long_answer(
            request,
            self._coordinator.operations,
            "vacuum",
            lambda progress: self._coordinator.vacuum.vacuum(
                name,
                dry_run=wanted.dry_run,
                retention_hours=wanted.retention_hours,
                override_minimum=wanted.override_minimum,
                progress=progress,
            ),
            parameters=wanted,
            facts=_facts,
        )

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="vacuum",
                method="POST",
                path="/v1/tables/{table}/vacuum",
                endpoint=self.vacuum,
                tag="vacuum",
                summary="Delete data files that nothing leads to",
                description="Files that no version from the floor on has, that no write session covers, and that are "
                "older than the retention (`deletedFileRetention.duration`, or `retentionHours`). A dry run unless "
                "`dryRun` is false. Less than 24 hours needs `overrideMinimum`, and with it scope `admin`; the rest "
                "needs scope `write`. Safe to stop and to send again.",
                scope="write",
                changes="vacuum",
                body=VacuumTable,
                body_optional=True,
                example={"dryRun": False, "retentionHours": 168},
                results={200: Result("What was deleted, or would be", VacuumView, VACUUM), **STILL_RUNNING},
                problems=(
                    "table-read-only",
                    "foreign-writer-detected",
                    "protocol-not-supported",
                    "too-many-waiting",
                    "not-ready",
                ),
            ),
        ]


def _facts(done: VacuumView) -> dict[str, Any]:
    return {"found": done.orphaned_files_found, "deleted": done.orphaned_files_deleted}
