"""Which replica holds which table's lease, as this one knows it without asking: a cache that one task keeps fresh.

No commit waits for a lease. Routing is a look into a dict; a table that was written to here is noted, and the task
behind takes or renews its lease. When the database is away, what is known runs out and everything is served here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging

from tarnlog_server.core.routing import Held, Owner, Route, asked_again_at, distrust_seconds, route
from tarnlog_server.ports.leases import Leases, LeasesUnavailable
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World

_log = logging.getLogger(__name__)
IDLE_LEASES = 3
"""A table that nobody wrote to for so many times the length of a lease is given up."""
SHORTEST_PAUSE = 0.05
"""Between two rounds: the tables of a whole burst share one."""
LONGEST_PAUSE = 30.0
ANSWER_SECONDS = 30.0
"""Nobody waits for the database; an answer that took longer than a lease is simply out of date. This only ends what
would hang for ever: breaking off earlier would make a slow database slower, by connecting anew.
"""


TRY_SECONDS = 5.0
"""How long one commit may try a replica that failed before, while all others are written here."""


@dataclasses.dataclass(slots=True)
class _Doubt:
    """A replica that failed: nothing is sent to it until then, and after that one commit to see whether it is back."""

    failures: int = 0
    until: float = 0.0
    trying: bool = False


class Ownership:
    """The leases this replica holds and knows of."""

    def __init__(
        self, leases: Leases, me: Owner, world: World, telemetry: Telemetry, *, lease_seconds: float = 10.0
    ) -> None:
        self.me = me
        self._leases = leases
        self._world = world
        self._telemetry = telemetry
        self._lease_seconds = lease_seconds
        self._held: dict[str, Held] = {}
        self._used: dict[str, float] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._wanted = asyncio.Event()
        self.cut_off = False
        """Whether the last question to the database had no answer."""

    def owner(self, table: str) -> Owner | None:
        """Whom to send a commit to; None when it is written here. Costs a few lookups in memory."""
        held = self._held.get(table)
        if held is None or held.owner.id == self.me.id:
            return None
        now, doubt = self._world.monotonic(), self._doubts.get(held.owner.id)
        if route(held, self.me.id, now, doubt.until if doubt is not None else 0.0) is not Route.FORWARD:
            return None
        if doubt is not None:
            doubt.until, doubt.trying = now + TRY_SECONDS, True
        return held.owner

    def used(self, table: str) -> None:
        """A commit to a table is in the log: its lease is worth having, or knowing."""
        now = self._world.monotonic()
        self._used[table] = now
        if route(self._held.get(table), self.me.id, now, 0.0) is Route.HERE_AND_TAKE:
            self._wanted.set()

    def distrust(self, owner: Owner) -> None:
        """A replica did not do its part: commits are written here for a while. Failures at once count as one."""
        now = self._world.monotonic()
        doubt = self._doubts.setdefault(owner.id, _Doubt())
        if doubt.until <= now or doubt.trying:
            _log.warning("replica %s does not take commits; they are written here", owner.url)
            doubt.failures += 1
            doubt.until, doubt.trying = now + distrust_seconds(doubt.failures), False

    def trust(self, owner: Owner) -> None:
        """A replica answered."""
        self._doubts.pop(owner.id, None)

    def held(self) -> list[str]:
        """The tables whose lease is this replica's now."""
        now = self._world.monotonic()
        return [table for table, held in self._held.items() if held.owner.id == self.me.id and held.until > now]

    async def keep(self) -> None:
        """Take and renew leases until cancelled. A database that is away is asked again, later and later."""
        failures = 0
        while True:
            try:
                await self.round()
                failures, self.cut_off = 0, False
            except LeasesUnavailable as error:
                failures, self.cut_off = failures + 1, True
                if failures == 1:
                    _log.warning("leases are not kept, every commit is written where it arrives: %s", error)
                await self._world.sleep(min(SHORTEST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE))
                continue
            await self._world.sleep(SHORTEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wanted.wait()

    async def round(self) -> None:
        """Ask once for every table in use that is due, and give up the idle ones. Raises LeasesUnavailable."""
        self._wanted.clear()
        now = self._world.monotonic()
        await self._give_up([table for table, used in self._used.items() if now - used > self._idle_seconds])
        due = [t for t in self._used if asked_again_at(self._held.get(t), self._lease_seconds) <= now]
        if not due:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._leases.hold(self.me, due, self._lease_seconds)
        except TimeoutError as error:
            raise LeasesUnavailable("the database does not answer") from error
        for table in due:
            lease = found.get(table)
            if lease is None:
                self._held.pop(table, None)
            else:
                # From before the question on: by our clock a lease never lasts longer than by the database's.
                self._held[table] = Held(lease.owner, now + lease.seconds)
        self._forget_strangers()

    async def release(self) -> None:
        """Give up everything, so that others go on at once; a database that is away is not waited for."""
        tables = self.held()
        self._used.clear()
        self._held.clear()
        with contextlib.suppress(LeasesUnavailable, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._leases.release(self.me, tables)

    @property
    def _idle_seconds(self) -> float:
        return IDLE_LEASES * self._lease_seconds

    async def _give_up(self, tables: list[str]) -> None:
        ours = [table for table in tables if (held := self._held.get(table)) and held.owner.id == self.me.id]
        for table in tables:
            del self._used[table]
            self._held.pop(table, None)
        if ours:
            await self._leases.release(self.me, ours)

    def _forget_strangers(self) -> None:
        """Replicas that hold nothing we know of any more are not kept in mind."""
        known = {held.owner.id for held in self._held.values()}
        self._doubts = {owner: doubt for owner, doubt in self._doubts.items() if owner in known}

    def _pause(self) -> float:
        """Until the next table is due, or is idle."""
        now = self._world.monotonic()
        times = [asked_again_at(self._held.get(table), self._lease_seconds) - now for table in self._used]
        return max(min(times, default=LONGEST_PAUSE), 0.0)
