"""Leases: which replica the commits of a table are brought together at.

They are an optimisation and nothing more. A lease may be lost, held by two for a moment, or be a lie: the log takes
each commit once whoever writes it. So nobody waits for a lease, and an error here is never an error of a commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from tarnlog_server.core.routing import Owner

__all__ = ["Lease", "Leases", "LeasesUnavailable", "Owner"]


class LeasesUnavailable(Exception):
    """The database did not do it: it is down, slow, or its schema is missing. Nothing is known."""


class Lease(Struct, frozen=True):
    """Who holds a table, and for how many seconds from now on, by the clock of the place that keeps the leases."""

    owner: Owner
    seconds: float


class Leases(Protocol):
    """The leases of one warehouse, by table name. Every method may raise LeasesUnavailable, and takes its time."""

    async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
        """Take each lease that is free, has run out, is the owner's already, or is held under the owner's URL.

        A URL leads to one process: what another id holds under it belonged to the process before. Answers who holds
        each of the tables now; one that was taken or kept runs for `seconds`. Of several at once one takes a lease.
        """
        ...

    async def owners(self, tables: Iterable[str]) -> dict[str, Lease]:
        """Who holds each of these tables; without those whose lease has run out."""
        ...

    async def release(self, owner: Owner, tables: Iterable[str]) -> None:
        """Give up leases, so that others need not wait for their end. Those of others are left alone."""
        ...

    async def close(self) -> None:
        """Let go of connections that are not shared."""
        ...
