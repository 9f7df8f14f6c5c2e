"""States as a verb: write one now, write one because it is due, and tell how a table's state is doing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from msgspec import Struct

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action, Remove
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.intent import Evaluate, Intent, ReadSet, footprint_of
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schema_dedup import Renormalised
from tarnlog_server.core.state_plan import (
    MAX_BYTES_SINCE,
    AvroBase,
    Reason,
    Since,
    due,
    needs_compaction,
    raised_protocol,
    state_settings,
)
from tarnlog_server.ports.object_store import StoreError
from tarnlog_server.usecases import renormalise
from tarnlog_server.usecases.commits import Commits, check_writable
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables
from tarnlog_server.usecases.operations import Progress, unheard
from tarnlog_server.usecases.outcomes import expect_committed
from tarnlog_server.usecases.state_write import StateWriter, Written

_log = logging.getLogger(__name__)
TYPICAL_ACTION_BYTES = 400
SCANNED_STEPS = 64
"""How many recent versions are looked through for operations that ask for a state at once."""


class CheckpointView(Struct, frozen=True, rename="camel"):
    """A state that was written."""

    table_name: str
    status: str
    checkpoint_version: int
    num_actions: int
    num_files: int
    protocol_version: int
    is_multi_part: bool


class StateView(Struct, frozen=True, rename="camel"):
    """How the newest state of a table is doing. `num_files` and `total_bytes` are those of its own version."""

    table_name: str
    format: str | None
    version: int | None
    num_files: int
    num_manifests: int
    num_tombstones: int
    tombstone_ratio: float
    total_bytes: int
    needs_compaction: bool
    status: str


class Checkpoints:
    """The verbs about states."""

    def __init__(self, tables: OpenTables, commits: Commits) -> None:
        self._tables = tables
        self._commits = commits
        self._busy: set[str] = set()
        self._free = asyncio.Condition()

    async def checkpoint(
        self,
        name: TableName,
        format: str | None = None,  # noqa: A002
        progress: Progress = unheard,
    ) -> CheckpointView:
        """Write a state of the newest version now, in the table's format or another."""
        return await self._on_demand(name, format, progress, compact=False)

    async def compact(self, name: TableName, progress: Progress = unheard) -> CheckpointView:
        """Write an Avro state from scratch: no tombstones, tight partition bounds."""
        return await self._on_demand(name, "avro", progress, compact=True)

    async def describe(self, name: TableName) -> StateView:
        """The newest state this replica knows of. Counts are those of its own version; without a state, the head's."""
        table = await self._tables.get(name)
        live = table.live
        base = live.base
        manifest = base.manifest if base is not None else None
        tombstones = len(manifest.tombstones) if manifest is not None else 0
        manifests = len(manifest.manifests) if manifest is not None else 0
        files = base.num_files if base is not None else live.head.num_files
        settings = state_settings(
            live.head.metadata.configuration if live.head.metadata is not None else {}, live.log.defaults
        )
        wanted = manifest is not None and needs_compaction(AvroBase(files, tombstones, manifests), settings) is not None
        return StateView(
            table_name=str(name),
            format=base.ref.kind.value if base is not None else None,
            version=base.ref.version if base is not None else None,
            num_files=files,
            num_manifests=manifests,
            num_tombstones=tombstones,
            tombstone_ratio=round(tombstones / files, 4) if files else 0.0,
            total_bytes=base.total_bytes if base is not None else live.head.total_bytes,
            needs_compaction=wanted,
            status="none" if base is None else "ours" if base.ours else "foreign",
        )

    def due(self, table: OpenTable) -> Reason | None:
        """Why a state of an open table should be written now. Costs a look at the last few versions."""
        live = table.live
        if live.read_only or not live.opened or live.head.dropped or live.location in self._busy:
            return None
        if live.broken_states and live.setting("checkpoint.enabled"):
            return Reason.REPAIR
        metadata = live.head.metadata
        return due(
            _since(live, self._tables.world.now_ms()),
            state_settings(metadata.configuration if metadata else {}, live.log.defaults),
        )

    async def keep(self, table: OpenTable, reason: Reason) -> bool:
        """Write a state that is due; whether it was written. What goes wrong is told to logs and metrics only."""
        try:
            await self._write(table, None, reason)
        except (StoreError, CorruptObject, ProblemError) as error:
            _log.warning("table %s: writing a state failed: %s", table.live.name, error)
            return False
        return True

    async def rewrite(self, table: OpenTable, progress: Progress = unheard) -> Written:
        """A state of the newest version that shares nothing with an older one. Raises StoreError, ProblemError."""
        return await self._write(table, None, Reason.REPAIR, progress)

    async def rewrite_at(self, table: OpenTable, version: int, progress: Progress = unheard) -> None:
        """An Avro state of a version that shares nothing with older ones. Raises StoreError, CorruptObject.

        The protocol must have been raised before that version.
        """
        live = table.live
        async with self._writing(live.location):
            tracker, snapshot = live.tracker, live.tracker.snapshot_at(version)
            if snapshot is None:
                tracker, _ = await live.rebuilt(version)
                snapshot = tracker.head
            await StateWriter(live, self._tables.world, progress).write_fresh(snapshot, tracker)

    @contextlib.asynccontextmanager
    async def _writing(self, place: str) -> AsyncIterator[None]:
        """One writer a table: whoever comes second waits."""
        async with self._free:
            await self._free.wait_for(lambda: place not in self._busy)
            self._busy.add(place)
        try:
            yield
        finally:
            async with self._free:
                self._busy.discard(place)
                self._free.notify_all()

    async def _on_demand(
        self,
        name: TableName,
        format: str | None,  # noqa: A002
        progress: Progress,
        *,
        compact: bool,
    ) -> CheckpointView:
        table = await self._tables.get(name, 0)
        check_writable(table)
        with table.live.translated(close=False):
            written = await self._write(table, format, Reason.FORCED, progress, compact=compact)
        return CheckpointView(
            table_name=str(name),
            status="success",
            checkpoint_version=written.version,
            num_actions=written.num_actions,
            num_files=written.num_files,
            protocol_version=table.live.head.protocol.min_reader_version,
            is_multi_part=written.format in ("json-multipart", "parquet") and written.parts > 1,
        )

    async def _write(
        self,
        table: OpenTable,
        format: str | None,  # noqa: A002
        reason: Reason,
        progress: Progress = unheard,
        *,
        compact: bool = False,
    ) -> Written:
        """One writer a table: whoever comes second waits."""
        place = table.live.location
        telemetry = self._tables.telemetry
        async with self._writing(place):
            started = self._tables.world.monotonic()
            try:
                await self.raise_protocol(table, format)
                compact = compact or reason is Reason.REPAIR
                names = await self._renormalise(table) if compact or _whole(table.live, format) else None
                writer = StateWriter(table.live, self._tables.world, progress, names)
                written = await writer.write(format=format, compact=compact)
                if compact:
                    table.live.broken_states = False
            except Exception:
                telemetry.state_failed(format or str(table.live.setting("state.format")))
                raise
        seconds = self._tables.world.monotonic() - started
        telemetry.state_written(
            written.format, reason.value, seconds, written.size, written.num_files, written.raw_size
        )
        _log.info(
            "table %s: wrote a state of version %s (%s, %s): %s files, %s bytes, %.3f s",
            table.live.name,
            written.version,
            written.format,
            reason.value,
            written.num_files,
            written.size,
            seconds,
        )
        return written

    async def raise_protocol(self, table: OpenTable, format: str | None = None) -> None:  # noqa: A002
        """An older table says that it has Avro states before it gets its first one."""
        wanted = format or str(table.live.setting("state.format"))
        if raised_protocol(table.live.head.protocol, wanted) is None:
            return

        def evaluate(head: Snapshot) -> tuple[Action, ...]:
            return (raised_protocol(head.protocol, wanted) or head.protocol,)

        await self._commit(table, "UPGRADE PROTOCOL", evaluate)

    async def _renormalise(self, table: OpenTable) -> Renormalised | None:
        """Mappings that a state of all files calls by other names; only those that get registered change."""
        plan = await renormalise.planned(table.live)
        if plan is not None and renormalise.registered(table.live.head, plan):
            try:
                await self._commit(table, "RENORMALIZE MAPPINGS", lambda head: renormalise.registered(head, plan))
            except ProblemError as problem:
                # The old names are as good: no state waits for new ones.
                _log.warning("table %s: its mappings keep their names: %s", table.live.name, problem)
        return plan

    async def _commit(self, table: OpenTable, operation: str, evaluate: Evaluate) -> None:
        """A commit of our own, made anew on the head that it follows."""
        actions = evaluate(table.live.head)
        intent = Intent(
            commit_id=str(self._tables.world.uuid7()),
            request_hash="",
            actions=actions,
            lines=b"\n".join(map(encode_action, actions)),
            footprint=footprint_of(actions),
            reads=ReadSet(),
            read_version=None,
            isolation="serializable",
            operation=operation,
            parameters={},
            metrics={},
            blind=False,
            alone=True,
            evaluate=evaluate,
        )
        expect_committed(await self._commits.submit(table, intent))


def _whole(live: LiveTable, format: str | None) -> bool:  # noqa: A002
    """Whether the next state has to tell every file anew."""
    incremental = (format or str(live.setting("state.format"))) == "avro"
    return not incremental or live.base is None or not live.base.ours or live.base.manifest is None


def _bytes_since(live: LiveTable, last: int) -> int:
    """About how much an open has to read after the state. Costs a pass over the versions since, all in memory."""
    steps = live.tracker.steps_after(last)
    if steps is None:  # more than is kept in memory: more than anybody should have to read
        return MAX_BYTES_SINCE
    return TYPICAL_ACTION_BYTES * sum(len(step.record.actions) for step in steps)


def _since(live: LiveTable, now_ms: int) -> Since:
    head = live.head
    last = live.base.ref.version if live.base is not None and live.base.ours else live.oldest - 1
    versions = head.version - last
    first = live.tracker.timestamp_of(last + 1) if versions > 0 else None
    steps = live.tracker.steps_after(max(last, head.version - SCANNED_STEPS)) or []
    return Since(
        versions=versions,
        bytes=_bytes_since(live, last),
        age_ms=max(0, now_ms - first) if first is not None else 0,
        removes=sum(isinstance(action, Remove) for step in steps for action in step.record.actions),
        operations={sub.operation for step in steps for sub in step.record.sub_commits},
    )
