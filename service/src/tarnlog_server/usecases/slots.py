"""Settling one slot: the shell around core.ratify. It ends by a fact about the slot, never by giving up."""

from __future__ import annotations

from tarnlog_server.codec.version_file import CorruptObject, put_id_of
from tarnlog_server.core.ratify import Fact, Ratify, Step
from tarnlog_server.ports.object_store import ObjectMissing, StoreError
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.hedged_put import HedgedPut
from tarnlog_server.usecases.live_table import LiveTable

FLOOR_CHECK_AFTER_SECONDS = 3600.0


class Slots:
    """The slots of one table's log, written one at a time."""

    def __init__(self, table: LiveTable, world: World, put: HedgedPut) -> None:
        self._table = table
        self._world = world
        self._put = put

    async def settle(self, slot: int, put_id: str, data: bytes) -> Step:
        """PUT these bytes into the slot until it is known whose it is: WON, LOST, RELOAD or REFUSED."""
        observed_at = self._table.tracker.observed_at
        key = self._table.log.paths.version(slot)
        machine = Ratify()
        reads = 0
        while True:
            if machine.step is Step.PUT:
                if machine.puts:
                    await self._world.sleep(self.backoff(machine.puts))
                machine.saw(await self._put.put(key, data))
            elif machine.step is Step.READ_SLOT:
                if reads:
                    await self._world.sleep(self.backoff(reads))
                reads += 1
                machine.saw(await self._whose(key, put_id))
            elif machine.step is Step.WON and await self._below_floor(slot, observed_at):
                return Step.RELOAD
            else:
                return machine.step

    @property
    def refusal(self) -> str:
        """What the store said when it last refused."""
        return self._put.refusal

    def backoff(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row: doubling up to a cap, with jitter."""
        base = float(self._table.setting("transaction.retry.baseDelayMs")) / 1000
        cap = float(self._table.setting("transaction.retry.maxDelayMs")) / 1000
        return min(cap, base * 2.0 ** min(failures - 1, 16)) * (0.5 + self._world.rng.random() / 2)

    async def close(self) -> None:
        """Wait for PUTs that were overtaken by their twin."""
        await self._put.close()

    async def _whose(self, key: str, put_id: str) -> Fact:
        try:
            found = put_id_of(key, await self._table.log.store.get(key))
        except ObjectMissing:
            return Fact.MISSING
        except StoreError:
            return Fact.UNREADABLE
        except CorruptObject:
            return Fact.ANOTHERS
        return Fact.OURS if found == put_id else Fact.ANOTHERS

    async def _below_floor(self, slot: int, observed_at: float) -> bool:
        """A slot won on very old knowledge may have been cleaned away before: then it is not part of the log."""
        if self._world.monotonic() - observed_at <= FLOOR_CHECK_AFTER_SECONDS:
            return False
        failures = 0
        while True:
            try:
                self._table.floor = await self._table.log.floor()
                return slot < self._table.floor
            except StoreError:
                failures += 1
                await self._world.sleep(self.backoff(failures))
