"""An HTTP server that answers as told, for what a real S3 server does too rarely to wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class ScriptedServer:
    """Gives every request the same answer and counts the requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.endpoint = ""
        self.answer: bytes | None = None
        self.hangs = False

    def says(self, status: int, body: bytes = b"", *, length: int | None = None, headers: str = "") -> None:
        """Answer with `status`; `length` may promise more than `body` holds, which then breaks off."""
        told = len(body) if length is None else length
        self.answer = (
            f"HTTP/1.1 {status} Told\r\nContent-Length: {told}\r\nConnection: close\r\n{headers}\r\n".encode() + body
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
            self.requests.append(head)
            if self.hangs:
                await reader.read()
            elif self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    """A server on a free port; it closes the connection after each answer, or at once when it has none."""
    script = ScriptedServer()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        server.close()
