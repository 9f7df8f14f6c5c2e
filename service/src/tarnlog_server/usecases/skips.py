"""Files that an operation could not process: recorded with a cooldown, counted, and never removed."""

from __future__ import annotations

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Skip
from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.core.alter import change_hash
from tarnlog_server.core.file_values import values_of
from tarnlog_server.core.intent import Intent, ReadSet, footprint_of
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.validate import partition_fault
from tarnlog_server.usecases.cold_facts import ColdFacts
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.outcomes import expect_committed


class Skips:
    """The verbs about skipped files."""

    def __init__(self, tables: OpenTables, commits: Commits) -> None:
        self._tables = tables
        self._commits = commits
        self.cold = ColdFacts(tables)

    async def record(self, name: TableName, request: RecordSkip, by: str | None = None) -> tuple[Skip, Committed]:
        """Record a skip: an ordinary commit whose count is made on the head it follows. Returns it as written."""
        table = await self._tables.get(name)
        hours = request.cooldown_hours
        if hours is None:
            hours = float(table.live.setting("skip.cooldownHours"))
        now = self._tables.world.now_ms()
        live = table.live.head.files.live(path_key(request.path))
        skip = Skip(
            path=request.path,
            skip_timestamp=now,
            reason=request.reason,
            operation=request.operation,
            partition_values=request.partition_values or (live.partition_values if live else None),
            size=request.size if request.size is not None else (live.size if live else None),
            retry_after=now + int(hours * 3_600_000),
        )
        intent = Intent(
            commit_id=str(self._tables.world.uuid7()),
            request_hash=change_hash(request),
            actions=(skip,),
            lines=encode_action(skip),
            footprint=footprint_of((skip,)),
            reads=ReadSet(),
            read_version=None,
            isolation="snapshot",
            operation="SKIP FILE",
            parameters={"path": request.path, "operation": request.operation},
            metrics={},
            blind=False,
            committed_by=by,
        )
        metadata = table.live.head.metadata
        if metadata is not None:
            columns, rules = frozenset(metadata.partition_columns), values_of(schema_of(metadata.schema_string))
            fault = partition_fault(request.partition_values, columns, rules)
            intent.doubts = {} if fault is None else {path_key(request.path): fault}
        committed = expect_committed(await self._commits.submit(table, intent))
        written = intent.actions[0]
        assert isinstance(written, Skip)
        return written, committed

    async def all(self, name: TableName, max_staleness: float | None) -> tuple[Skip, ...]:
        """Every skip record of a live file, by path."""
        return tuple(skip for _, skip in sorted((await self._head(name, max_staleness)).skips.items()))

    async def cooldowns(self, name: TableName, max_staleness: float | None) -> dict[str, int]:
        """The paths that are left alone now, and until when."""
        return active_cooldowns(await self._head(name, max_staleness), self._tables.world.now_ms())

    async def _head(self, name: TableName, max_staleness: float | None) -> Snapshot:
        """The head, without its files where a large table is not open yet: they tell nothing of skips."""
        found = await self.cold.at_head(name, max_staleness)
        return (await self._tables.get(name, max_staleness)).live.head if found is None else found


def active_cooldowns(snapshot: Snapshot, now_ms: int) -> dict[str, int]:
    """Skipped files whose retryAfter has not come."""
    return {
        skip.path: skip.retry_after
        for _, skip in sorted(snapshot.skips.items())
        if skip.retry_after is not None and skip.retry_after > now_ms
    }
