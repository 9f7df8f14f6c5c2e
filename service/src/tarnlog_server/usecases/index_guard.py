"""The index behind a breaker: a database that is down or slow costs a read one short wait, and then none.

The first failure opens it. From then on every read is a miss at once, until the one task that writes has prepared the
index again; the pause before each try doubles. Storage answers meanwhile, so nobody is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from tarnlog_server.ports.index import Index, IndexUnavailable
from tarnlog_server.ports.telemetry import IndexState, Telemetry
from tarnlog_server.ports.world import World

_log = logging.getLogger(__name__)
T = TypeVar("T")


class GuardSettings(Struct, frozen=True):
    """How long a read and a write may take, and the first and the longest pause after a failure."""

    read_seconds: float = 0.5
    write_seconds: float = 15.0
    first_pause_seconds: float = 0.2
    longest_pause_seconds: float = 30.0


class IndexGuard:
    """Everyone's way to the index."""

    def __init__(
        self, index: Index, world: World, telemetry: Telemetry | None = None, settings: GuardSettings | None = None
    ) -> None:
        self.index = index
        self.state: IndexState = "starting"
        self._world = world
        self._telemetry = telemetry or Telemetry()
        self._settings = settings or GuardSettings()
        self._pause = self._settings.first_pause_seconds
        self._not_before = 0.0
        self.on_failure: Callable[[], None] = lambda: None
        """Told when it became degraded: somebody has to prepare the index again."""
        self.reason = ""
        """Why it is degraded."""
        self._tried = asyncio.Event()

    async def read(self, kind: str, work: Callable[[Index], Awaitable[T]], at_least: float = 0.0) -> T | None:
        """What `work` finds; None when the index is not there, or does not answer soon. IndexWrong passes through.

        `at_least` is for what is large: so many seconds are waited for it in any case.
        """
        if self.state != "ready":
            return None
        seconds = max(at_least, self._settings.read_seconds)
        try:
            async with asyncio.timeout(seconds):
                return await work(self.index)
        except TimeoutError:
            self._failed(kind, f"no answer within {seconds} s")
        except IndexUnavailable as error:
            self._failed(kind, str(error))
        return None

    async def write(self, kind: str, work: Callable[[Index], Awaitable[T]]) -> T:
        """The result of `work`. Raises IndexUnavailable; IndexGap and IndexWrong pass through."""
        try:
            async with asyncio.timeout(self._settings.write_seconds):
                result = await work(self.index)
        except TimeoutError:
            error = IndexUnavailable(f"no answer within {self._settings.write_seconds} s")
            self._failed(kind, str(error))
            raise error from None
        except IndexUnavailable as error:
            self._failed(kind, str(error))
            raise
        self._pause = self._settings.first_pause_seconds
        return result

    async def prepared(self) -> None:
        """Return once the index can be used: at once, or after as many tries as it takes. For the one that writes."""
        while self.state != "ready":
            await self._rest()
            try:
                async with asyncio.timeout(self._settings.write_seconds):
                    await self.index.prepare()
            except TimeoutError:
                self._failed("prepare", f"no answer within {self._settings.write_seconds} s")
            except IndexUnavailable as error:
                self._failed("prepare", str(error))
            else:
                if self.state == "degraded":
                    _log.warning("the index is back")
                self.state, self.reason = "ready", ""
                self._tried.set()

    async def tried(self, seconds: float) -> None:
        """Return when it is known whether the index can be used, or after so many seconds: who begins to answer before
        that reads from storage what the index would have had."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tried.wait()

    async def _rest(self) -> None:
        wait = self._not_before - self._world.monotonic()
        if wait > 0:
            await self._world.sleep(wait)

    def _failed(self, kind: str, reason: str) -> None:
        self._telemetry.index_failed(kind)
        if self.state != "degraded":
            _log.warning("the index is degraded, storage answers: %s: %s", kind, reason)
        self.state, self.reason = "degraded", reason
        self._tried.set()
        self.on_failure()
        now = self._world.monotonic()
        if now >= self._not_before:
            # Reads that fail together are one failure.
            self._not_before = now + self._pause * (0.5 + self._world.rng.random() / 2)
            self._pause = min(2 * self._pause, self._settings.longest_pause_seconds)
