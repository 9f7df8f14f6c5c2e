"""The live feed without I/O: server-sent events, where to resume, and which versions are missing.

A feed hands out every version above its start once and in order. What a reconnect repeats is dropped. What an event
leaves out (a version in between, or the files of a version too large for one event) is named: the client fetches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from tarnlog._calls import version_change
from tarnlog._errors import ServerFault
from tarnlog._results import VersionChange
from tarnlog.protocol.action_json import DECODE_ERRORS


class ServerEvent(Struct, frozen=True, kw_only=True):
    """One dispatched event."""

    data: str
    id: str | None = None
    event: str = "message"


class EventParser:
    """The text/event-stream format, fed in chunks of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._data: list[str] = []
        self._id: str | None = None
        self._event = ""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that end in this chunk."""
        buffer = self._rest + chunk
        if not self._started and len(buffer) >= 3:
            self._started = True
            buffer = buffer.removeprefix(b"\xef\xbb\xbf")
        # A CR at the very end may be half of a CRLF: it waits for the next chunk.
        held = b"\r" if buffer.endswith(b"\r") else b""
        text = buffer[: len(buffer) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = text.split(b"\n")
        self._rest = last + held
        for line in lines:
            if (event := self._line(line.decode("utf-8", "replace"))) is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "event":
            self._event = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return ServerEvent(data="\n".join(data), id=self._id, event=event or "message")


class Missing(Struct, frozen=True):
    """Versions that must be fetched from the change feed, both ends inclusive."""

    first: int
    last: int


class ChangeFeed:
    """Where a reader of the live feed is; `position` is the last version handed out."""

    def __init__(self, after: int) -> None:
        self.position = after
        self._parser = EventParser()

    def connected(self) -> None:
        """A new connection starts a new stream; half an event of the old one is void."""
        self._parser = EventParser()

    def receive(self, chunk: bytes) -> Iterator[VersionChange | Missing]:
        """What a chunk brings, in version order. The caller hands back what it fetched for a Missing by `advance`."""
        for event in self._parser.feed(chunk):
            if event.event == "error":
                continue
            document = _document(event)
            number = document.get("version")
            if not isinstance(number, int) or number <= self.position:
                continue
            if number > self.position + 1:
                yield Missing(self.position + 1, number - 1)
                self.position = number - 1
            # An event too large to carry its files is a summary.
            yield version_change(document) if "adds" in document else Missing(number, number)
            self.position = number


def _document(event: ServerEvent) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(event.data)
    except DECODE_ERRORS as error:
        raise ServerFault(f"An event of the live feed could not be read ({error}).") from error
    return document if isinstance(document, dict) else {}
