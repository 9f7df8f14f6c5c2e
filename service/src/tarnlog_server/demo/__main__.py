"""The demonstration itself: about fifteen seconds, most of them writing."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import httpx
from rich.console import Console

from tarnlog_server.demo.log_reading import check_log
from tarnlog_server.demo.report import show
from tarnlog_server.demo.service import DemoService
from tarnlog_server.demo.writers import SCHEMA, TABLE, Writers

WRITERS = 16
BEFORE_SECONDS = 4.0
AFTER_SECONDS = 4.0
TICK_SECONDS = 0.2


async def demonstrate(console: Console, folder: Path) -> bool:
    """Run it; whether nothing was lost."""
    service = DemoService(folder)
    try:
        with console.status("starting the service, with its data in a temporary folder"):
            await service.start()
            await _create_table(service)
        console.print(f"The service runs on {service.url}. {WRITERS} writers append to one table as fast as they can.")
        writers = Writers(service.url, WRITERS)
        began = time.monotonic()
        running = asyncio.create_task(writers.run())
        await _watch(console, writers, BEFORE_SECONDS, "writing")
        await service.kill()
        console.print(f"[red]kill -9[/] after {len(writers.acknowledged)} acknowledged commits. Starting it again ...")
        started = time.monotonic()
        await service.start()
        console.print(f"Ready again after {time.monotonic() - started:.1f} s; writers resend what was not answered.")
        await _watch(console, writers, AFTER_SECONDS, "writing")
        writers.stop()
        await asyncio.wait_for(running, 60)
        seconds = time.monotonic() - began
    finally:
        await service.stop()
    check = await asyncio.to_thread(check_log, service.warehouse, writers.acknowledged)
    show(console, writers.acknowledged, check, seconds, WRITERS)
    for refusal in writers.refused[:3]:
        console.print(f"[red]refused:[/] {refusal}")
    return check.sound and bool(writers.acknowledged) and not writers.refused


async def _create_table(service: DemoService) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
        answer = await client.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})
        answer.raise_for_status()


async def _watch(console: Console, writers: Writers, seconds: float, doing: str) -> None:
    """Let the writers work, and show how far they are."""
    began, before = time.monotonic(), len(writers.acknowledged)
    with console.status(doing) as status:
        while (elapsed := time.monotonic() - began) < seconds:
            await asyncio.sleep(TICK_SECONDS)
            done = len(writers.acknowledged)
            status.update(f"{doing}: {done} commits acknowledged, {(done - before) / max(elapsed, 0.1):.0f} a second")


def main() -> int:
    """The exit code: 0 when nothing acknowledged was lost."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tarnlog-demo-") as folder:
        sound = asyncio.run(demonstrate(console, Path(folder)))
    if not sound:
        console.print("[bold red]Something was lost or is out of place. This is a bug; please report it.[/]")
        return 1
    console.print("[bold green]Nothing that was acknowledged was lost, and nothing was written twice.[/]")
    console.print("To try it yourself: [bold]./dev serve[/], then look at http://127.0.0.1:8420/docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
