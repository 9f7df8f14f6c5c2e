"""Reading one table's log from storage: single versions, what is newer than one, and everything from the start."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.codec.version_file import decode
from tarnlog_server.core.replay import empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.table_settings import own_value
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.columns import ColumnReader
from tarnlog_server.ports.object_store import ObjectMissing, ObjectStore
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.segment_cache import SegmentCache

HEAD_PAGE = 100
PARALLEL_READS = 16
DECODE_OFF_LOOP_ABOVE = 256 * 1024
LIST_AGAIN = 5
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. A later time is no time, and the next version could not have one above it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Newer:
    """What a listing after a version showed: the versions that follow it without a gap, or that there is a gap."""

    versions: list[int]
    gap: bool = False


class LogMissing(Exception):
    """There is no version file at this place at all."""


class TableLog:
    """The log of one table. Holds no state of the table: it only fetches and decodes."""

    def __init__(
        self,
        store: ObjectStore,
        paths: LogPaths,
        world: World,
        columns: ColumnReader | None = None,
        segments: SegmentCache | None = None,
    ) -> None:
        self.store = store
        self.paths = paths
        self.columns = columns
        """Decodes the manifests of large states, where there is such a reader."""
        self.near = store.uri.startswith("file:")
        """Whether an answer of the store takes no longer than a task that waits for it."""
        self.segments = segments
        """Has them decoded, where there is an index."""
        self._world = world

    async def read(self, version: int, previous_timestamp: int | None = None) -> VersionRecord:
        """One version. Raises ObjectMissing, CorruptObject. One GET; a foreign file may cost a HEAD for its time."""
        key = self.paths.version(version)
        data = await self.store.get(key)
        if len(data) > DECODE_OFF_LOOP_ABOVE:
            record = await self._world.run_blocking(lambda: decode(key, version, data))
        else:
            record = decode(key, version, data)
        if not 0 <= record.timestamp <= LATEST_MS:
            modified = (await self.store.head(key)).modified_ms
            record = msgspec.structs.replace(record, timestamp=modified)
        return record if previous_timestamp is None else in_order(record, previous_timestamp)

    async def newer_than(self, version: int) -> Newer:
        """The versions directly after `version`: LIST start-after it. Costs one LIST per hundred new objects."""
        for _ in range(LIST_AGAIN):
            newer = await self._listed_after(version)
            # A listing is no snapshot: a writer's next versions may show where the one before them does not yet.
            if not newer.gap or not await self.exists(version + 1):
                return newer
        return Newer([version + 1])

    async def newer_than_state(self, version: int) -> tuple[Newer, int]:
        """What follows a state of ours, and the floor. Costs no listing of versions where nothing does.

        A version that is missing proves nothing by itself. But versions go only below a floor, and the floor is read
        afterwards: unless it lies above, the missing one was never there, and neither is any behind it.
        """
        newer = await self.newer_than(version) if await self.exists(version + 1) else Newer([])
        return newer, await self.floor()

    async def _listed_after(self, version: int) -> Newer:
        found: list[int] = []
        after = self.paths.version(version)
        while True:
            page = await self.store.list(self.paths.numbered_prefix, start_after=after, limit=HEAD_PAGE)
            for info in page:
                number = self.paths.parse_version(info.key)
                if number is None or number <= version:
                    continue
                if number != version + 1 + len(found):
                    # A hole right after what we know: older versions were cleaned away under us. A hole further on
                    # only means that the listing raced with a writer; the prefix before it is sound.
                    return Newer(found, gap=not found)
                found.append(number)
            if len(page) < HEAD_PAGE:
                return Newer(found)
            after = page[-1].key

    async def floor(self) -> int:
        """The lowest version that exists; 0 as long as nothing was cleaned away."""
        highest = 0
        after: str | None = None
        while True:
            page = await self.store.list(self.paths.floor_prefix, start_after=after, limit=1000)
            numbers = [self.paths.parse_floor(info.key) for info in page]
            highest = max([highest, *(number for number in numbers if number is not None)])
            if len(page) < 1000:
                return highest
            after = page[-1].key

    async def purged(self, last: int, window: Window) -> SnapshotTracker | None:
        """A dropped table keeps only its last version when it is purged: enough to know that it is gone."""
        record = await self.read(last)
        if not record.drops_table:
            return None
        tracker = SnapshotTracker(empty(last - 1), window)
        tracker.advance(record)
        return tracker

    async def apply(self, tracker: SnapshotTracker, versions: list[int]) -> None:
        """Read versions in parallel and apply them in order; one that is already applied is passed over."""
        start = 0
        while start < len(versions):
            window = versions[start : start + self._at_once(tracker)]
            start += len(window)
            records = await asyncio.gather(*(self.read(version) for version in window))
            for record in records:
                if record.version == tracker.head.version + 1:
                    tracker.advance(in_order(record, tracker.head.timestamp))

    @staticmethod
    def _at_once(tracker: SnapshotTracker) -> int:
        """How many versions are read at the same time: they are small, so more than parts unless the table says."""
        metadata = tracker.head.metadata
        wanted = own_value(metadata.configuration, "checkpoint.parallelism") if metadata is not None else None
        return PARALLEL_READS if wanted is None else int(wanted)

    async def all_versions(self) -> list[int]:
        """Every version file there is, in order. Costs a LIST a thousand objects."""
        versions: list[int] = []
        after: str | None = None
        while True:
            page = await self.store.list(self.paths.numbered_prefix, start_after=after, limit=1000)
            versions += [number for info in page if (number := self.paths.parse_version(info.key)) is not None]
            if len(page) < 1000:
                return versions
            after = page[-1].key

    async def exists(self, version: int) -> bool:
        """Whether a version file is there now. Absence proves nothing about the head."""
        try:
            await self.store.head(self.paths.version(version))
        except ObjectMissing:
            return False
        return True


def in_order(record: VersionRecord, previous: int) -> VersionRecord:
    """Timestamps strictly grow: a version without one of ours takes at least its predecessor's plus one."""
    if record.timestamp > previous:
        return record
    return msgspec.structs.replace(record, timestamp=previous + 1)
