"""An application behind the service's own HTTP protocol: on a real socket of this process, or fed piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from tarnlog_server.api.http_protocol import BoundedHttp, ConnectionLimits, bounded_http

PATIENT = ConnectionLimits(head_seconds=60, body_seconds=60, connections=1000)


class Reply(NamedTuple):
    """One answer as it came over the wire; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def protocol_of(app: ASGIApp, limits: ConnectionLimits, state: ServerState) -> BoundedHttp:
    """The protocol of one connection. It needs a running loop."""
    config = uvicorn.Config(
        cast(Any, app), http=bounded_http(limits), lifespan="off", ws="none", log_config=None, access_log=False
    )
    config.load()
    config.timeout_keep_alive = 60
    made = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
    return cast(BoundedHttp, made)


@asynccontextmanager
async def served(app: ASGIApp, limits: ConnectionLimits = PATIENT, port: int = 0) -> AsyncIterator[int]:
    """Listen on a port of loopback for the block, by default a free one; the port."""
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: protocol_of(app, limits, state), "127.0.0.1", port)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


class FedConnection(asyncio.Transport):
    """A connection without a socket: the test chooses the pieces that the protocol gets."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits = PATIENT, state: ServerState | None = None) -> None:
        super().__init__({"peername": ("10.0.0.1", 1000), "sockname": ("10.0.0.2", 80)})
        self.sent = bytearray()
        self.ended = False
        self.closed = False
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.state = state or ServerState()
        self.protocol = protocol_of(app, limits, self.state)
        self.protocol.connection_made(self)

    async def feed(self, *pieces: bytes) -> None:
        """Pass pieces on as a socket would: not while reading is paused, nor after the end."""
        for piece in pieces:
            await self._may_read.wait()
            if self.closed:
                return
            self.protocol.data_received(piece)
            await asyncio.sleep(0)

    async def settle(self) -> list[Reply]:
        """Wait until nothing runs any more; all answers so far."""
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
            await asyncio.sleep(0)
        return replies(bytes(self.sent))

    def write(self, data: Any) -> None:
        assert not self.closed
        assert not self.ended, "written after the end"
        self.sent += data

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._may_read.set()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return 0


def replies(wire: bytes) -> list[Reply]:
    """Every answer in these bytes, without interim ones; bytes that are no whole answer are an AssertionError."""
    found = []
    while wire:
        reply, wire = first_reply(wire)
        if reply.status != 100:
            found.append(reply)
    return found


def first_reply(wire: bytes) -> tuple[Reply, bytes]:
    head, end, rest = wire.partition(b"\r\n\r\n")
    assert end, f"half an answer: {wire[:200]!r}"
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    size = int(headers.get("content-length", "0"))
    assert len(rest) >= size, f"half an answer: {wire[:200]!r}"
    return Reply(int(status.split()[1]), headers, rest[:size]), rest[size:]
