"""Winners that are no longer in memory: read from the log, off the fast path, for commits planned long ago."""

from __future__ import annotations

import asyncio

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.snapshot_tracker import Step
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.table_log import PARALLEL_READS


class OlderSteps:
    """The last range of old versions that was read; one range is enough, since such commits are rare."""

    def __init__(self, table: LiveTable) -> None:
        self._table = table
        self._first = 0
        self._steps: list[Step] = []
        self._looked_up: tuple[int, MetaData | None] | None = None

    def after(self, version: int) -> list[Step] | None:
        """The versions in (version, head], if they are at hand: the loaded old ones, then the tracker's own."""
        if not self._steps or version + 1 < self._first:
            return None
        old = self._steps[version + 1 - self._first :]
        last = self._steps[-1].record.version
        newer = self._table.tracker.steps_after(last)
        return None if newer is None else [*old, *newer]

    async def load(self, version: int) -> None:
        """Read the versions after `version` up to the head. Costs one GET each; removed files' values are not known.

        Others commit meanwhile, so it goes on until the tracker's own window follows without a gap.
        """
        reusable = self._steps and version + 1 >= self._first
        first = self._first if reusable else version + 1
        records = [step.record for step in self._steps] if reusable else []
        while not records or self._table.tracker.steps_after(records[-1].version) is None:
            start = first + len(records)
            end = min(start + PARALLEL_READS, self._table.head.version + 1)
            if start >= end:
                break
            try:
                records += await asyncio.gather(*(self._table.read_version(number) for number in range(start, end)))
            except ProblemError as problem:
                if problem.slug != "version-expired":
                    raise
                await self._expire(start)
                raise ProblemError("storage-unavailable", "cleaned up while reading", retry_after=1.0) from problem
        try:
            before = await self._metadata_at(first - 1, records)
        except ProblemError as problem:
            if not await self._expire(first - 1):
                raise
            raise ProblemError("storage-unavailable", "cleaned up while reading", retry_after=1.0) from problem
        steps = []
        for record in records:
            steps.append(Step(record, {}, before))
            before = next((action for action in record.actions if isinstance(action, MetaData)), before)
        self._first, self._steps = first, steps

    async def _expire(self, version: int) -> bool:
        """Whether a version that cannot be read was cleaned away: then nobody can check what was planned before it.

        As long as they can be read, winners below the floor are checked like others: a floor is no part of the log, so
        another replica may not have heard of it and admit what was refused here.
        """
        with self._table.translated(close=False):
            floor = await self._table.look_at_floor()
        if version < floor:
            self._table.unreadable_below = floor
        return version < floor

    async def _metadata_at(self, version: int, records: list[VersionRecord]) -> MetaData | None:
        """The metaData before the first of these records. Only one that changed before our base costs a look back."""
        tracker = self._table.tracker
        base = tracker.base_version
        if version >= base:
            return tracker.metadata_at(version)
        old = (action for record in records if record.version <= base for action in record.actions)
        if not any(isinstance(action, MetaData) for action in old):
            return tracker.metadata_at(base)
        if self._looked_up is None or self._looked_up[0] != version:
            self._looked_up = (version, (await self._table.past(version)).head.metadata)
        return self._looked_up[1]

    def forget(self) -> None:
        """Give the memory back; a commit that needs them again has them read again."""
        self._steps = []
