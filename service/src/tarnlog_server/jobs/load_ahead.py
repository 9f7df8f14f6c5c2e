"""Libraries that the first plan needs, loaded while nobody waits for them: together they take half a second."""

from __future__ import annotations

import gc
import importlib

import structlog

from tarnlog_server.ports.world import World

PLANNING = ("tarnlog_server.codec.sql_filter", "datafusion")
"""The reader of SQL filters, and the decoder of large states where it is installed."""
PAUSE_SECONDS = 2.0
"""Between the two: whoever has just started has other things to do, and an index may have states decoded already."""
_log = structlog.get_logger("tarnlog.jobs")


async def load_ahead(world: World) -> None:
    """Load them, one after the other, off the loop. One that cannot be loaded is told when it is needed."""
    for name in PLANNING:
        try:
            await world.run_blocking(lambda name=name: importlib.import_module(name))  # type: ignore[misc]
        except ImportError as error:
            _log.debug("not loaded", module=name, reason=str(error))
        # What was loaded stays: looking at it again and again would hold up commits for a tenth of a second each time.
        gc.freeze()
        await world.sleep(PAUSE_SECONDS)
