"""Cleanup as a verb: on demand, with what it did or would do as the answer, and by the way when it is due."""

from __future__ import annotations

import asyncio
import logging

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.retention_facts import retention_settings
from tarnlog_server.ports.object_store import StoreError
from tarnlog_server.usecases.caches import Caches
from tarnlog_server.usecases.checkpoints import Checkpoints
from tarnlog_server.usecases.cleanup_run import Cleaned, CleanupRun
from tarnlog_server.usecases.commits import check_writable
from tarnlog_server.usecases.log_listing import Directories
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.purge import purge

_log = logging.getLogger(__name__)
EVERY_SECONDS = 4 * 3600.0
"""How often a replica cleans up a table that it has open. A run costs a listing of the log."""
FIRST_WITHIN_SECONDS = 3600.0
"""The first run of a table comes at some time within this: replicas that start together do not list together."""


class CleanupView(Struct, frozen=True, rename="camel"):
    """What a cleanup deleted, or would delete."""

    table_name: str
    status: str
    checkpoint_version: int | None
    versions_deleted: int
    checkpoints_deleted: int
    states_deleted: int
    manifests_deleted: int
    files_preserved: int
    floor: int
    message: str


class Cleanup:
    """The verb about what a log may let go of. One run a table at a time; two replicas at once do no harm."""

    def __init__(self, tables: OpenTables, checkpoints: Checkpoints, caches: Caches) -> None:
        self._tables = tables
        self._checkpoints = checkpoints
        self._caches = caches
        self._locks: dict[str, asyncio.Lock] = {}
        self._directories: dict[str, Directories] = {}
        self._next: dict[str, float] = {}

    async def cleanup(self, name: TableName, *, dry_run: bool = False, progress: Progress = unheard) -> CleanupView:
        """Delete what retention no longer promises. ProblemError when the table cannot be written or storage fails."""
        table = await self._tables.get(name, 0)
        check_writable(table)
        with table.live.translated(close=False):
            done = await self._run(table, dry=dry_run, progress=progress)
        return CleanupView(
            table_name=str(name),
            status=done.status,
            checkpoint_version=done.newest_state,
            versions_deleted=done.versions,
            checkpoints_deleted=done.checkpoints,
            states_deleted=done.states,
            manifests_deleted=done.manifests,
            files_preserved=done.preserved,
            floor=done.floor or 0,
            message="; ".join(done.notes) or "there was nothing to do",
        )

    def due(self, table: OpenTable) -> bool:
        """Whether an open table should be cleaned up now. Costs a look at the clock."""
        live = table.live
        if live.read_only or not live.opened:
            return False
        if not live.purged if live.head.dropped else not live.setting("cleanup.enabled"):
            return False
        world = self._tables.world
        at = self._next.get(live.location)
        if at is None:
            at = world.monotonic() + world.rng.random() * FIRST_WITHIN_SECONDS
            self._next[live.location] = at
        return world.monotonic() >= at and not self._lock(live.location).locked()

    async def keep(self, table: OpenTable) -> bool:
        """Clean up a table that is due; whether it went well. What goes wrong is told to logs and metrics only."""
        self._later(table)
        try:
            if table.live.head.dropped:
                await purge(table.live, self._tables.world)
                return True
            check_writable(table)
            done = await self._run(table, dry=False, progress=unheard)
        except (StoreError, CorruptObject, ProblemError) as error:
            _log.warning("table %s: the cleanup failed: %s", table.live.name, error)
            return False
        return done.status == "success"

    def forget_closed(self) -> None:
        """Let go of what is kept about tables that are no longer open."""
        opened = {table.live.location for table in self._tables.opened()}
        kept: tuple[dict[str, object], ...] = (self._next, self._directories, self._locks)  # type: ignore[assignment]
        for about in kept:
            for place in [place for place in about if place not in opened]:
                del about[place]

    def _later(self, table: OpenTable) -> None:
        self._next[table.live.location] = self._tables.world.monotonic() + EVERY_SECONDS

    def lock(self, place: str) -> asyncio.Lock:
        """Held by everything that deletes objects of the log of the table at a place."""
        return self._lock(place)

    def _lock(self, place: str) -> asyncio.Lock:
        return self._locks.setdefault(place, asyncio.Lock())

    async def _run(self, table: OpenTable, *, dry: bool, progress: Progress) -> Cleaned:
        """One run at a time a table: whoever comes second waits."""
        live = table.live
        telemetry, world = self._tables.telemetry, self._tables.world
        async with self._lock(live.location):
            if not dry:
                self._later(table)
            started = world.monotonic()
            head = await live.refresh(0)
            if head.dropped:
                raise ProblemError("table-not-found", f"table {live.name} was dropped")
            foreign = await live.foreign_writer(0)
            if foreign is not None:
                raise foreign  # what it wrote is nowhere else, and must not be taken for what nobody needs
            settings = retention_settings(
                head.metadata.configuration if head.metadata is not None else {}, live.log.defaults
            )
            directories = self._directories.get(live.location)
            if directories is None:
                directories = Directories(live.log.paths, live.log.store, live.states)
                self._directories[live.location] = directories
            run = CleanupRun(
                live,
                world,
                directories,
                settings,
                stop_at_failure=live.setting("cleanup.failurePolicy") == "fail",
                dry=dry,
                progress=progress,
                # A floor stands on an Avro state, and a table says that it has those before it gets its first one.
                before_building=lambda: self._checkpoints.raise_protocol(table),
            )
            try:
                done = await run.run()
            except Exception:
                telemetry.cleanup_ended("failed", world.monotonic() - started)
                raise
            finally:
                self._tell(run.done, dry)
                self._caches.versions_list.drop(live.location)
        if not dry:
            telemetry.cleanup_ended(done.status, world.monotonic() - started)
            _say(table, done)
        return done

    def _tell(self, done: Cleaned, dry: bool) -> None:
        if not dry:
            for kind in ("versions", "checkpoints", "states", "manifests"):
                if count := getattr(done, kind):
                    self._tables.telemetry.cleaned(kind, count)


def _say(table: OpenTable, done: Cleaned) -> None:
    if done.versions or done.checkpoints or done.states or done.manifests or done.status != "success":
        _log.info(
            "table %s: cleanup %s: deleted %s versions, %s checkpoints, %s states, %s manifests; %s",
            table.live.name,
            done.status,
            done.versions,
            done.checkpoints,
            done.states,
            done.manifests,
            "; ".join(done.notes),
        )
