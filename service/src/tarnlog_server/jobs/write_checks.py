"""Check that each store takes writes: a disk that is full or read-only, or a right that was withdrawn, makes not ready.

The probe of `store_checks` asks whether a store keeps its promises, which does not change by the minute and costs
dozens of requests. This asks only whether it can be written to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import structlog

from tarnlog_server.codec.paths import PROBE
from tarnlog_server.ports.object_store import StoreError, StoreRefused
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.roots import Root

EVERY_SECONDS = 30.0
WHILE_REFUSED_SECONDS = 1.0
SIZE = 4096
"""More than what a file system may keep beside a file's name."""
WRITES = ("put", "put_if_absent")
_log = structlog.get_logger("tarnlog.checks")

Told = Callable[[str, str | None], None]
"""Gets a root and why it refuses writes; None when it takes them."""


async def refusal(root: Root, world: World) -> str | None:
    """Why a store refuses a write; None when it takes one. No answer is no refusal. I/O: PUT, DELETE."""
    key = f"{PROBE}/write-{world.rng.getrandbits(64):016x}"
    try:
        await root.store.put(key, bytes(SIZE))
    except StoreRefused as error:
        return str(error)
    except StoreError:
        return None
    finally:
        with contextlib.suppress(StoreError):
            await root.store.delete(key)
    return None


async def keep_write_checking(roots: Sequence[Root], world: World, told: Told, refused: asyncio.Event) -> None:
    """Check at intervals, and at once when `refused` is set, until cancelled. While a store refuses, every second."""
    refusing: set[str] = set()
    while True:
        if not refusing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await refused.wait()
        for root in roots:
            reason = await refusal(root, world)
            if (reason is not None) != (root.uri in refusing):
                event = "store takes writes again" if reason is None else "store refuses writes"
                _log.warning(event, root=root.uri, reason=reason)
            (refusing.discard if reason is None else refusing.add)(root.uri)
            told(root.uri, reason)
        refused.clear()  # the check sets it as well
        await world.sleep(WHILE_REFUSED_SECONDS)
