"""What this replica has to do with the others: leases and the way to their holders, and news of new versions.

Each part may be missing. A service on its own has none of them, and neither looks nor asks for any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from tarnlog_server.ports.peers import Peers
from tarnlog_server.usecases.change_news import ChangeNews
from tarnlog_server.usecases.forwarding import Forwarding

Role = Literal["alone", "replica", "replica-cut-off"]
Job = Callable[[], Awaitable[None]]


class Replicas:
    """The parts, and what has to run for them in the background."""

    def __init__(
        self, forwarding: Forwarding | None = None, peers: Peers | None = None, news: ChangeNews | None = None
    ) -> None:
        self.forwarding = forwarding
        self._peers = peers
        self._news = news

    @property
    def role(self) -> Role:
        """`alone` writes every commit itself, a `replica` shares tables by leases; cut off from the database, it does
        as one alone would until it is back.
        """
        if self.forwarding is None:
            return "alone"
        return "replica-cut-off" if self.forwarding.ownership.cut_off else "replica"

    def leases(self) -> int:
        """How many tables' commits come together here."""
        return 0 if self.forwarding is None else len(self.forwarding.ownership.held())

    def jobs(self) -> dict[str, Job]:
        """What has to run while the service serves, by name."""
        jobs: dict[str, Job] = {}
        if self.forwarding is not None:
            jobs["leases"] = self.forwarding.ownership.keep
        if self._news is not None:
            jobs["news"] = self._news.run
        return jobs

    async def leave(self) -> None:
        """Give up the leases, so that others go on at once. After the jobs have ended."""
        if self.forwarding is not None:
            await self.forwarding.ownership.release()

    async def close(self) -> None:
        """Let go of connections, once nobody waits for another replica's answer any more."""
        if self._peers is not None:
            await self._peers.close()
