"""Taking up a log that is already there: one of ours that was dropped, or one that other software wrote."""

from __future__ import annotations

import msgspec

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import RegisterTable
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.intent import Intent, ReadSet, footprint_of
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.state_plan import Reason, raised_protocol
from tarnlog_server.core.version_record import REGISTER
from tarnlog_server.ports.object_store import KeyRefused, ObjectStore, StoreError
from tarnlog_server.usecases.catalog import Entry, Named, Sees, everything
from tarnlog_server.usecases.checkpoints import Checkpoints
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.live_table import corrupt_problem, storage_problem
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.outcomes import expect_committed
from tarnlog_server.usecases.tables import Tables, TableView, parse_name, parse_new_name


class Register:
    """The verb register."""

    def __init__(self, tables: OpenTables, commits: Commits, by_name: Tables, checkpoints: Checkpoints) -> None:
        self._tables = tables
        self._commits = commits
        self._by_name = by_name
        self._checkpoints = checkpoints

    async def register(self, request: RegisterTable, by: str | None = None, sees: Sees = everything) -> TableView:
        """Serve an existing log under a name: read-only, or, once its other writers have stopped, for writing.

        Costs opening the log, and a state of the whole table when it is taken over. ProblemError when the log cannot be
        served, or its newest version cannot be read and it is to be written. `sees` as in `Tables.create`.
        """
        name = parse_name(request.name)
        root, prefix = self._tables.roots.find(request.location)
        stored = self._tables.roots.stored(root, prefix)
        current = await self._tables.catalog.find(name, 0)
        upgrade = current is not None and not current.entry.dropped and current.entry.location == stored
        if upgrade and current is not None:
            number = current.number + 1
        else:
            name = parse_new_name(request.name)
            number = await self._by_name.free_number(name)
            await self._by_name.refuse_overlap(self._tables.roots.uri(root, prefix), sees)
        await refuse_no_log(root.store, LogPaths(prefix))
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
            await self._adopt(table, by)
        elif head.dropped:
            detail = "the log says that the table was dropped; register it with foreignWritersStopped to take it up"
            raise ProblemError("log-not-supported", detail)
        entry = msgspec.structs.replace(entry, id=head.metadata.id)
        if not await self._tables.catalog.write(name, number, entry):
            raise ProblemError("table-exists", f"table {name} was created by somebody else at the same time")
        if request.foreign_writers_stopped and (table.live.base is None or not table.live.base.ours):
            # The version that takes the log over stands on what others wrote: from here on, on a state of ours.
            # Should it fail, the background writer does it.
            await self._checkpoints.keep(table, Reason.NO_BASE)
        await self._by_name.give_way(Named(name, number, entry), end_log=False, sees=sees)
        return await self._by_name.describe(name, 0)

    async def _adopt(self, table: OpenTable, by: str | None) -> None:
        head = table.live.head
        if table.live.behind is not None:
            detail = "it holds the newest version of the log, and what is built without that version would lose it"
            raise corrupt_problem(table.live.name, CorruptObject(table.live.behind, detail))
        lacking = unsupported_for_writing(head.protocol)
        if lacking is not None:
            raise ProblemError("protocol-not-supported", f"writing to this log needs {lacking}; register it read-only")
        state_format = str(table.live.setting("state.format"))
        actions = _raised(head, state_format)
        intent = Intent(
            commit_id=str(self._tables.world.uuid7()),
            request_hash="",
            actions=actions,
            lines=b"\n".join(map(encode_action, actions)),
            footprint=footprint_of(actions),
            reads=ReadSet(),
            read_version=None,
            isolation="serializable",
            operation=REGISTER,
            parameters={"adoptedFrom": head.version},
            metrics={},
            blind=False,
            alone=True,
            evaluate=lambda head: _raised(head, state_format),
            adopted_from=head.version,
            for_dropped=True,
            committed_by=by,
        )
        expect_committed(await self._commits.submit(table, intent))


def _raised(head: Snapshot, state_format: str) -> tuple[Action, ...]:
    """An older table says with the version that takes it over that it gets Avro states."""
    raised = raised_protocol(head.protocol, state_format)
    return () if raised is None else (raised,)


async def refuse_no_log(store: ObjectStore, paths: LogPaths) -> None:
    """ProblemError when there is nothing at a place that tells a version. Costs a LIST per thousand objects."""
    after: str | None = None
    try:
        while True:
            page = await store.list(paths.root, start_after=after, limit=1000)
            for info in page:
                if paths.parse_version(info.key) is not None or paths.parse_state(info.key) is not None:
                    return
            if len(page) < 1000:
                break
            after = page[-1].key
    except KeyRefused as error:
        raise ProblemError("location-not-allowed", f"the location cannot be used: {error}") from error
    except StoreError as error:
        raise storage_problem(error) from error
    raise ProblemError("log-not-supported", "there is no log at this location; create a table instead")
