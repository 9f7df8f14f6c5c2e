"""Notice that the file of an embedded index was deleted or replaced while the service runs.

Connections go on working on a deleted file, and everything they write is lost. Each use of the index compares the file
with the one that was opened; this job uses it now and then, so that a service without traffic notices as well.
"""

from __future__ import annotations

from tarnlog_server.ports.world import World
from tarnlog_server.usecases.index_guard import IndexGuard

EVERY_SECONDS = 2.0


async def watch_index_file(guard: IndexGuard, world: World) -> None:
    """Read from the index every few seconds, until cancelled. A failure makes the guard prepare the index again."""
    while True:
        await world.sleep(EVERY_SECONDS)
        await guard.read("file", lambda index: index.table(""))
