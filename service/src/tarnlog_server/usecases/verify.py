"""The verb verify: is this table what its log says?"""

from __future__ import annotations

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.core.audit import Check
from tarnlog_server.ports.object_store import StoreError
from tarnlog_server.usecases.audit import Audited, audit
from tarnlog_server.usecases.catalog import Named
from tarnlog_server.usecases.lanes import LanedStore
from tarnlog_server.usecases.live_table import storage_problem
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.table_log import TableLog


class Repaired(Struct, frozen=True):
    """One thing that a repair did: the object, and what became of it."""

    object: str
    action: str


class AuditView(Struct, frozen=True, rename="camel"):
    """The checks of a table, and what a repair did. `status` is `success` when every check is fine."""

    table_name: str
    status: str
    checks: tuple[Check, ...]
    repaired: tuple[Repaired, ...] = ()


class Verify:
    """Audits tables. Changes nothing, and works on tables that cannot be served."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables

    async def verify(self, name: TableName, progress: Progress = unheard) -> AuditView:
        """Check a table whole. Costs reading its log, and a listing of its data files. ProblemError."""
        return view(name, await self.audited(name, progress))

    async def named(self, name: TableName) -> Named:
        """The catalog's entry of a name. ProblemError `table-not-found`."""
        named = await self._tables.catalog.find(name, 0)
        if named is None or named.entry.dropped:
            raise ProblemError("table-not-found", f"there is no table {name}; create it with POST /v1/tables")
        return named

    async def audited(self, name: TableName, progress: Progress = unheard, *, data_files: bool = True) -> Audited:
        """The same with the findings that a repair needs."""
        named = await self.named(name)
        root, prefix = self._tables.roots.resolve(named.entry.location)
        log = TableLog(
            LanedStore(root.store, self._tables.lanes),
            LogPaths(prefix),
            self._tables.world,
            defaults=self._tables.defaults,
        )
        try:
            return await audit(log, self._tables.world, progress, data_files=data_files)
        except StoreError as error:
            raise storage_problem(error) from error


def view(name: TableName, audited: Audited, repaired: tuple[Repaired, ...] = ()) -> AuditView:
    """An audit as it is answered."""
    return AuditView(str(name), "success" if audited.ok else "failed", audited.checks, repaired)
