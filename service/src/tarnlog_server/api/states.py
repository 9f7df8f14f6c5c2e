"""States over HTTP: write one now or from scratch, see how the newest one does, and let go of what is old."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.tables import CleanUp, WriteCheckpoint, WriteCompaction
from tarnlog_server.api.answers import json_answer
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import CHECKPOINT, CLEANUP, STATE
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.operations import STILL_RUNNING, long_answer
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.checkpoints import CheckpointView, StateView
from tarnlog_server.usecases.cleanup import CleanupView
from tarnlog_server.usecases.coordinator import Coordinator

_CHECKPOINT = msgspec.json.Decoder(WriteCheckpoint)
_COMPACTION = msgspec.json.Decoder(WriteCompaction)
_CLEANUP = msgspec.json.Decoder(CleanUp)
_TAG = "states"
# An older table is first raised to the protocol that has states, which is a commit like any other.
_WRITING = (
    "commit-conflict",
    "table-read-only",
    "protocol-not-supported",
    "too-many-waiting",
    "commit-contended",
    "commit-unknown",
    "not-ready",
    "shutting-down",
)


class StateRoutes:
    """The operations on states."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def checkpoint(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _CHECKPOINT, self._limits, self._coordinator.world, empty=WriteCheckpoint())
        return await long_answer(
            request,
            self._coordinator.operations,
            "checkpoint",
            lambda progress: self._coordinator.checkpoints.checkpoint(table_of(request), wanted.format, progress),
            parameters=wanted.format,
            facts=_facts,
        )

    async def compact(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        await read_as(request, _COMPACTION, self._limits, self._coordinator.world, empty=WriteCompaction())
        return await long_answer(
            request,
            self._coordinator.operations,
            "compact",
            lambda progress: self._coordinator.checkpoints.compact(table_of(request), progress),
            facts=_facts,
        )

    async def cleanup(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _CLEANUP, self._limits, self._coordinator.world, empty=CleanUp())
        return await long_answer(
            request,
            self._coordinator.operations,
            "cleanup",
            lambda progress: self._coordinator.cleanup.cleanup(
                table_of(request), dry_run=wanted.dry_run, progress=progress
            ),
            parameters=wanted.dry_run,
            facts=_cleaned,
        )

    async def state(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        return json_answer(await self._coordinator.checkpoints.describe(table_of(request)))

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="checkpoint",
                method="POST",
                path="/v1/tables/{table}/checkpoint",
                endpoint=self.checkpoint,
                tag=_TAG,
                summary="Write a state now",
                description="Of the newest version, in the table's format or the one given. Commits go on meanwhile; "
                "sent twice, it does no harm. Needs scope `write`.",
                scope="write",
                changes="checkpoint",
                body=WriteCheckpoint,
                body_optional=True,
                example={"format": "avro"},
                results={200: Result("The state that was written", CheckpointView, CHECKPOINT), **STILL_RUNNING},
                problems=_WRITING,
            ),
            Operation(
                id="compact",
                method="POST",
                path="/v1/tables/{table}/compact",
                endpoint=self.compact,
                tag=_TAG,
                summary="Write a state from scratch",
                description="An Avro state without tombstones, in few manifests with tight bounds. The data files stay "
                "as they are. Needs scope `write`.",
                scope="write",
                changes="compact",
                body=WriteCompaction,
                body_optional=True,
                example={},
                results={200: Result("The state that was written", CheckpointView, CHECKPOINT), **STILL_RUNNING},
                problems=_WRITING,
            ),
            Operation(
                id="cleanup",
                method="POST",
                path="/v1/tables/{table}/cleanup",
                endpoint=self.cleanup,
                tag=_TAG,
                summary="Delete what of the log is older than its retention",
                description="Versions below the floor, superseded checkpoints and states, manifests that no state "
                "uses; then the floor moves on. With `dryRun` nothing changes and the answer tells what would go. "
                "`status` is `success`, `dry-run`, `partial` (some deletions failed; the next cleanup tries again), "
                "`failed` (one did, and `cleanup.failurePolicy` is `fail`: nothing was deleted after it), "
                "`disabled` by `cleanup.enabled`, or `anchor-damaged`: the floor's state is broken, and nothing was "
                "deleted. Sent twice, it does no harm. Needs scope `write`.",
                scope="write",
                changes="cleanup",
                body=CleanUp,
                body_optional=True,
                example={"dryRun": True},
                results={200: Result("What was deleted, or would be", CleanupView, CLEANUP), **STILL_RUNNING},
                problems=_WRITING,
            ),
            Operation(
                id="describeState",
                method="GET",
                path="/v1/tables/{table}/state",
                endpoint=self.state,
                tag=_TAG,
                summary="How the newest state does",
                description="The newest state that this replica opened the table from or wrote. `status` is `ours`, "
                "`foreign` for another writer's, `none` when there is no state: the log alone tells the table. "
                "`numFiles` and `totalBytes` are those of the state's own `version`, not of the newest one.",
                results={200: Result("The state", StateView, STATE)},
            ),
        ]


def _facts(written: CheckpointView) -> dict[str, Any]:
    return {"version": written.checkpoint_version, "files": written.num_files}


def _cleaned(done: CleanupView) -> dict[str, Any]:
    return {"outcome": done.status, "versions": done.versions_deleted, "floor": done.floor}
