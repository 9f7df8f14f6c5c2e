"""What happened to a table: its commits in order, one version whole, and the changes between two versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tarnlog.protocol.actions import Action, Add, Remove, SubCommit, to_wire
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.schema_dedup import restore
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.usecases.cursors import check_table, decode_cursor, encode_cursor
from tarnlog_server.usecases.indexed_reads import IndexedReads, VersionCommits
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.records import Records
from tarnlog_server.usecases.table_log import PARALLEL_READS

READ_AHEAD = 64
MAX_PAGE_ACTIONS = 50_000
"""A page of changes ends early once it holds this many: a few versions can be larger than memory."""
MAX_PAGE_BYTES = 32 * 2**20
"""A page of the history ends early once the parameters and metrics of its commits have this many bytes."""
POLL_SECONDS = 5.0


_ENCODE = msgspec.json.Encoder().encode


class CommitView(Struct, frozen=True, rename="camel"):
    """One commit in the history. A version written by other software is one commit without an id.

    `committedBy` is the id of the API key that sent it, where keys are in use.
    """

    version: int
    seq: int
    commit_id: str | None
    timestamp: int
    operation: str
    operation_parameters: dict[str, Any]
    operation_metrics: dict[str, Any]
    is_blind_append: bool
    committed_by: str | None = None


class HistoryPage(Struct, frozen=True):
    """Some commits; `next` continues."""

    commits: tuple[CommitView, ...]
    next: str | None


class VersionView(Struct, frozen=True, rename="camel"):
    """One version, whole. `actionCounts`: how many of the actions are each commit's, in the order of both."""

    version: int
    timestamp: int
    commits: tuple[CommitView, ...]
    action_counts: tuple[int, ...]
    actions: tuple[dict[str, Any], ...]


class ChangeView(Struct, frozen=True):
    """What one version changed about the files."""

    version: int
    timestamp: int
    commits: tuple[CommitView, ...]
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]


class ChangesPage(Struct, frozen=True):
    """Gap-free changes; `next` continues."""

    changes: tuple[ChangeView, ...]
    next: str | None


class _HistoryCursor(Struct, frozen=True):
    v: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    s: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    e: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    o: Literal["asc", "desc"]
    t: str


class _ChangesCursor(Struct, frozen=True):
    v: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    e: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    t: str


class History:
    """The verbs of looking back, and of following along."""

    def __init__(self, tables: OpenTables, records: Records, indexed: IndexedReads | None = None) -> None:
        self._tables = tables
        self._records = records
        self._indexed = indexed or IndexedReads()

    async def commits(
        self,
        name: TableName,
        first: int | None,
        last: int | None,
        order: Literal["asc", "desc"],
        limit: int,
        cursor: str | None,
        max_staleness: float | None = None,
    ) -> HistoryPage:
        """Commits of the versions first..last (inclusive), newest first unless `asc`. Costs the page's versions."""
        table = await self._tables.get(name, max_staleness)
        table_id = table.live.head.table_id or ""
        low, high = await self._bounds(table.live, first, last)
        skip = 0
        start = high if order == "desc" else low
        if cursor is not None:
            at = decode_cursor(cursor, _HistoryCursor)
            check_table(at.t, table.live.head)
            order, start, skip = at.o, at.v, at.s
            if max(at.v, at.e) > table.live.head.version:
                await table.live.refresh(0)
            await self._bounds(table.live, min(at.v, at.e), None)
            newest = table.live.head.version
            low, high = at.e, min(at.e, newest)
            start = min(start, newest) if order == "desc" else start
        end = low if order == "desc" else high
        versions = range(start, end - 1, -1) if order == "desc" else range(start, end + 1)
        found: list[CommitView] = []
        size = 0
        ahead = min(READ_AHEAD, limit + 1)
        for offset in range(0, len(versions), ahead):
            for version, views in await self._views(table.live, versions[offset : offset + ahead]):
                if order == "desc":
                    views = views[::-1]
                for index, view in enumerate(views):
                    if skip:
                        skip -= 1
                        continue
                    if len(found) == limit or size > MAX_PAGE_BYTES:
                        following = _HistoryCursor(version, index, max(end, 0), order, table_id)
                        return HistoryPage(tuple(found), encode_cursor(following))
                    found.append(view)
                    size += _free_form_bytes((view,))
        return HistoryPage(tuple(found), None)

    async def _views(self, live: LiveTable, versions: range) -> list[tuple[int, tuple[CommitView, ...]]]:
        """The commits of some versions, in their order. Memory first, then the index, then storage."""
        if len(versions) > 1 and any(live.tracker.step(version) is None for version in (versions[0], versions[-1])):
            found = await self._indexed.history(live, min(versions), max(versions))
            if found is not None:
                ordered = found if versions.step > 0 else found[::-1]
                return [(one.version, indexed_views(one)) for one in ordered]
        records = await self._records.read_many(live, versions)
        return [(record.version, commit_views(record)) for record in records]

    async def version(self, name: TableName, version: int) -> VersionView:
        """One version with all its actions. ProblemError `version-not-found`, `version-expired`."""
        table = await self._tables.get(name)
        await self._records.check(table.live, version)
        await self._bounds(table.live, version, None)
        record = await self._records.read(table.live, version)
        return VersionView(
            record.version,
            record.timestamp,
            commit_views(record),
            tuple(len(actions) for _, actions in record.groups()),
            tuple(to_wire(action) for action in record.actions),
        )

    async def changes(
        self, name: TableName, first: int | None, last: int | None, limit: int, cursor: str | None
    ) -> ChangesPage:
        """File changes of the versions first..last, both included, without a gap, oldest first."""
        table = await self._tables.get(name)
        if cursor is not None:
            at = decode_cursor(cursor, _ChangesCursor)
            check_table(at.t, table.live.head)
            first, last = at.v, at.e
        if last is not None and last > table.live.head.version:
            await table.live.refresh(0)
        low, high = await self._bounds(table.live, first, last)
        versions = range(low, min(high, low + limit - 1) + 1)
        records: list[VersionRecord] = []
        actions = size = 0
        for start in range(0, len(versions), PARALLEL_READS):
            for record in await self._records.read_many(table.live, versions[start : start + PARALLEL_READS]):
                if records and (actions + len(record.actions) > MAX_PAGE_ACTIONS or size > MAX_PAGE_BYTES):
                    break
                actions += len(record.actions)
                size += _free_form_bytes(record.sub_commits)
                records.append(record)
            if len(records) < min(start + PARALLEL_READS, len(versions)):
                break
        stop = low + len(records) - 1
        table_id = table.live.head.table_id or ""
        following = encode_cursor(_ChangesCursor(stop + 1, high, table_id)) if stop < high else None
        registry = _registry(table.live)
        return ChangesPage(tuple(change_view(record, registry) for record in records), following)

    async def follow(self, name: TableName, after: int | None) -> AsyncIterator[ChangeView | None]:
        """Every version above `after` (the head, when None) as it appears in the applied log; None when idle.

        Starts with an error when `after` is below what is kept or above the head. Ends when the table is dropped.
        """
        table = await self._tables.get(name)
        live = table.live
        oldest = await self._oldest(live)
        seen = live.head.version if after is None else after
        if seen < oldest - 1:
            detail = f"versions up to {oldest - 1} are no longer kept: read a snapshot, then follow from its version"
            raise ProblemError("version-expired", detail, oldestVersion=oldest)
        if seen > live.head.version and seen > (head := await live.refresh(0)).version:
            detail = f"the newest version is {head.version}, so {seen} was seen in another table: read a snapshot first"
            raise ProblemError("version-not-found", detail, newestVersion=head.version)
        return self._follow(live, seen)

    async def _follow(self, live: LiveTable, seen: int) -> AsyncIterator[ChangeView | None]:
        while True:
            while seen < live.head.version:
                if seen + 1 < live.first_file:
                    detail = f"versions up to {live.first_file - 1} are only in other writers' states: read a snapshot"
                    raise ProblemError("version-expired", detail, oldestVersion=live.first_file)
                for record in await self._records.read_many(
                    live, range(seen + 1, min(seen + READ_AHEAD, live.head.version) + 1)
                ):
                    seen = record.version
                    yield change_view(record, _registry(live))
            if live.head.dropped:
                return
            await live.wait_for_change(seen, POLL_SECONDS)
            if seen >= live.head.version:
                await live.refresh(POLL_SECONDS)
                yield None

    async def _oldest(self, live: LiveTable) -> int:
        """The oldest version that tells what it did: in other writers' states alone, only the result is told."""
        return max(await self._records.oldest(live), live.first_file)

    async def _bounds(self, live: LiveTable, first: int | None, last: int | None) -> tuple[int, int]:
        oldest = await self._oldest(live)
        if first is not None and first < oldest:
            detail = f"versions below {oldest} are no longer kept; ask from {oldest} on"
            raise ProblemError("version-expired", detail, oldestVersion=oldest)
        low = oldest if first is None else first
        high = live.head.version if last is None else min(last, live.head.version)
        return low, high


def _free_form_bytes(commits: Iterable[CommitView | SubCommit]) -> int:
    return sum(
        len(_ENCODE((commit.operation_parameters, commit.operation_metrics)))
        for commit in commits
        if commit.operation_parameters or commit.operation_metrics
    )


def commit_views(record: VersionRecord) -> tuple[CommitView, ...]:
    """The commits of a version, in seq order."""
    if not record.sub_commits:
        return (CommitView(record.version, 0, None, record.timestamp, "UNKNOWN", {}, {}, is_blind_append=False),)
    return tuple(_commit_view(record, sub) for sub in record.sub_commits)


def indexed_views(found: VersionCommits) -> tuple[CommitView, ...]:
    """The commits of a version as the index tells them."""
    return tuple(
        CommitView(
            version=found.version,
            seq=commit.seq,
            commit_id=commit.commit_id,
            timestamp=found.timestamp,
            operation=commit.operation,
            operation_parameters=commit.parameters,
            operation_metrics=commit.metrics,
            is_blind_append=commit.blind,
            committed_by=commit.by,
        )
        for commit in found.commits
    )


def change_view(record: VersionRecord, registry: Mapping[str, str]) -> ChangeView:
    """The file changes of a version, document mappings inline again."""
    return ChangeView(
        record.version,
        record.timestamp,
        commit_views(record),
        tuple(restore(add, registry) for add in _of(Add, record.actions)),
        tuple(_of(Remove, record.actions)),
    )


def _registry(live: LiveTable) -> Mapping[str, str]:
    """The document mappings of a table. Entries are only ever added, so the newest registry resolves every version."""
    return live.head.metadata.configuration if live.head.metadata is not None else {}


def _commit_view(record: VersionRecord, sub: SubCommit) -> CommitView:
    return CommitView(
        version=record.version,
        seq=sub.seq,
        commit_id=sub.commit_id or None,
        timestamp=record.timestamp,
        operation=sub.operation,
        operation_parameters=sub.operation_parameters,
        operation_metrics=sub.operation_metrics,
        is_blind_append=sub.is_blind_append is True,
        committed_by=sub.committed_by,
    )


def _of(kind: type[Any], actions: tuple[Action, ...]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]
