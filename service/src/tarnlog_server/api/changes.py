"""Changes over HTTP: pulled in pages, or pushed as server-sent events; gap-free either way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import flat, large_answer
from tarnlog_server.api.decoding import query_as, refused
from tarnlog_server.api.examples import CHANGE
from tarnlog_server.api.operation import Operation, Result, table_of
from tarnlog_server.api.parameters import MAX_INT, NoQuery, Versions
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.history import ChangesPage, ChangeView

MAX_EVENT_BYTES = 1024 * 1024
_ENCODE = msgspec.json.Encoder().encode
_TAG = "changes"

_RESUMING = dict.fromkeys(
    ("after", "cursor", "from", "since", "version", "lastEventId", "last_event_id", "Last-Event-ID"),
    "to resume after a version, send it in the header Last-Event-ID",
)
"""What is said to those who look for a parameter to resume a stream with."""


class ChangeRoutes:
    """The operations that follow a table."""

    def __init__(self, coordinator: Coordinator, readiness: Readiness) -> None:
        self._coordinator = coordinator
        self._readiness = readiness

    async def changes(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], Versions)
        page = await self._coordinator.history.changes(
            table_of(request), query.from_, query.to, query.limit, query.cursor
        )
        content = {"changes": [_content(change) for change in page.changes], "next": page.next}
        return await large_answer(request, self._coordinator.world, content)

    async def events(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery, _RESUMING)
        name = table_of(request)
        changes = await self._coordinator.history.follow(name, _last_event(request))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return EventSourceResponse(_stream(name, changes, self._readiness.closed), headers=headers)

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="listChanges",
                method="GET",
                path="/v1/tables/{table}/changes",
                endpoint=self.changes,
                tag=_TAG,
                summary="What versions changed",
                description="The files each version added and removed, oldest first, without a gap; both ends count.",
                query=Versions,
                results={200: Result("A page of changes", ChangesPage, {"changes": [CHANGE], "next": None})},
                problems=("version-expired",),
            ),
            Operation(
                id="streamEvents",
                method="GET",
                path="/v1/tables/{table}/events",
                endpoint=self.events,
                tag=_TAG,
                summary="Follow a table live",
                description="Server-sent events, one a version, with the version as the event's id; `data` is one "
                "entry of the changes list. `Last-Event-ID` resumes after a version; without it the stream starts now. "
                "An event over 1 MiB is a summary with a `link` to the change. The stream does not end by itself.",
                parameters={
                    "header:Last-Event-ID": {"type": "integer", "minimum": 0, "maximum": MAX_INT},
                },
                results={200: Result("The stream", media="text/event-stream")},
                problems=("version-expired", "version-not-found"),
            ),
        ]


def _last_event(request: Request) -> int | None:
    text = request.headers.get("last-event-id")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= MAX_INT):
        raise refused("request-invalid", "/Last-Event-ID", "give the id of an event, which is a version")
    return int(text)


def _content(change: ChangeView) -> dict[str, Any]:
    return {
        "version": change.version,
        "timestamp": change.timestamp,
        "commits": change.commits,
        "adds": [flat(add) for add in change.adds],
        "removes": [flat(remove) for remove in change.removes],
    }


def event_of(name: TableName, change: ChangeView) -> bytes:
    """A change as an event; one that is too large says how much there is and where."""
    data = _ENCODE(_content(change))
    if len(data) > MAX_EVENT_BYTES:
        summary: dict[str, Any] = {
            "version": change.version,
            "timestamp": change.timestamp,
            "numCommits": len(change.commits),
            "numAdds": len(change.adds),
            "numRemoves": len(change.removes),
            "link": f"/v1/tables/{name}/changes?from={change.version}&to={change.version}",
        }
        data = _ENCODE(summary)
    return format_sse_event(data_str=data.decode(), event="change", id=str(change.version))


async def _stream(
    name: TableName, changes: AsyncIterator[ChangeView | None], closed: asyncio.Event
) -> AsyncIterator[bytes]:
    """Events until the client leaves, the table is dropped or the service stops; comments while nothing happens."""
    yield b": following\n\n"
    closing = asyncio.ensure_future(closed.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(changes, ...))
            try:
                await asyncio.wait({coming, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                change = coming.result()
            finally:
                coming.cancel()
            if change is ...:
                return
            yield b": nothing new\n\n" if change is None else event_of(name, change)
    except ProblemError as problem:
        yield format_sse_event(data_str=_ENCODE(problem.document()).decode(), event="error")
    finally:
        closing.cancel()
