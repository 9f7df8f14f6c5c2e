"""Checks every root's store at the start, and its clock ever after. A store that failed is tried again sooner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from tarnlog_server.ports.world import World
from tarnlog_server.usecases.probe import ProbeReport, probe
from tarnlog_server.usecases.roots import Root

EVERY_SECONDS = 300.0
AFTER_FAILURE_SECONDS = 15.0
_log = structlog.get_logger("tarnlog.checks")

Told = Callable[[str, ProbeReport], None]
"""Hears what a check found of a root."""


async def check_stores(roots: Sequence[Root], world: World, told: Told) -> bool:
    """Probe every root once; whether all of them passed."""
    passed = True
    for root in roots:
        report = await probe(root.store, world)
        told(root.uri, report)
        if not report.ok:
            passed = False
            _log.error("store refused", root=root.uri, problems=report.problems)
        else:
            _log.debug("store checked", root=root.uri, clock_offset_ms=report.clock_offset_ms)
    return passed


async def keep_checking(roots: Sequence[Root], world: World, told: Told, *, passed: bool) -> None:
    """Check again and again, until cancelled. One failing check does not end the watch."""
    while True:
        await world.sleep(EVERY_SECONDS if passed else AFTER_FAILURE_SECONDS)
        passed = await attempted(lambda: check_stores(roots, world, told))


async def attempted(check: Callable[[], Awaitable[bool]]) -> bool:
    """A check whose own faults are logged and count as not passed."""
    try:
        return await check()
    except Exception as error:
        _log.error("check failed", exc_info=error)
        return False
