"""Skipped files over HTTP: record one, list them, and see which are left alone for now."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.actions import Skip
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.api.answers import flat, json_answer, large_answer
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import RECORD_SKIP, SKIP
from tarnlog_server.api.operation import Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.parameters import Fresh, NoQuery, Paged
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.cursors import decode_cursor, encode_cursor

_RECORD = msgspec.json.Decoder(RecordSkip)
_TAG = "skips"


class SkipsPage(Struct, frozen=True):
    """Some skip records; `next` continues."""

    skips: tuple[Skip, ...]
    next: str | None


class CooldownsView(Struct, frozen=True):
    """Until when each path is left alone, in epoch milliseconds."""

    cooldowns: dict[str, int]


class _Cursor(Struct, frozen=True):
    p: str


class SkipRoutes:
    """The operations on skipped files."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def record(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _RECORD, self._limits, self._coordinator.world)
        skip, committed = await self._coordinator.skips.record(table_of(request), wanted, caller_of(request).name)
        audited(request, version=committed.version, seq=committed.seq, commit_id=committed.commit_id, path=skip.path)
        return json_answer(skip, 201)

    async def listed(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], Paged)
        after = decode_cursor(query.cursor, _Cursor).p if query.cursor is not None else None
        every = await self._coordinator.skips.all(table_of(request), query.max_staleness_seconds)
        rest = sorted((skip for skip in every if after is None or skip.path > after), key=lambda skip: skip.path)
        page = rest[: query.limit]
        following = encode_cursor(_Cursor(page[-1].path)) if len(rest) > len(page) else None
        content = {"skips": [flat(skip) for skip in page], "next": following}
        return await large_answer(request, self._coordinator.world, content)

    async def cooldowns(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], Fresh)
        found = await self._coordinator.skips.cooldowns(table_of(request), query.max_staleness_seconds)
        return await large_answer(request, self._coordinator.world, CooldownsView(found))

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="recordSkip",
                method="POST",
                path="/v1/tables/{table}/skips",
                endpoint=self.record,
                tag=_TAG,
                summary="Record a file that could not be processed",
                description="The file stays in the table and is left alone for the cooldown; `skipCount` counts how "
                "often this happened. Needs scope `write`.",
                scope="write",
                changes="record skip",
                body=RecordSkip,
                example=RECORD_SKIP,
                results={201: Result("The record as written", Skip, SKIP)},
                problems=(
                    "commit-conflict",
                    "table-read-only",
                    "commit-invalid",
                    "protocol-not-supported",
                    "too-many-waiting",
                    "commit-contended",
                    "commit-unknown",
                    "not-ready",
                    "shutting-down",
                ),
            ),
            Operation(
                id="listSkips",
                method="GET",
                path="/v1/tables/{table}/skips",
                endpoint=self.listed,
                tag=_TAG,
                summary="Files that could not be processed",
                description="The records of live files, in the order of their paths.",
                query=Paged,
                results={200: Result("A page of records", SkipsPage, {"skips": [SKIP], "next": None})},
            ),
            Operation(
                id="listCooldowns",
                method="GET",
                path="/v1/tables/{table}/cooldowns",
                endpoint=self.cooldowns,
                tag=_TAG,
                summary="Files that are left alone for now",
                description="Paths whose `retryAfter` has not come yet.",
                query=Fresh,
                results={
                    200: Result("By path", CooldownsView, {"cooldowns": {SKIP["path"]: SKIP["retryAfter"]}}),
                },
            ),
        ]
