"""Check the stores of all roots, and this machine's clock against theirs: at the start, then at intervals.

A store that failed is checked again sooner, and a step of the machine's clock is a reason to check within a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from tarnlog_server.ports.world import World
from tarnlog_server.usecases.probe import ProbeReport, probe
from tarnlog_server.usecases.roots import Root
from tarnlog_server.usecases.steady_clock import MAX_CLOCK_OFFSET_MS, SteadyClock

EVERY_SECONDS = 300.0
AFTER_FAILURE_SECONDS = 15.0
LOOK_SECONDS = 1.0
"""How often the clocks are compared while nothing else is to be done."""
_log = structlog.get_logger("tarnlog.checks")

Told = Callable[[str, ProbeReport], None]
"""Hears what a check found of a root."""


async def check_stores(roots: Sequence[Root], world: World, told: Told) -> bool:
    """Probe every root once; whether all of them passed.

    The probe measures the machine's own clock. A `SteadyClock` is told whether the stores confirm it.
    """
    passed, offsets = True, []
    machine, reading = (world.machine, world.reading()) if isinstance(world, SteadyClock) else (world, 0.0)
    for root in roots:
        report = await probe(root.store, machine)
        if report.ok:
            offsets.append(abs(report.clock_offset_ms))
        told(root.uri, report)
        if not report.ok:
            passed = False
            _log.error("store refused", root=root.uri, problems=report.problems)
        else:
            _log.debug("store checked", root=root.uri, clock_offset_ms=report.clock_offset_ms)
    if isinstance(world, SteadyClock):
        world.checked(reading, confirmed=bool(offsets) and max(offsets) <= MAX_CLOCK_OFFSET_MS)
    return passed


async def keep_checking(roots: Sequence[Root], world: World, told: Told, *, passed: bool) -> None:
    """Check again and again, until cancelled. One failing check does not end the watch."""
    while True:
        await _pause(EVERY_SECONDS if passed else AFTER_FAILURE_SECONDS, world)
        passed = await attempted(lambda: check_stores(roots, world, told))


async def _pause(seconds: float, world: World) -> None:
    """Sleep, but not past a step of the machine's clock."""
    if not isinstance(world, SteadyClock):
        await world.sleep(seconds)
        return
    until = world.monotonic() + seconds
    while (left := until - world.monotonic()) > 0:
        step = world.stepped_ms()
        if step:
            _log.warning("this machine's clock was set", seconds=step / 1000)
            return
        await world.sleep(min(left, LOOK_SECONDS))


async def attempted(check: Callable[[], Awaitable[bool]]) -> bool:
    """A check whose own faults are logged and count as not passed."""
    try:
        return await check()
    except Exception as error:
        _log.error("check failed", exc_info=error)
        return False
