"""Reading tables over HTTP: what a table is at a version, which files it has then, and how far applications got."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.actions import Txn
from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.api.answers import (
    arrow_answer,
    entity_tag,
    json_answer,
    large_answer,
    not_modified,
    wants_arrow,
)
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import ADD, SNAPSHOT
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.parameters import At, AtPaged, Fresh
from tarnlog_server.codec.arrow_stream import MEDIA_TYPE
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.snapshots import FilesPage, SnapshotView

_TAG = "reads"


class TxnView(Struct, frozen=True, rename="camel"):
    """How far an application got."""

    app_id: str
    version: int
    last_updated: Annotated[int, Meta(description="Epoch milliseconds.")] | None


class SnapshotRoutes:
    """The operations that read the present and the past."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def snapshot(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], At)
        view = await self._coordinator.snapshots.snapshot(
            table_of(request), query.version, query.moment, query.max_staleness_seconds
        )
        tag = entity_tag(str((view.meta_data or {}).get("id", "")), view.version)
        known = not_modified(request, tag)
        return known or await large_answer(request, self._coordinator.world, view, {"etag": tag})

    async def files(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], AtPaged)
        if wants_arrow(request):
            asked = PlanRequest(version=query.version, max_staleness_seconds=query.max_staleness_seconds)
            return arrow_answer(await self._coordinator.plans.arrow(table_of(request), asked, query.moment))
        page = await self._coordinator.snapshots.encoded_files(
            table_of(request), query.version, query.moment, query.max_staleness_seconds, query.limit, query.cursor
        )
        return await large_answer(request, self._coordinator.world, page)

    async def txn(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], Fresh)
        app_id = request.scope["path_params"]["appId"]
        found: Txn = await self._coordinator.snapshots.txn(table_of(request), app_id, query.max_staleness_seconds)
        return json_answer(TxnView(found.app_id, found.version, found.last_updated))

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="getSnapshot",
                method="GET",
                path="/v1/tables/{table}/snapshot",
                endpoint=self.snapshot,
                tag=_TAG,
                summary="A table at a version",
                description="The newest version, one by number, or the one that was newest at a time.",
                query=At,
                parameters={"header:If-None-Match": {"type": "string"}},
                results={200: Result("The snapshot", SnapshotView, SNAPSHOT), 304: Result("You have it already")},
                problems=("version-not-found", "version-expired"),
            ),
            Operation(
                id="listFiles",
                method="GET",
                path="/v1/tables/{table}/files",
                endpoint=self.files,
                tag=_TAG,
                summary="The files of a version",
                description="Live files in the order they were added. Every page of one list is of the same version. "
                "With `Accept: application/vnd.apache.arrow.stream`, all of them as one Arrow stream.",
                query=AtPaged,
                results={
                    200: Result(
                        "A page of files",
                        FilesPage,
                        {"version": 13, "files": [ADD], "next": None},
                        or_media=MEDIA_TYPE,
                    ),
                },
                problems=("version-not-found", "version-expired"),
            ),
            Operation(
                id="getTxn",
                method="GET",
                path="/v1/tables/{table}/txns/{appId:path}",
                endpoint=self.txn,
                tag=_TAG,
                summary="How far an application got",
                description="The newest `txn` action of an application: streams ask before they write a batch again.",
                query=Fresh,
                parameters={"appId": {"type": "string", "minLength": 1, "example": "orders-stream"}},
                results={
                    200: Result(
                        "Its position", TxnView, {"appId": "orders-stream", "version": 41, "lastUpdated": 1704067200000}
                    )
                },
                problems=("txn-not-found",),
            ),
        ]
