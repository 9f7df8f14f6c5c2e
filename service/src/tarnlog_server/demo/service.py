"""The service under demonstration: a process of its own, so that it can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx

START_SECONDS = 60.0


class DemoService:
    """The embedded service on a folder and a port; it may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self._log = folder / "service.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TARNLOG_")}
        env = {**clean, "TARNLOG_WAREHOUSE": str(self.warehouse), "TARNLOG_PORT": str(self.port)}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tarnlog_server", env=env, stdout=log, stderr=log
            )
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient(base_url=self.url) as client:
            while not await _ready(client):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the service did not start:\n{self._log.read_text()[-2000:]}")
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """kill -9: no goodbye, no cleaning up."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()


async def _ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/v1/health/ready", timeout=2)).status_code == 200
    except httpx.TransportError:
        return False
