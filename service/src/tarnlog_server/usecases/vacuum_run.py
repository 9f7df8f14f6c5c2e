"""One pass of vacuum over a table's folder: page by page, each deleted file judged on the newest log there is.

Nothing is remembered between runs: what was not deleted is found again. What is protected is read in an order in which
nothing slips through: sessions first, then the log, then the listing. A session that ends by committing is seen in one
of the first two; a file that is written over meanwhile is young in the listing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping

from tarnlog.protocol.actions import Action
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject, ErasedVersion
from tarnlog_server.core.protected_files import DataObject, Why, created_at
from tarnlog_server.core.vacuum_plan import NOTHING_ERASED, Session, VacuumPlan
from tarnlog_server.core.vacuum_references import References
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.foreign_folders import ForeignFolders
from tarnlog_server.usecases.foreign_writers import ForeignWriters
from tarnlog_server.usecases.live_table import LiveTable, foreign_writer_problem
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.sessions import read_sessions
from tarnlog_server.usecases.table_log import PARALLEL_READS

PAGE = 500
DELETES_AT_ONCE = 16
MAX_EXAMPLES = 100
HASHED_ON_LOOP = 1000
"""More names than this are hashed off the event loop: commits go on meanwhile."""


class VacuumRun:
    """The counts are true at any time, so that a run that fails can still tell what it did."""

    def __init__(
        self,
        live: LiveTable,
        world: World,
        *,
        retention_ms: int,
        dry_run: bool,
        progress: Progress,
        erased: Mapping[str, int] = NOTHING_ERASED,
        floor: int | None = None,
    ) -> None:
        """An erase names the files that go whatever their age, with the times of their removal, and the version that
        nothing below is needed of."""
        self.found = 0
        self.found_bytes = 0
        self.deleted = 0
        self.deleted_bytes = 0
        self.kept: Counter[Why] = Counter()
        self.examples: list[DataObject] = []
        self._live = live
        self._world = world
        self._retention_ms = retention_ms
        self._dry_run = dry_run
        self._erased = erased
        self._floor = floor
        self.withheld: Counter[Why] = Counter()
        """Files that an erase wanted gone and that stay, by reason."""
        self.waiting: set[str] = set()
        """The keys of those among them that another erase may delete: in a session, or written again."""
        self._progress = progress
        self._now_ms = world.now_ms()
        """One reading for the whole run: the older it gets, the more is kept."""
        self._references = References()
        self._known_to: int | None = None
        """The version up to which the log was read."""
        self._created_ms = 0
        self._folders = ForeignFolders(live.log.store, live.log.paths.table)
        self._foreign_writers = ForeignWriters(live.log)

    async def run(self) -> None:
        """Raises StoreError, CorruptObject, ProblemError. Nothing is deleted before everything retained was read.

        Costs a GET for each version since the floor, and a LIST for each page of the folder; deleting costs a look at
        sessions, at the log and at the page again, for each page that has something to delete.
        """
        plan = await self._protected()
        paths = self._live.log.paths
        prefix = f"{paths.table}/" if paths.table else ""
        after: str | None = None
        listed = 0
        while True:
            page, last = await self._page(prefix, after)
            orphans, kept = await self._judged(plan, page)
            if orphans and not self._dry_run:
                plan = await self._protected()
                page, last = await self._page(prefix, after)
                orphans, kept = await self._judged(plan, page)
                await self._delete(prefix, orphans)
            self._count(orphans, kept)
            self._withhold(plan, page, orphans)
            listed += len(page)
            self._progress(listed, None, "files")
            if last is None:
                return
            after = last

    async def _page(self, prefix: str, after: str | None) -> tuple[list[DataObject], str | None]:
        """Objects of the table's folder outside of its log, and where to go on; None at the end."""
        log = self._live.log.paths.root
        infos = await self._live.log.store.list(prefix, start_after=after, limit=PAGE)
        page = [
            DataObject(info.key.removeprefix(prefix), info.size, info.modified_ms)
            for info in infos
            if not info.key.startswith(log)
        ]
        if len(infos) < PAGE:
            return page, None
        last = infos[-1].key
        # The log's own objects are passed over at once: "0" comes right after "/".
        return page, f"{log[:-1]}0" if last.startswith(log) else last

    async def _judged(self, plan: VacuumPlan, page: Iterable[DataObject]) -> tuple[list[DataObject], Counter[Why]]:
        judged = plan.orphans(page)
        mine, foreign = await self._folders.divided(judged.objects)
        kept = Counter(judged.kept)
        kept[Why.OTHER_TABLE] += foreign
        return mine, kept

    def _count(self, orphans: list[DataObject], kept: Counter[Why]) -> None:
        self.kept += kept
        self.found += len(orphans)
        self.found_bytes += sum(one.size for one in orphans)
        self.examples += orphans[: MAX_EXAMPLES - len(self.examples)]

    def _withhold(self, plan: VacuumPlan, page: Iterable[DataObject], going: list[DataObject]) -> None:
        if self._erased:
            gone = {one.path for one in going}
            for one in page:
                if one.path not in gone and plan.is_erased(one):
                    why = plan.why_kept(one) or Why.OTHER_TABLE
                    self.withheld[why] += 1
                    if why in (Why.SESSION, Why.REWRITTEN):
                        self.waiting |= {one.path, path_key(one.path)}

    async def _delete(self, prefix: str, orphans: list[DataObject]) -> None:
        store = self._live.log.store
        for start in range(0, len(orphans), DELETES_AT_ONCE):
            some = orphans[start : start + DELETES_AT_ONCE]
            ended = await asyncio.gather(*(store.delete(f"{prefix}{one.path}") for one in some), return_exceptions=True)
            gone = [one for one, error in zip(some, ended, strict=True) if error is None]
            self.deleted += len(gone)
            self.deleted_bytes += sum(one.size for one in gone)
            for error in ended:
                if error is not None:
                    raise error

    # What is protected

    async def _protected(self) -> VacuumPlan:
        """The plan on everything that is in storage now. The first one reads the log, the next what is new in it."""
        live = self._live
        sessions = [Session(one.prefix, one.expires_at) for one in await read_sessions(live)]
        head = await live.refresh(0)
        if head.dropped:
            raise ProblemError("table-not-found", f"table {live.name} was dropped while it was vacuumed")
        await self._check_alone()
        if self._known_to is None:
            # What is removed later than this is live here, so it is among the files that are read.
            if self._floor is None:
                removes = [remove for remove, _ in head.tombstones.known.values()]
                self._references.add_removed(removes, self._now_ms - self._retention_ms)
            self._created_ms = await created_ms(live)
            self._known_to = await self._read_base()
        await self._read_versions(self._known_to + 1, head.version)
        self._known_to = head.version
        return VacuumPlan(
            self._references,
            sessions,
            now_ms=self._now_ms,
            retention_ms=self._retention_ms,
            created_ms=self._created_ms,
            erased=self._erased,
        )

    async def _check_alone(self) -> None:
        """A log that was taken over may have a writer left, whose files are in no version that could be read.

        Unlike a commit, a store that does not answer here ends it: deleting cannot be made good.
        """
        adopted = self._live.tracker.adopted_from
        if adopted is not None:
            trace = await self._foreign_writers.trace(max(self._live.floor - 1, adopted))
            if trace is not None:
                raise foreign_writer_problem(self._live.name, trace)

    async def _read_base(self) -> int:
        """The files of the oldest version that is kept; that version."""
        live = self._live
        first = max(live.oldest, await live.log.floor(), self._floor or 0)
        # An erase has just checked the state of its floor, or is a dry run before there is one.
        known = None if self._floor is None else live.tracker.snapshot_at(first)
        snapshot = known or (await live.past(first)).head
        await self._world.run_blocking(lambda: self._references.add_files(add for _, add in snapshot.rows()))
        return first

    async def _add_files(self, actions: list[Action]) -> None:
        if len(actions) > HASHED_ON_LOOP:
            await self._world.run_blocking(lambda: self._references.add_files(actions))
        else:
            self._references.add_files(actions)

    async def _read_versions(self, first: int, last: int) -> None:
        """What versions first..last added, whether or not it was removed again: time travel still leads there."""
        for start in range(first, last + 1, PARALLEL_READS):
            window = range(start, min(start + PARALLEL_READS, last + 1))
            records = await asyncio.gather(*map(self._record, window))
            await self._add_files([action for record in records for action in record.actions])
            if last - first > PARALLEL_READS:
                self._progress(window[-1] - first + 1, last - first + 1, "versions")

    async def _record(self, version: int) -> VersionRecord:
        step = self._live.tracker.step(version)
        if step is not None:
            return step.record
        try:
            return await self._live.log.read(version)
        except ObjectMissing:
            if version < await self._live.log.floor():
                detail = f"version {version} was cleaned up meanwhile; start the vacuum again"
                raise ProblemError("storage-unavailable", detail, retry_after=1.0) from None
            raise CorruptObject(self._live.log.paths.version(version), "the version file is missing") from None


async def created_ms(live: LiveTable) -> int:
    """When the table was created, as `core.protected_files.created_at` defines it. Raises StoreError.

    The object's time counts only while it is the object of the creation: an erase writes over version 0, and what it
    leaves there keeps the version's own time. I/O: 1 HEAD, 1 GET.
    """
    log, metadata = live.log, live.head.metadata
    created = metadata.created_time if metadata is not None else None
    first: int | None = None
    try:
        first = (await log.store.head(log.paths.version(0))).modified_ms
        await log.read(0)
    except ErasedVersion as erased:
        return created_at(created if created is not None else erased.record.timestamp, None)
    except (CorruptObject, ObjectMissing):
        pass  # damaged, it still has its time
    return created_at(created, first)
