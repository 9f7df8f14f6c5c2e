"""The verb repair: states are made again from what they describe; versions and data files are never touched.

The order is what makes it safe to stop anywhere. First a state of the newest version is written from scratch, which
shares nothing with what is broken, read back and pointed to. Only then is anything damaged replaced or put aside, and
what is put aside lies below `_damaged/` in the log, for whoever wants to know what happened to it.
"""

from __future__ import annotations

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.state_manifest_avro import encode_state_manifest_avro
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.audit import Check
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.usecases.anchor import build_anchor
from tarnlog_server.usecases.audit import Audited
from tarnlog_server.usecases.audit_states import Place, StateFindings
from tarnlog_server.usecases.checkpoints import Checkpoints
from tarnlog_server.usecases.commits import check_writable
from tarnlog_server.usecases.foreign_writers import is_foreign_state
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.state_read import Kind
from tarnlog_server.usecases.verify import AuditView, Repaired, Verify, view

PAGE = 1000


class Repair:
    """Repairs the states of tables."""

    def __init__(self, tables: OpenTables, verifying: Verify, checkpoints: Checkpoints) -> None:
        self._tables = tables
        self._verifying = verifying
        self._checkpoints = checkpoints

    async def repair(self, name: TableName, progress: Progress = unheard) -> AuditView:
        """Make broken states sound again, and say what is left. Doing it twice does nothing the second time.

        Costs an audit of the log before and, if anything was done, after; and what each broken state costs to rebuild.
        """
        if (await self._verifying.named(name)).entry.read_only:
            detail = "the table is registered read-only, so nothing is written to its log; its owner can repair it"
            raise ProblemError("table-read-only", detail)
        before = await self._verifying.audited(name, progress, data_files=False)
        if before.head is None or not _has_work(before.states):
            return _told(name, before, (), {})
        table = await self._tables.get(name, 0)
        check_writable(table)
        run = _Run(self._tables, self._checkpoints, table, before.states)
        with table.live.translated(close=False):
            await run.run(progress)
        after = await self._verifying.audited(name, progress, data_files=False)
        return _told(name, after, tuple(run.done), run.left)


def _has_work(states: StateFindings) -> bool:
    return bool(states.broken or states.other_readers or states.hint)


class _Run:
    """One repair of one table."""

    def __init__(self, tables: OpenTables, checkpoints: Checkpoints, table: OpenTable, found: StateFindings) -> None:
        self._tables = tables
        self._checkpoints = checkpoints
        self._live = table.live
        self._table = table
        self._found = found
        self._paths = table.live.log.paths
        self._store = table.live.log.store
        self.done: list[Repaired] = []
        self.left: dict[str, str] = {}
        """What could not be repaired: the object, and what to do."""

    async def run(self, progress: Progress) -> None:
        """Raises StoreError, ProblemError."""
        if not self._found.unlike:
            await self._steps(progress)
            return
        # The table may have been opened from a state that is wrong: read it again without those.
        self._live.states.distrusted = frozenset(self._found.unlike)
        try:
            await self._live.reload()
            await self._steps(progress)
        finally:
            self._live.states.distrusted = frozenset()

    async def _steps(self, progress: Progress) -> None:
        if self._found.broken or self._found.hint:
            await self._fresh_state(progress)
        broken = sorted(self._found.broken, key=lambda place: place[0])
        for number, place in enumerate(broken):
            progress(number, len(broken), "states")
            await self._state(place)
        for version in sorted(self._found.other_readers):
            await self._for_other_readers(version)

    async def _fresh_state(self, progress: Progress) -> None:
        """A state of the newest version that owes nothing to any other, validated, and the hint moved to it."""
        hint = await self._live.states.hint()
        if self._found.hint is not None and (hint is None or hint.version > self._live.head.version):
            # A hint that names what is not there would be taken for a newer one, and stay.
            await self._store.delete(self._paths.last_checkpoint)
        written = await self._checkpoints.rewrite(self._table, progress)
        place = f"the state of version {written.version}"
        self.done.append(Repaired(place, "written from scratch and validated; _last_checkpoint leads to it"))

    async def _state(self, place: Place) -> None:
        version, kind = place
        base = self._live.base
        if base is not None and (base.ref.version, base.ref.kind) == place:
            return  # it is the one that was just written
        if kind is not Kind.AVRO or version < self._live.floor:
            await self._put_aside(place)
        else:
            try:
                await build_anchor(self._live, self._tables.world, version)
                self.done.append(Repaired(self._paths.state_manifest(version), "rebuilt from versions and validated"))
            except (CorruptObject, ObjectMissing) as error:
                await self._beyond_rebuilding(place, error)
            except ProblemError as problem:
                self.left[self._paths.state_manifest(version)] = problem.detail

    async def _beyond_rebuilding(self, place: Place, error: CorruptObject | ObjectMissing) -> None:
        """What it was made from is gone: it can go, unless the floor stands on it."""
        key = self._paths.state_manifest(place[0])
        if place[0] == self._live.floor:
            self.left[key] = (
                f"the floor stands on it and it cannot be rebuilt ({error.key}): restore its objects from a copy; "
                "newer versions do not need it, and the next floor replaces it"
            )
        else:
            await self._put_aside(place)

    async def _put_aside(self, place: Place) -> None:
        """Move a state's own objects out of the readers' way. A copy first: a crash leaves one too many, never none."""
        for key in await self._objects(place):
            try:
                data = await self._store.get(key)
            except ObjectMissing:
                continue
            aside = self._paths.damaged(key)
            await self._store.put(aside, data)
            await self._store.delete(key)
            self.done.append(Repaired(key, f"put aside as {aside}"))

    async def _objects(self, place: Place) -> list[str]:
        """The object that completes a state first: without it the others are nothing to a reader."""
        version, kind = place
        paths = self._paths
        if kind is Kind.AVRO:
            prefix, first = paths.state_prefix(version), paths.state_manifest(version)
        elif kind is Kind.JSON:
            first = paths.checkpoint_json(version)
            prefix = first.removesuffix("json")
        else:
            first = paths.checkpoint_parquet_info(version)
            prefix = first.removesuffix("json")
        found = [info.key for info in await self._store.list(prefix, limit=PAGE)]
        return [first, *(key for key in found if key != first)]

    async def _for_other_readers(self, version: int) -> None:
        """Write what other software reads again, from the state itself; never over what other software wrote."""
        key = self._paths.state_manifest_avro(version)
        try:
            if is_foreign_state(key, version, await self._store.get(key)):
                self.left[key] = "another writer wrote it: stop that writer, then see to what it committed"
                return
        except ObjectMissing:
            pass
        try:
            manifest = await self._live.states.manifest(version)
        except (CorruptObject, ObjectMissing):
            return  # its state was put aside
        if manifest.ours:
            await self._store.put(key, encode_state_manifest_avro(manifest))
            self.done.append(Repaired(key, "written again from the state beside it"))


ADVICE = {
    "log-contiguous": "restore the missing objects from a copy: nothing can be made from what is not there",
    "version-files": "restore the damaged objects from a copy: a version file is the commit, and is never made up",
    "version-chain": "restore the log from one copy: files of two logs, or of two times, cannot be served together",
    "commit-ids-unique": "nothing can be undone: look at both versions in the history",
    "foreign-writers": "stop that writer, commit the files of its state here, and move its object out of the log",
}


def _told(name: TableName, audited: Audited, done: tuple[Repaired, ...], left: dict[str, str]) -> AuditView:
    """The audit after the repair; each check that still fails says what to do."""
    checks = tuple(_advised(check) for check in audited.checks)
    rest = [Check("left-to-do", False, f"{key}: {what}") for key, what in left.items()]
    shown = view(name, audited, done)
    status = "success" if audited.ok and not rest else "incomplete"
    return AuditView(shown.table_name, status, (*checks, *rest), done)


def _advised(check: Check) -> Check:
    if check.ok or check.name not in ADVICE:
        return check
    return Check(check.name, False, f"{check.detail}; {ADVICE[check.name]}")
