"""Vacuum as a verb: delete data files that nothing leads to, or tell which ones that would be."""

from __future__ import annotations

import logging

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.protected_files import Why
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.core.vacuum_plan import RetentionTooShort, retention
from tarnlog_server.usecases.commits import check_writable
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.vacuum_run import VacuumRun

_log = logging.getLogger(__name__)


class OrphanView(Struct, frozen=True, rename="camel"):
    """A data file that nothing leads to."""

    path: str
    size: int
    modified_time: int


class KeptView(Struct, frozen=True, rename="camel"):
    """How many objects of the folder stay, by the first reason that holds."""

    referenced: int
    young: int
    in_session: int
    not_data: int
    other_table: int
    older_than_table: int


class VacuumView(Struct, frozen=True, rename="camel"):
    """What a vacuum deleted, or would delete. `examples` are the first hundred files of those that were found."""

    table_name: str
    status: str
    orphaned_files_found: int
    orphaned_files_deleted: int
    size_bytes_found: int
    size_bytes_deleted: int
    retention_hours: float
    dry_run: bool
    duration_ms: int
    message: str
    kept: KeptView
    examples: tuple[OrphanView, ...]


class Vacuum:
    """The verb about data files that nothing leads to."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables

    async def vacuum(
        self,
        name: TableName,
        *,
        dry_run: bool = True,
        retention_hours: float | None = None,
        override_minimum: bool = False,
        progress: Progress = unheard,
    ) -> VacuumView:
        """Delete orphans that are older than the retention, or only count them.

        ProblemError when the retention is below the minimum, or when anything of the log cannot be read: nothing is
        deleted then. Safe to stop anywhere and to run again.
        """
        table = await self._tables.get(name, 0)
        check_writable(table)
        live, world, telemetry = table.live, self._tables.world, self._tables.telemetry
        retention_ms = _retention(live, retention_hours, override=override_minimum)
        started = world.monotonic()
        run = VacuumRun(live, world, retention_ms=retention_ms, dry_run=dry_run, progress=progress)
        outcome = "failed"
        try:
            with live.translated(close=False):
                await run.run()
            outcome = "dry-run" if dry_run else "success"
        finally:
            seconds = world.monotonic() - started
            telemetry.vacuum_ended(outcome, seconds, run.deleted, run.deleted_bytes)
            if run.deleted:
                _log.info("table %s: vacuum deleted %s files, %s bytes", name, run.deleted, run.deleted_bytes)
        return VacuumView(
            table_name=str(name),
            status=outcome,
            orphaned_files_found=run.found,
            orphaned_files_deleted=run.deleted,
            size_bytes_found=run.found_bytes,
            size_bytes_deleted=run.deleted_bytes,
            retention_hours=retention_ms / HOUR,
            dry_run=dry_run,
            duration_ms=int(seconds * 1000),
            message=_message(run, dry_run=dry_run),
            kept=KeptView(
                run.kept[Why.REFERENCED],
                run.kept[Why.YOUNG],
                run.kept[Why.SESSION],
                run.kept[Why.NOT_DATA],
                run.kept[Why.OTHER_TABLE],
                run.kept[Why.OLDER],
            ),
            examples=tuple(OrphanView(one.path, one.size, one.modified_ms) for one in run.examples),
        )


def _retention(live: LiveTable, hours: float | None, *, override: bool) -> int:
    configured = int(live.setting("deletedFileRetention.duration"))
    try:
        return retention(configured, None if hours is None else int(hours * HOUR), override=override)
    except RetentionTooShort as error:
        errors = [{"pointer": "/retentionHours", "message": str(error)}]
        raise ProblemError("request-invalid", f"/retentionHours: {error}", errors=errors) from None


def _message(run: VacuumRun, *, dry_run: bool) -> str:
    protected = run.kept[Why.OTHER_TABLE] + run.kept[Why.OLDER]
    left = f"; {protected} are older than the table or another table's, and are never deleted" if protected else ""
    if not run.found:
        return f"there was nothing to delete{left}"
    if dry_run:
        return f"{run.found} files would be deleted; send dryRun: false to delete them{left}"
    return f"{run.deleted} files were deleted{left}"
