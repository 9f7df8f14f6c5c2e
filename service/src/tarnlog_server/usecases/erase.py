"""Erase as a verb: make what was removed from a table unreadable now, instead of when retention is over."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.intent import Intent, ReadSet, footprint_of
from tarnlog_server.core.protected_files import Why
from tarnlog_server.core.version_record import ERASE
from tarnlog_server.usecases.caches import Caches
from tarnlog_server.usecases.checkpoints import Checkpoints
from tarnlog_server.usecases.cleanup import Cleanup
from tarnlog_server.usecases.commits import Commits, check_writable
from tarnlog_server.usecases.erase_run import EraseRun
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.outcomes import expect_committed
from tarnlog_server.usecases.rebuild import Rebuild
from tarnlog_server.usecases.segment_cache import SegmentCache
from tarnlog_server.usecases.vacuum import OrphanView

_log = logging.getLogger(__name__)


class WithheldView(Struct, frozen=True, rename="camel"):
    """Removed files that stay, by reason. Those in a session or written again wait for another erase; the others are
    not the table's."""

    in_session: int
    written_again: int
    older_than_table: int
    other_table: int
    not_data: int


class EraseView(Struct, frozen=True, rename="camel"):
    """What an erase deleted, or would delete. `examples` are the first hundred of the files that were found."""

    table_name: str
    status: str
    version: int | None
    floor: int
    files_found: int
    files_deleted: int
    size_bytes_found: int
    size_bytes_deleted: int
    versions_erased: int
    checkpoints_deleted: int
    states_deleted: int
    manifests_deleted: int
    dry_run: bool
    duration_ms: int
    message: str
    withheld: WithheldView
    examples: tuple[OrphanView, ...]


class Erase:
    """The verb about what was removed."""

    def __init__(
        self,
        tables: OpenTables,
        commits: Commits,
        checkpoints: Checkpoints,
        cleanup: Cleanup,
        caches: Caches,
        rebuilding: Rebuild | None = None,
        segments: SegmentCache | None = None,
    ) -> None:
        self._tables = tables
        self._commits = commits
        self._checkpoints = checkpoints
        self._cleanup = cleanup
        self._caches = caches
        self._rebuilding = rebuilding
        self._segments = segments

    async def erase(
        self, name: TableName, *, dry_run: bool = False, by: str | None = None, progress: Progress = unheard
    ) -> EraseView:
        """Delete what versions up to now removed, with the versions and states that name it; or only count it.

        ProblemError when the table cannot be written, or when anything of the log cannot be read. Safe to stop
        anywhere and to run again. `by` is the id of the API key, for the history.
        """
        table = await self._tables.get(name, 0)
        check_writable(table)
        live, world = table.live, self._tables.world
        started = world.monotonic()
        async with self._cleanup.lock(live.location):
            head = await live.refresh(0)
            if head.dropped:
                raise ProblemError("table-not-found", f"table {name} was dropped")
            foreign = await live.foreign_writer(0)
            if foreign is not None:
                raise foreign
            if not dry_run:
                await self._checkpoints.raise_protocol(table, "avro")
            run = EraseRun(live, world, dry_run=dry_run, progress=progress)
            try:
                with live.translated(close=False):
                    await run.run(
                        lambda parameters: self._commit(table, parameters, by),
                        lambda version: self._checkpoints.rewrite_at(table, version, progress),
                    )
            finally:
                self._caches.invalidate(live.location)
        if not dry_run and self._rebuilding is not None:
            with contextlib.suppress(ProblemError):  # the index is a cache, and may be off
                await self._rebuilding.rebuild(name)
        if not dry_run and self._segments is not None:
            await self._segments.forget()
        view = self._view(name, run, live.floor, int((world.monotonic() - started) * 1000), dry_run=dry_run)
        if not dry_run:
            _log.info("table %s: erase %s: %s", name, view.status, view.message)
        return view

    async def _commit(self, table: OpenTable, parameters: dict[str, Any], by: str | None) -> int:
        intent = Intent(
            commit_id=str(self._tables.world.uuid7()),
            request_hash="",
            actions=(),
            lines=b"",
            footprint=footprint_of(()),
            reads=ReadSet(),
            read_version=None,
            isolation="serializable",
            operation=ERASE,
            parameters=parameters,
            metrics={},
            blind=False,
            alone=True,
            evaluate=lambda _: (),
            committed_by=by,
        )
        return expect_committed(await self._commits.submit(table, intent)).version

    def _view(self, name: TableName, run: EraseRun, floor: int, duration_ms: int, *, dry_run: bool) -> EraseView:
        files = run.files
        assert files is not None
        withheld = WithheldView(
            files.withheld[Why.SESSION],
            files.withheld[Why.REWRITTEN],
            files.withheld[Why.OLDER],
            files.withheld[Why.OTHER_TABLE],
            files.withheld[Why.NOT_DATA],
        )
        left = len(files.waiting) + run.failures
        status = "dry-run" if dry_run else "partial" if left else "success"
        return EraseView(
            table_name=str(name),
            status=status,
            version=run.version,
            floor=floor,
            files_found=files.found,
            files_deleted=files.deleted,
            size_bytes_found=files.found_bytes,
            size_bytes_deleted=files.deleted_bytes,
            versions_erased=run.versions,
            checkpoints_deleted=run.checkpoints,
            states_deleted=run.states,
            manifests_deleted=run.manifests,
            dry_run=dry_run,
            duration_ms=duration_ms,
            message=_message(run, dry_run=dry_run),
            withheld=withheld,
            examples=tuple(OrphanView(one.path, one.size, one.modified_ms) for one in files.examples),
        )


def _message(run: EraseRun, *, dry_run: bool) -> str:
    files = run.files
    assert files is not None
    verb = "would be" if dry_run else "were"
    said = [f"{files.found if dry_run else files.deleted} files and {run.versions} versions {verb} erased"]
    covered = files.withheld[Why.SESSION]
    if covered:
        said.append(f"{covered} removed files are in a write session: erase again once it has ended")
    rewritten = files.withheld[Why.REWRITTEN]
    if rewritten:
        said.append(
            f"{rewritten} removed files were written again since: commit them, or erase again once they are old"
        )
    foreign = files.withheld[Why.OLDER] + files.withheld[Why.OTHER_TABLE] + files.withheld[Why.NOT_DATA]
    if foreign:
        said.append(f"{foreign} removed files are not the table's to delete: delete them by hand if they must go")
    if run.failures:
        said.append(f"{run.failures} deletions failed: erase again")
    if dry_run:
        said.append("send dryRun: false to erase; time travel ends at the newest version then")
    return "; ".join(said)
