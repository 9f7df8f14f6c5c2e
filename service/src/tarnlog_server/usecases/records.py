"""Decoded versions and snapshots of the past, from the nearest place that has them."""

from __future__ import annotations

import asyncio
import itertools

import msgspec

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.version_record import VersionRecord, chain_fault
from tarnlog_server.usecases.caches import Caches, limits_of
from tarnlog_server.usecases.indexed_reads import IndexedReads
from tarnlog_server.usecases.live_table import LiveTable, expired
from tarnlog_server.usecases.table_log import PARALLEL_READS


class Records:
    """Memory first, then the caches, then storage."""

    def __init__(self, caches: Caches, indexed: IndexedReads | None = None) -> None:
        self._caches = caches
        self._indexed = indexed or IndexedReads()

    async def read(self, live: LiveTable, version: int) -> VersionRecord:
        """One version at or below the head. Costs at most one GET. ProblemError when it is gone or corrupt."""
        step = live.tracker.step(version)
        if step is not None:
            return step.record
        key = (live.location, version)
        found = self._caches.versions.get(key)
        if found is None:
            found = await live.read_version(version)
            timestamp = live.tracker.timestamp_of(version)
            if timestamp is not None and timestamp != found.timestamp:
                found = msgspec.structs.replace(found, timestamp=timestamp)
            limits = limits_of(live.head.metadata, live.log.defaults)
            self._caches.versions.put(key, found, limits.ttl_seconds, limits.max_versions)
        return found

    async def read_many(self, live: LiveTable, versions: range) -> list[VersionRecord]:
        """Several versions in their order, each checked to follow the one before; storage is read in parallel."""
        found: list[VersionRecord] = []
        for start in range(0, len(versions), PARALLEL_READS):
            window = versions[start : start + PARALLEL_READS]
            found += await asyncio.gather(*(self.read(live, version) for version in window))
        ordered = found if versions.step > 0 else found[::-1]
        for before, record in itertools.pairwise(ordered):
            fault = chain_fault(before.put_id, record)
            if fault is not None:
                damage = CorruptObject(live.log.paths.version(record.version), fault)
                raise await live.damaged(record.version, damage)
        return found

    async def oldest(self, live: LiveTable) -> int:
        """The oldest version that can be read."""
        key = (live.location, 0)
        if self._caches.versions_list.get(key) is None or live.floor < live.tracker.erased_at:
            with live.translated():
                await live.look_at_floor()
            if live.floor > live.head.version:
                # Either this replica is far behind, or the floor is wrong: reading the log tells.
                await live.refresh(0)
            self._caches.versions_list.put(
                key, live.floor, limits_of(live.head.metadata, live.log.defaults).ttl_seconds
            )
        return live.oldest

    async def check(self, live: LiveTable, version: int | None) -> int:
        """A version that can be read (None is one from before the oldest), or ProblemError that says which can be."""
        oldest = await self.oldest(live)
        if version is None or version < oldest:
            raise expired(oldest)
        if version > live.head.version:
            await live.refresh(0)
        if version > live.head.version:
            detail = f"version {version} does not exist; the newest is {live.head.version}"
            raise ProblemError("version-not-found", detail, newestVersion=live.head.version)
        return version

    async def at(self, live: LiveTable, version: int | None, timestamp: int | None) -> Snapshot:
        """The table at a version, at a time, or now. Recent ones are in memory; older ones are replayed and cached.

        ProblemError `version-not-found` above the head, `version-expired` below what is kept.
        """
        if version is None and timestamp is None:
            return live.head
        version = await self.resolved(live, version, timestamp)
        return live.tracker.snapshot_at(version) or await self._replayed(live, version)

    async def resolved(self, live: LiveTable, version: int | None, timestamp: int | None) -> int:
        """The version that is meant by a number, a time, or neither. Raises ProblemError, as `at`."""
        if version is None and timestamp is None:
            return live.head.version
        if version is not None and timestamp is not None:
            raise ProblemError("request-invalid", "give version or timestamp, not both")
        if timestamp is not None:
            if timestamp >= live.head.timestamp:
                # Another replica may have committed up to that time since we last looked.
                await live.refresh(0)
            version = await self._version_at(live, timestamp)
        return await self.check(live, version)

    def at_hand(self, live: LiveTable, version: int) -> bool:
        """Whether a snapshot of that version costs no reads."""
        return live.tracker.snapshot_at(version) is not None or (live.location, version) in self._caches.files

    async def _version_at(self, live: LiveTable, timestamp: int) -> int | None:
        """The highest version at or before a time.

        Times from before the state we opened from are found in the index, or cost log(n) GETs.
        """
        known = live.tracker.version_at(timestamp)
        if known is not None:
            return known
        found = await self._indexed.version_at(live, timestamp)
        if found is not None:
            return found
        low, high = await self.oldest(live) - 1, live.tracker.oldest_version - 1
        while low < high:
            middle = (low + high + 1) // 2
            if (await self.read(live, middle)).timestamp <= timestamp:
                low = middle
            else:
                high = middle - 1
        return low

    async def _replayed(self, live: LiveTable, version: int) -> Snapshot:
        key = (live.location, version)
        found = self._caches.files.get(key)
        if found is None:
            try:
                found = (await live.past(version)).head
            except ProblemError:
                with live.translated(close=False):
                    floor = await live.look_at_floor()
                if version < floor:
                    # Another replica cleaned up while it was rebuilt, or since we last looked.
                    raise expired(floor) from None
                raise
            self._caches.files.put(key, found, limits_of(live.head.metadata, live.log.defaults).ttl_seconds)
        return found
