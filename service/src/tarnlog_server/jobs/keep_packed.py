"""Keeps open tables small in memory: packs what commits brought, closes tables that have no room, and lets go of kept
plans and snapshots once they are old."""

from __future__ import annotations

import structlog

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.packing import Unpackable, forget_window, is_due, pack

LOOK_SECONDS = 2.0
QUIET_SECONDS = 30.0
"""A table without a new version for so long is quiet: its few files are packed too."""
_log = structlog.get_logger("tarnlog.jobs")


async def keep_packed(coordinator: Coordinator) -> None:
    """Run until cancelled: one table at a time. Each look costs a glance at every open table."""
    refused: set[str] = set()
    since: dict[str, tuple[int, float]] = {}
    while True:
        await coordinator.world.sleep(LOOK_SECONDS)
        now, before, since = coordinator.world.monotonic(), since, {}
        for table in coordinator.open_tables.opened():
            live = table.live
            if not live.opened:
                continue
            known = before.get(live.location)
            changed = known is None or known[0] != live.head.version
            since[live.location] = (live.head.version, now) if known is None or changed else known
            quiet = now - since[live.location][1] >= QUIET_SECONDS
            if quiet:
                forget_window(live)
            if live.location in refused or not is_due(live.head.files, quiet=quiet):
                continue
            try:
                packed = await pack(live)
            except Unpackable as reason:
                refused.add(live.location)
                _log.warning("files stay unpacked", table=str(live.name), reason=str(reason))
            except ProblemError as problem:
                _log.warning("files stay unpacked for now", table=str(live.name), reason=problem.detail)
            else:
                _log.info("files packed", table=str(live.name), files=packed)
        await coordinator.open_tables.make_room()
        coordinator.plans.forget_old()
        coordinator.caches.expire()
