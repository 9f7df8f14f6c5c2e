"""Taking up a log that is already there: one of ours that was dropped, or one that other software wrote."""

from __future__ import annotations

import msgspec

from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import RegisterTable
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.core.intent import Intent, ReadSet, footprint_of
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.version_record import REGISTER
from tarnlog_server.ports.object_store import KeyRefused, ObjectStore, StoreError
from tarnlog_server.usecases.catalog import Entry, Named
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.live_table import storage_problem
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.outcomes import expect_committed
from tarnlog_server.usecases.tables import Tables, TableView, parse_name


class Register:
    """The verb register."""

    def __init__(self, tables: OpenTables, commits: Commits, by_name: Tables) -> None:
        self._tables = tables
        self._commits = commits
        self._by_name = by_name

    async def register(self, request: RegisterTable) -> TableView:
        """Serve an existing log under a name: read-only, or, once its other writers have stopped, for writing.

        Costs one replay of the log. ProblemError when the log is of a kind that cannot be served.
        """
        name = parse_name(request.name)
        root, prefix = self._tables.roots.find(request.location)
        stored = self._tables.roots.stored(root, prefix)
        current = await self._tables.catalog.find(name, 0)
        upgrade = current is not None and not current.entry.dropped and current.entry.location == stored
        if upgrade and current is not None:
            number = current.number + 1
        else:
            number = await self._by_name.free_number(name)
            await self._by_name.refuse_overlap(self._tables.roots.uri(root, prefix))
        await refuse_newer_states(root.store, LogPaths(prefix))
        entry = Entry(id="", location=stored, read_only=not request.foreign_writers_stopped)
        table = await self._tables.open(Named(name, number, entry))
        head = await table.live.refresh(0)
        if head.dropped:
            # What is remembered of a dropped table may have been purged since.
            await table.live.reload()
            head = table.live.head
        if head.metadata is None:
            raise ProblemError("log-not-supported", "the log has no metaData: nobody can tell what the table is")
        if request.foreign_writers_stopped:
            await self._adopt(table)
        elif head.dropped:
            detail = "the log says that the table was dropped; register it with foreignWritersStopped to take it up"
            raise ProblemError("log-not-supported", detail)
        entry = msgspec.structs.replace(entry, id=head.metadata.id)
        if not await self._tables.catalog.write(name, number, entry):
            raise ProblemError("table-exists", f"table {name} was created by somebody else at the same time")
        await self._by_name.give_way(Named(name, number, entry), end_log=False)
        return await self._by_name.describe(name, 0)

    async def _adopt(self, table: OpenTable) -> None:
        head = table.live.head
        lacking = unsupported_for_writing(head.protocol)
        if lacking is not None:
            raise ProblemError("protocol-not-supported", f"writing to this log needs {lacking}; register it read-only")
        intent = Intent(
            commit_id=str(self._tables.world.uuid7()),
            request_hash="",
            actions=(),
            lines=b"",
            footprint=footprint_of(()),
            reads=ReadSet(),
            read_version=None,
            isolation="serializable",
            operation=REGISTER,
            parameters={"adoptedFrom": head.version},
            metrics={},
            blind=False,
            alone=True,
            evaluate=lambda _: (),
            adopted_from=head.version,
            for_dropped=True,
        )
        expect_committed(await self._commits.submit(table, intent))


async def refuse_newer_states(store: ObjectStore, paths: LogPaths) -> None:
    """ProblemError when the newest version is only in a state directory: its versions do not tell it all."""
    newest_version = newest_state = -1
    after: str | None = None
    try:
        while True:
            page = await store.list(paths.root, start_after=after, limit=1000)
            for info in page:
                version, state = paths.parse_version(info.key), paths.parse_state(info.key)
                newest_version = max(newest_version, -1 if version is None else version)
                newest_state = max(newest_state, -1 if state is None else state)
            if len(page) < 1000:
                break
            after = page[-1].key
    except KeyRefused as error:
        raise ProblemError("location-not-allowed", f"the location cannot be used: {error}") from error
    except StoreError as error:
        raise storage_problem(error) from error
    if newest_version < 0 and newest_state < 0:
        raise ProblemError("log-not-supported", "there is no log at this location; create a table instead")
    if newest_state > newest_version:
        detail = f"version {newest_state} is only in a state directory, and the newest version file is {newest_version}"
        raise ProblemError("log-not-supported", detail + ": this service replays version files only")
