"""A connection's way out that sends the head of an answer together with its body.

uvicorn writes them one after the other, and each write is a call into the system that also wakes the client: the first
time for half an answer. Here the first write of a turn waits for the second. What nothing follows, such as the head of
a stream that has no event yet, goes out at the end of the turn.
"""

from __future__ import annotations

import asyncio
from typing import Any


class JoinedWrites:
    """Stands in for an asyncio.Transport; whatever is not about writing is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        """Send, in order: with what is held, or by the end of this turn of the loop."""
        held = self._held
        if held is None:
            self._held = data
            self._loop.call_soon(self._let_go)
        else:
            self._held = None
            self._transport.writelines((held, data))

    def write_eof(self) -> None:
        self._let_go()
        self._transport.write_eof()

    def close(self) -> None:
        """End the connection after everything that was written."""
        self._let_go()
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._held = None
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._transport.write(held)
