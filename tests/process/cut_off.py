"""A way to a TCP server that can be cut: what is connected ends at once, and nothing new gets through."""

from __future__ import annotations

import asyncio
import contextlib


class Cable:
    """Listens on a port of its own and passes everything on to another, until it is cut."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._whole = True
        self.port = 0

    async def open(self) -> Cable:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def cut(self) -> None:
        """End every connection; new ones are closed as they come."""
        self._whole = False
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def mend(self) -> None:
        """Let new connections through again."""
        self._whole = True

    async def close(self) -> None:
        await self.cut()
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            if self._whole:
                await self._pass_both_ways(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._passing.discard(task)
            writer.transport.abort()

    async def _pass_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        ways = [asyncio.create_task(_pass(reader, far_writer)), asyncio.create_task(_pass(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            far_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
