"""New versions told among replicas: whoever wrote one tells, whoever has the table open looks at once.

Nothing waits for it and nothing depends on it: followers poll anyway. What is told is only that it is worth a look;
what is there is read from the log. A connection that was lost may have missed something, so everything open is looked
at once when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.change_feed import ChangeFeed, FeedSession, FeedUnavailable, News
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables

_log = logging.getLogger(__name__)
CHECK_SECONDS = 5.0
"""How often a quiet connection is asked whether it is still there."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
TELL_PAUSE = 0.01
"""Between two rounds of telling: versions of a busy table that follow each other faster are told as one."""
LOOKS_AT_ONCE = 8


class ChangeNews:
    """Tells what is written here, and looks at what was written elsewhere."""

    def __init__(
        self, feed: ChangeFeed, tables: OpenTables, world: World, telemetry: Telemetry, *, replica: str
    ) -> None:
        self._feed = feed
        self._tables = tables
        self._world = world
        self._telemetry = telemetry
        self._replica = replica
        self._untold: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._heard_of: dict[str, int] = {}
        """The newest version that others told of, for tables whose look has not begun."""
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(LOOKS_AT_ONCE)
        self.connected = False

    def written(self, location: str, version: int) -> None:
        """A version was written here. It is told soon; of several only the newest."""
        self._untold[location] = version
        self._wake.set()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        failures = 0
        try:
            while True:
                try:
                    async with self._feed.session(self._heard, self._wake.set) as session:
                        failures = 0
                        self.connected = True
                        self._look_at_everything()
                        await self._tell(session)
                except FeedUnavailable as error:
                    if failures == 0:
                        _log.warning("news of other replicas are not heard; tables are polled: %s", error)
                    failures += 1
                self.connected = False
                # What could not be told is old by then: those who missed it look when they are connected again.
                self._untold.clear()
                await self._world.sleep(self._pause(failures))
        finally:
            self.connected = False
            for task in list(self._looking.values()):
                task.cancel()
            await asyncio.gather(*self._looking.values(), return_exceptions=True)

    async def _tell(self, session: FeedSession) -> None:
        """Tell what is written, as it is; ends with FeedUnavailable only."""
        while True:
            self._wake.clear()
            if self._untold:
                untold, self._untold = self._untold, {}
                await session.tell([News(place, version, self._replica) for place, version in untold.items()])
                self._telemetry.news("sent", len(untold))
                await self._world.sleep(TELL_PAUSE)
                continue
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                await session.check()
            else:
                if not self._untold:
                    await session.check()  # woken because the connection ended

    def _heard(self, news: News) -> None:
        if news.replica == self._replica:
            return
        self._telemetry.news("received", 1)
        table = next((one for one in self._tables.opened() if one.live.location == news.location), None)
        if table is not None:
            self._look(table, news.version)

    def _look_at_everything(self) -> None:
        for table in self._tables.opened():
            self._look(table, None)

    def _look(self, table: OpenTable, version: int | None) -> None:
        """Have a table looked at, once at a time: what is told during a look is looked at after it."""
        place = table.live.location
        self._heard_of[place] = max(self._heard_of.get(place, -1), 2**63 if version is None else version)
        if place not in self._looking:
            task = asyncio.create_task(self._looked(table), name=f"news of {table.live.name}")
            self._looking[place] = task

    async def _looked(self, table: OpenTable) -> None:
        place = table.live.location
        try:
            while (version := self._heard_of.pop(place, None)) is not None:
                if not table.live.opened or table.live.head.version >= version:
                    continue
                started = self._world.monotonic()
                async with self._places:
                    # A table that cannot be read now says so to whoever asks for it.
                    with contextlib.suppress(ProblemError):
                        await table.live.refresh(0)
                # As long again as it took: a table that others write to without a pause must not keep us busy.
                await self._world.sleep(self._world.monotonic() - started)
        except Exception:
            _log.exception("looking at %s failed", place)
        finally:
            del self._looking[place]

    def _pause(self, failures: int) -> float:
        longest = min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE)
        return longest * self._world.rng.uniform(0.5, 1.0)
