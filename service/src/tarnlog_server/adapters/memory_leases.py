"""Leases in memory, for tests and simulations: replicas in one process share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tarnlog_server.ports.leases import Lease, Owner


class MemoryLeases:
    """A complete twin of the leases in a database; `clock` stands for the database's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str, tuple[Owner, float]] = {}

    async def hold(self, owner: Owner, tables: Iterable[str], seconds: float) -> dict[str, Lease]:
        now = self._clock()
        wanted = list(tables)
        for table in wanted:
            holder, until = self._held.get(table, (owner, now))
            if until <= now or holder.id == owner.id or holder.url == owner.url:
                self._held[table] = (owner, now + seconds)
        return await self.owners(wanted)

    async def owners(self, tables: Iterable[str]) -> dict[str, Lease]:
        now = self._clock()
        held = {table: self._held[table] for table in tables if table in self._held}
        return {table: Lease(owner, until - now) for table, (owner, until) in held.items() if until > now}

    async def release(self, owner: Owner, tables: Iterable[str]) -> None:
        for table in tables:
            if table in self._held and self._held[table][0].id == owner.id:
                del self._held[table]

    async def close(self) -> None:
        """Nothing is held open."""
