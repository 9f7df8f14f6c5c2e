"""Planning a scan: which files of a version may hold rows that a filter wants, in pages or as one Arrow stream.

Every page of a plan is of one version and asked at one time: a cursor names the version, the last file, what was asked
and when, so any replica goes on where another stopped. A plan never leaves out a file that could match.
"""

from __future__ import annotations

import dataclasses
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, Struct, UnsetType

from tarnlog.protocol.actions import Add
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.plans import ExplainedManifest, Explanation, Ledger, PlanRequest, PlanSince
from tarnlog.protocol.predicates import Predicate
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.add_arrow import arrow_batches, arrow_schema
from tarnlog_server.codec.add_json import files_json
from tarnlog_server.codec.arrow_stream import ArrowStream
from tarnlog_server.codec.manifest_filter import ManifestFilter
from tarnlog_server.codec.scan_rows import Pruned, adds, prune, rows_at
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.core.plan_since import RowsSince, plan_since
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.cold_plans import ColdPlans
from tarnlog_server.usecases.cursors import check_table, check_told, decode_cursor, encode_cursor
from tarnlog_server.usecases.explained import explained_files, explained_manifests
from tarnlog_server.usecases.filters import digest_of, filter_of, told_filter, understood
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.load_times import LoadTimes
from tarnlog_server.usecases.skips import active_cooldowns
from tarnlog_server.usecases.snapshots import OFF_LOOP_FROM, Snapshots

KEPT_PLANS, KEPT_SECONDS = 8, 60.0
"""Plans that are kept for their next page, and for how long: without them every page prunes again."""
T = TypeVar("T")
F = TypeVar("F")
_Key: TypeAlias = tuple[str, int, str, int]
"""Table, version, what was asked, and when."""


class PlanPage(Struct, frozen=True, rename="camel"):
    """Some of the files to read; `next` continues at the same version. `explain` only where it was asked for.

    `filter` is on the first page: the tree that was understood, for readers that apply it to the rows.
    """

    version: int
    files: tuple[Add, ...]
    next: str | None
    ledger: Ledger
    filter: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET


class EncodedPage(Struct, frozen=True, rename="camel"):
    """The same page with its files as JSON already."""

    version: int
    files: msgspec.Raw
    next: str | None
    ledger: Ledger
    filter: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET


class ArrowPlan(Struct, frozen=True):
    """All files to read, as the bytes of an Arrow stream; `chunks` can be iterated once."""

    version: int
    ledger: Ledger
    chunks: AsyncIterator[bytes]


class _Cursor(Struct, frozen=True):
    v: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    a: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    k: str
    t: str
    h: str
    n: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    c: tuple[int, int, int, int, int, int]
    d: int
    """How many files the pages so far went through."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scan:
    """A plan of which pages can be made."""

    snapshot: Snapshot
    predicate: Predicate | None
    rows: Sequence[int]
    """What is left, cooldowns considered; ascending."""
    cooling: dict[int, int]
    """Rows that are left alone, and until when."""
    ledger: Ledger
    manifests: tuple[ExplainedManifest, ...]
    now_ms: int
    tracker: SnapshotTracker | None
    """What is known of the versions before; None for a plan from storage."""

    def before(self, row: int, *, explained: bool) -> int:
        """How many files pages go through below a row: all live ones where each is explained."""
        if explained:
            return self.snapshot.files.live_before(row, self.snapshot.version)
        return bisect_left(self.rows, row)


class Plans:
    """The verbs of planning."""

    def __init__(
        self, snapshots: Snapshots, cold: ColdPlans, world: World, telemetry: Telemetry, loads: LoadTimes
    ) -> None:
        self.cold = cold
        self._snapshots = snapshots
        self._world = world
        self._telemetry = telemetry
        self._loads = loads
        self._kept: OrderedDict[_Key, tuple[float, _Scan]] = OrderedDict()

    async def page(self, name: TableName, asked: PlanRequest, timestamp: int | None) -> PlanPage:
        """One page. Costs pruning once for the whole plan, then the files of the page. Raises ProblemError.

        With `explain` a page goes through all files, dropped ones included, `limit` of them.
        """
        return PlanPage(*await self._paged(name, asked, timestamp, _actions))

    async def encoded(self, name: TableName, asked: PlanRequest, timestamp: int | None) -> EncodedPage:
        """The same page, several times quicker: no action is made of a packed file."""
        return EncodedPage(*await self._paged(name, asked, timestamp, files_json))

    async def _paged(
        self, name: TableName, asked: PlanRequest, timestamp: int | None, make: Callable[[Snapshot, Sequence[int]], F]
    ) -> tuple[int, F, str | None, Ledger, dict[str, Any] | UnsetType, Explanation | UnsetType]:
        digest = digest_of(asked.filter, asked.time_zone, asked.exclude_cooldowns, asked.explain)
        after = None if asked.cursor is None else _continued(asked.cursor, digest)
        scan = await self._scan(name, asked, timestamp, digest, after)
        snapshot = scan.snapshot
        start = 0
        if after is not None:
            start = snapshot.files.row_after(after.a, after.k)
            check_told(after.d, scan.before(start, explained=asked.explain))
        found = await self._off_loop(
            min(asked.limit, snapshot.num_files), lambda: _page(scan, asked, start, make, first=after is None)
        )
        key = (str(name), snapshot.version, digest, scan.now_ms)
        told = UNSET if after is not None else told_filter(scan.predicate)
        if found.last is None:
            self._kept.pop(key, None)
            return snapshot.version, found.files, None, scan.ledger, told, found.explain
        self._keep(key, scan)
        row = found.last
        where = _Cursor(
            snapshot.version,
            snapshot.files.added_at(row),
            path_key(snapshot.files.file(row).path),
            snapshot.table_id or "",
            digest,
            scan.now_ms,
            msgspec.structs.astuple(scan.ledger),
            scan.before(row + 1, explained=asked.explain),
        )
        return snapshot.version, found.files, encode_cursor(where), scan.ledger, told, found.explain

    async def arrow(self, name: TableName, asked: PlanRequest, timestamp: int | None) -> ArrowPlan:
        """All files of a plan as one stream, made while it is read; or what came since a version. ProblemError."""
        scan = await self._scan(name, asked, timestamp, "", None)
        snapshot, rows = scan.snapshot, scan.rows
        told = {"version": str(snapshot.version), "ledger": msgspec.json.encode(scan.ledger).decode()}
        since = _since(scan, asked)
        if since is not None:
            rows, older = since.rows, since.older
            about = PlanSince(
                version=older.version,
                timestamp=older.timestamp,
                num_files=older.num_files,
                total_bytes=older.total_bytes,
                came=len(rows),
                gone=since.gone,
            )
            told["since"] = msgspec.json.encode(about).decode()
        schema = await self._off_loop(len(rows), lambda: arrow_schema(snapshot, rows, asked.fields))
        tree = told_filter(scan.predicate)
        if tree is not UNSET:
            told["filter"] = msgspec.json.encode(tree).decode()
        schema = schema.with_metadata({**(schema.metadata or {}), **told})
        return ArrowPlan(snapshot.version, scan.ledger, self._chunks(snapshot, rows, schema))

    async def _chunks(self, snapshot: Snapshot, rows: Sequence[int], schema: pa.Schema) -> AsyncIterator[bytes]:
        stream = ArrowStream(schema)
        batches = arrow_batches(snapshot, rows, schema)

        def encoded() -> bytes | None:
            batch = next(batches, None)
            return None if batch is None else stream.chunk(batch)

        while (chunk := await self._off_loop(len(rows), encoded)) is not None:
            yield chunk
        yield stream.end()

    async def _scan(
        self, name: TableName, asked: PlanRequest, timestamp: int | None, digest: str, after: _Cursor | None
    ) -> _Scan:
        version = asked.version
        if after is not None:
            version, timestamp = after.v, None
            kept = self._kept.get((str(name), after.v, digest, after.n))
            same = kept is not None and (kept[1].snapshot.table_id or "") == after.t
            if kept is not None and same and await self.cold.is_table(name, after.t, asked.max_staleness_seconds):
                return kept[1]
        started = self._world.monotonic()
        now_ms = self._world.now_ms() if after is None else after.n
        where = (name, version, timestamp, asked.max_staleness_seconds)
        partial = None if asked.explain else await self.cold.scan(*where, filter_of(asked))
        predicate: Predicate | None
        tracker: SnapshotTracker | None = None
        if partial is not None:
            source, snapshot, predicate = "storage", partial.snapshot, partial.predicate
            total, manifests = partial.files_total, partial.manifests
        else:
            table, snapshot = await self._snapshots.at(*where)
            started = self._world.monotonic()
            predicate = await understood(filter_of(asked), snapshot.metadata, self._world)
            source, total, tracker = "memory", snapshot.num_files, table.live.tracker
            manifests = _manifests(table.live, snapshot, predicate)
        if after is not None:
            check_table(after.t, snapshot)
        pruned, cooling, rows = await self._off_loop(
            snapshot.num_files, lambda: _left(snapshot, predicate, now_ms if asked.exclude_cooldowns else None)
        )
        if after is None:
            ledger = _ledger(pruned, total, len(rows), manifests)
            if partial is not None and not partial.by_partitions:
                # Files that bounds left out were not counted on the way.
                ledger = msgspec.structs.replace(ledger, files_after_partition_pruning=total)
            spent = self._world.monotonic() - started
            self._telemetry.plan_ended(source, spent, ledger)
            self._loads.note(source, spent)
        else:
            ledger = Ledger(**dict(zip(Ledger.__struct_fields__, after.c, strict=True)))
        return _Scan(snapshot, predicate, rows, cooling, ledger, manifests, now_ms, tracker)

    def forget_old(self) -> None:
        """Let go of plans whose next page nobody asked for, and with them of whole tables in memory."""
        now = self._world.monotonic()
        for old in [key for key, (since, _) in self._kept.items() if now - since > KEPT_SECONDS]:
            del self._kept[old]

    def _keep(self, key: _Key, scan: _Scan) -> None:
        self._kept[key] = (self._world.monotonic(), scan)
        self._kept.move_to_end(key)
        self.forget_old()
        while len(self._kept) > KEPT_PLANS:
            self._kept.popitem(last=False)

    async def _off_loop(self, files: int, work: Callable[[], T]) -> T:
        return work() if files < OFF_LOOP_FROM else await self._world.run_blocking(work)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Found(Generic[F]):
    files: F
    explain: Explanation | UnsetType
    last: int | None
    """The row that the next page goes on after; None when there is none."""


def _since(scan: _Scan, asked: PlanRequest) -> RowsSince | None:
    """What is told instead of the whole plan. What is left alone changes with time, and not by versions alone."""
    if asked.since is None or asked.exclude_cooldowns or scan.tracker is None:
        return None
    return plan_since(scan.tracker, scan.snapshot, scan.rows, asked.since)


def _actions(snapshot: Snapshot, rows: Sequence[int]) -> tuple[Add, ...]:
    return tuple(adds(snapshot, rows))


def _page(
    scan: _Scan, asked: PlanRequest, start: int, make: Callable[[Snapshot, Sequence[int]], F], *, first: bool
) -> _Found[F]:
    if asked.explain:
        return _explained_page(scan, asked.limit, start, make, first=first)
    at = bisect_left(scan.rows, start)
    rows = scan.rows[at : at + asked.limit]
    more = at + len(rows) < len(scan.rows)
    return _Found(make(scan.snapshot, rows), UNSET, rows[-1] if more else None)


def _explained_page(
    scan: _Scan, limit: int, start: int, make: Callable[[Snapshot, Sequence[int]], F], *, first: bool
) -> _Found[F]:
    lines = explained_files(scan.snapshot, scan.predicate, scan.cooling, start, limit + 1)
    shown = lines[:limit]
    files = make(scan.snapshot, [row for row, line in shown if line.kept])
    told = Explanation(
        files=tuple(line for _, line in shown),
        manifests=scan.manifests if first else (),
    )
    return _Found(files, told, shown[-1][0] if len(lines) > limit else None)


def _left(
    snapshot: Snapshot, predicate: Predicate | None, now_ms: int | None
) -> tuple[Pruned, dict[int, int], Sequence[int]]:
    """What a filter leaves, which of that is left alone at a time (None: nothing), and the rest."""
    pruned = prune(snapshot, predicate)
    cooling = {} if now_ms is None else _cooling(snapshot, now_ms)
    if not cooling:
        return pruned, cooling, pruned.rows
    return pruned, cooling, array("q", (row for row in pruned.rows if row not in cooling))


def _cooling(snapshot: Snapshot, now_ms: int) -> dict[int, int]:
    """The rows that are left alone at a time, and until when."""
    until = active_cooldowns(snapshot, now_ms)
    by_key = {path_key(path): time for path, time in until.items()}
    return {row: by_key[path_key(snapshot.files.file(row).path)] for row in rows_at(snapshot, until)}


def _manifests(live: LiveTable, snapshot: Snapshot, predicate: Predicate | None) -> tuple[ExplainedManifest, ...]:
    """What the newest state below the snapshot keeps of its manifests, asked as a plan from storage asks them."""
    state: StateManifest | None = live.base.manifest if live.base is not None else None
    if state is None or state.facts.version > snapshot.version:
        return ()
    asking = None if predicate is None else ManifestFilter(predicate, snapshot.metadata, snapshot.truncation)
    return explained_manifests(state, asking)


def _ledger(pruned: Pruned, total: int, left: int, manifests: Sequence[ExplainedManifest]) -> Ledger:
    return Ledger(
        manifests_total=len(manifests),
        manifests_pruned=sum(not one.kept for one in manifests),
        files_total=total,
        files_after_partition_pruning=pruned.after_partitions,
        files_after_data_skipping=pruned.after_skipping,
        files_after_cooldowns=left,
    )


def _continued(text: str, digest: str) -> _Cursor:
    after = decode_cursor(text, _Cursor)
    if after.h != digest:
        detail = "the cursor is of another plan; send the filter and the options that its first page had"
        raise ProblemError("request-invalid", detail, errors=[{"pointer": "/cursor", "message": detail}])
    return after
