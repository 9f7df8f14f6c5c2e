"""Erase over HTTP: what was removed from a table becomes unreadable."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import EraseTable
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import ERASED
from tarnlog_server.api.operation import Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.operations import STILL_RUNNING, long_answer
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.erase import EraseView

_ERASE = msgspec.json.Decoder(EraseTable)


class EraseRoutes:
    """The operation about what was removed."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def erase(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _ERASE, self._limits, self._coordinator.world, empty=EraseTable())
        name, by = table_of(request), caller_of(request).name
        audited(request, dry_run=wanted.dry_run)
        return await long_answer(
            request,
            self._coordinator.operations,
            "erase",
            lambda progress: self._coordinator.erasing.erase(name, dry_run=wanted.dry_run, by=by, progress=progress),
            parameters=wanted,
            facts=_facts,
        )

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="erase",
                method="POST",
                path="/v1/tables/{table}/erase",
                endpoint=self.erase,
                tag="vacuum",
                summary="Make removed rows unreadable now",
                description="Deletes the data files that versions up to now removed, whatever their age, and every "
                "older version, state and checkpoint. Time travel begins with the newest version afterwards: older "
                "ones are answered 410. Files of a write session stay, and so do files that are not the table's. "
                "The history records an `ERASE`. Safe to stop and to send again. Needs scope `admin`.",
                scope="admin",
                changes="erase",
                body=EraseTable,
                body_optional=True,
                example={"dryRun": True},
                results={200: Result("What was erased, or would be", EraseView, ERASED), **STILL_RUNNING},
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


def _facts(done: EraseView) -> dict[str, Any]:
    return {"version": done.version, "files": done.files_deleted, "versions": done.versions_erased}
