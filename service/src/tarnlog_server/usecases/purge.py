"""Deleting what a dropped table left: its data files, and of its log all but the floor, the last and young versions.

The same objects are protected as in a vacuum (core.protected_files): files older than the table, and files in or beside
another table's metadata. The data files are deleted first, while the log still records when the table was created; the
DROP version, which stays, records it too, for a purge that was interrupted.

A replica that does not know of the drop yet writes into the slot after its head; that must be taken. It trusts a head
for at most FLOOR_CHECK_AFTER_SECONDS without reading the floor, so version files younger than that stay.
"""

from __future__ import annotations

import asyncio

from tarnlog_server.core.protected_files import DataObject, why_protected
from tarnlog_server.core.version_record import DROP
from tarnlog_server.ports.object_store import OutcomeUnknown
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.catalog import SETTLE_ATTEMPTS
from tarnlog_server.usecases.foreign_folders import ForeignFolders
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.log_listing import listed
from tarnlog_server.usecases.slots import FLOOR_CHECK_AFTER_SECONDS
from tarnlog_server.usecases.vacuum_run import created_ms

BATCH = 16
PAGE = 500
CLOCK_MARGIN_MS = 5 * 60 * 1000
CREATED = "filesSince"
"""The parameter of a DROP with purge: objects that storage modified before this time are not the table's."""


async def purge(live: LiveTable, world: World) -> int:
    """Delete a dropped table's objects; how many went. Raises ProblemError. Safe to run again after a stop.

    The floor comes first: a replica that still uses an older version then learns that it does not exist.
    I/O: a LIST for each 1000 objects, up to 5 LISTs for each folder, the deletions.
    """
    if not live.head.dropped:
        raise ValueError("only a dropped table may be purged")
    with live.translated():
        since = await _files_since(live)
        await _publish_floor(live, world)
        deleted = 0 if since is None else await _purge_data(live, since)
        return deleted + await _purge_log(live, world)


async def _files_since(live: LiveTable) -> int | None:
    """When the table was created; None when nothing records it any more, and then no data file may be deleted."""
    last = await live.log.read(live.head.version)
    for sub in last.sub_commits:
        since = sub.operation_parameters.get(CREATED) if sub.operation == DROP else None
        if isinstance(since, int):
            return since
    return None if live.head.metadata is None else await created_ms(live)


async def _publish_floor(live: LiveTable, world: World) -> None:
    for attempt in range(SETTLE_ATTEMPTS):
        try:
            await live.log.store.put_if_absent(live.log.paths.floor(live.head.version), b"")
            live.purged = True
            return
        except OutcomeUnknown:
            if attempt == SETTLE_ATTEMPTS - 1:
                raise
            await world.sleep(0.1 * 2**attempt)


async def _purge_data(live: LiveTable, since: int) -> int:
    store, paths = live.log.store, live.log.paths
    prefix = f"{paths.table}/" if paths.table else ""
    folders = ForeignFolders(store, paths.table)
    deleted, after = 0, None
    while True:
        page = await store.list(prefix, start_after=after, limit=PAGE)
        data = (
            DataObject(info.key.removeprefix(prefix), info.size, info.modified_ms)
            for info in page
            if not info.key.startswith(paths.root)
        )
        mine, _ = await folders.divided(one for one in data if why_protected(one, since) is None)
        deleted += await _delete(live, [f"{prefix}{one.path}" for one in mine])
        if len(page) < PAGE:
            return deleted
        after = page[-1].key


async def _purge_log(live: LiveTable, world: World) -> int:
    paths, last = live.log.paths, live.head.version
    kept_since = world.now_ms() - int(FLOOR_CHECK_AFTER_SECONDS * 1000) - CLOCK_MARGIN_MS
    keys = [
        info.key
        async for info in listed(live.log.store, paths.root)
        if info.key != paths.version(last)
        and not info.key.startswith(paths.floor_prefix)
        and not (paths.parse_version(info.key) is not None and info.modified_ms >= kept_since)
    ]
    return await _delete(live, keys)


async def _delete(live: LiveTable, keys: list[str]) -> int:
    for start in range(0, len(keys), BATCH):
        await asyncio.gather(*(live.log.store.delete(key) for key in keys[start : start + BATCH]))
    return len(keys)
