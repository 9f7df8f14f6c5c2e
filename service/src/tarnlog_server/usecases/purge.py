"""Deleting what a dropped table left: its data files, and of its log all but the floor, the last and young versions.

A replica that does not know of the drop yet writes into the slot after its head; that must be taken. It trusts a head
for at most FLOOR_CHECK_AFTER_SECONDS without reading the floor, so version files younger than that stay.
"""

from __future__ import annotations

import asyncio

from tarnlog_server.ports.object_store import OutcomeUnknown
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.catalog import SETTLE_ATTEMPTS
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.slots import FLOOR_CHECK_AFTER_SECONDS

BATCH = 16
CLOCK_MARGIN_MS = 5 * 60 * 1000


async def purge(live: LiveTable, world: World) -> int:
    """Delete a dropped table's objects; how many went. Raises ProblemError. Safe to run again after a stop.

    The floor comes first: whoever still believes in an older version then learns that it does not exist.
    """
    if not live.head.dropped:
        raise ValueError("only a dropped table may be purged")
    store, paths = live.log.store, live.log.paths
    last = live.head.version
    prefix = f"{paths.table}/" if paths.table else ""
    kept_since = world.now_ms() - int(FLOOR_CHECK_AFTER_SECONDS * 1000) - CLOCK_MARGIN_MS
    deleted = 0
    with live.translated():
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                await store.put_if_absent(paths.floor(last), b"")
                live.purged = True
                break
            except OutcomeUnknown:
                if attempt == SETTLE_ATTEMPTS - 1:
                    raise
                await world.sleep(0.1 * 2**attempt)
        after: str | None = None
        while True:
            page = await store.list(prefix, start_after=after, limit=1000)
            keys = [
                info.key
                for info in page
                if info.key != paths.version(last)
                and not info.key.startswith(paths.floor_prefix)
                and not (paths.parse_version(info.key) is not None and info.modified_ms >= kept_since)
            ]
            for start in range(0, len(keys), BATCH):
                await asyncio.gather(*(store.delete(key) for key in keys[start : start + BATCH]))
            deleted += len(keys)
            if len(page) < 1000:
                return deleted
            after = page[-1].key
