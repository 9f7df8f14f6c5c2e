"""Reading one table's log from storage: single versions, what is newer than one, and everything from the start."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Mapping

import msgspec

from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.codec.version_file import CorruptObject, decode
from tarnlog_server.core.replay import Snapshot, empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.table_settings import own_value
from tarnlog_server.core.version_record import PutId, VersionRecord, chain_fault
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
    """The versions that follow one without a gap; `gap`: what follows it was cleaned up: read the log again."""

    versions: list[int]
    gap: bool = False


class TableLog:
    """The log of one table. Holds no state of the table: it only fetches and decodes."""

    def __init__(
        self,
        store: ObjectStore,
        paths: LogPaths,
        world: World,
        columns: ColumnReader | None = None,
        segments: SegmentCache | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.store = store
        self.paths = paths
        self.columns = columns
        """Decodes the manifests of large states, where there is such a reader."""
        self.near = store.uri.startswith("file:")
        """Whether an answer of the store takes no longer than a task that waits for it."""
        self.segments = segments
        """Has them decoded, where there is an index."""
        self.defaults: Mapping[str, str] = defaults or {}
        """The service's settings for table properties: they hold where a table does not set one."""
        self._world = world

    async def read(self, version: int) -> VersionRecord:
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
        return record

    def following(self, before: Snapshot, record: VersionRecord) -> VersionRecord:
        """A version as the one after `before`. CorruptObject when it was written to follow another one.

        Timestamps strictly grow: a version of another writer takes at least its predecessor's plus one.
        """
        self._check_chain(before.put_id, record)
        if record.timestamp > before.timestamp:
            return record
        return msgspec.structs.replace(record, timestamp=before.timestamp + 1)

    def _check_chain(self, before: PutId, record: VersionRecord) -> None:
        fault = chain_fault(before, record)
        if fault is not None:
            raise CorruptObject(self.paths.version(record.version), fault)

    async def newer_than(self, version: int, *, has_file: bool = True) -> Newer:
        """The versions directly after `version`. Raises CorruptObject where one is missing, also `version` itself.

        A missing version is never the head. A listing is not a snapshot, so it may show later versions of a writer and
        not yet an earlier one: a HEAD decides. Versions are deleted below a floor alone, so one that is missing and not
        below it was lost. `has_file`: False for a version that is only in another writer's state.

        I/O: 1 LIST per hundred new objects, also where nothing is new. At a hole: a HEAD, and a LIST of the floor.
        """
        first = version if has_file else version + 1
        found: list[int] = []
        for _ in range(LIST_AGAIN):
            found, behind = await self._listed_from(first)
            if behind is None and (found or not has_file):
                return Newer([number for number in found if number > version])
            missing = first + len(found)
            if not await self.exists(missing):
                floor = await self.floor()
                if missing < floor:
                    return Newer([], gap=True)
                raise self.lost(missing, behind)
        return Newer([number for number in (*found, first + len(found)) if number > version])

    async def newer_than_state(self, version: int) -> tuple[Newer, int]:
        """The versions after a native state, and the floor, which is read last. Raises CorruptObject, as `newer_than`.

        I/O: a LIST of what follows, also where nothing does: that the next version is missing says nothing about those
        behind it. Then a LIST of the floor.
        """
        return await self.newer_than(version), await self.floor()

    async def anything_after(self, version: int) -> bool:
        """Whether there is a version above `version`. I/O: 1 LIST.

        On a local disk a LIST reads the whole directory, so only the next version is checked: 1 HEAD.
        """
        if self.near:
            return await self.exists(version + 1)
        page = await self.store.list(
            self.paths.numbered_prefix, start_after=self.paths.version(version), limit=HEAD_PAGE
        )
        return any(self.paths.parse_version(info.key) is not None for info in page)

    def lost(self, version: int, behind: int | None = None) -> CorruptObject:
        """The error for a version file that is missing and not below the floor."""
        reason = f", although version {behind} exists" if behind is not None else ""
        return CorruptObject(self.paths.version(version), f"the version file is missing{reason}")

    async def _listed_from(self, first: int) -> tuple[list[int], int | None]:
        """The versions from `first` on that are listed without a gap, and the one behind the first gap, if any."""
        found: list[int] = []
        after = self.paths.version(first - 1) if first > 0 else None
        while True:
            page = await self.store.list(self.paths.numbered_prefix, start_after=after, limit=HEAD_PAGE)
            for info in page:
                number = self.paths.parse_version(info.key)
                if number is None or number < first:
                    continue
                if number != first + len(found):
                    return found, number
                found.append(number)
            if len(page) < HEAD_PAGE:
                return found, None
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
            # Before any is applied: of a fork that shows at the end, readers must not see the beginning.
            for before, record in itertools.pairwise(records):
                self._check_chain(before.put_id, record)
            for record in records:
                if record.version == tracker.head.version + 1:
                    tracker.advance(self.following(tracker.head, record))

    def _at_once(self, tracker: SnapshotTracker) -> int:
        """How many versions are read at the same time: they are small, so more than parts unless the table says."""
        metadata = tracker.head.metadata
        configuration = metadata.configuration if metadata is not None else {}
        wanted = own_value(configuration, "checkpoint.parallelism", self.defaults)
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
