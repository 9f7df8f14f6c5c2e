"""Everything one replica can do, put together: the HTTP API, the simulation and the tests all drive this."""

from __future__ import annotations

from collections.abc import Mapping

from tarnlog_server.ports.columns import ColumnReader
from tarnlog_server.ports.index import Index
from tarnlog_server.ports.segments import Segments
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.caches import Caches, CacheStats
from tarnlog_server.usecases.catalog import Catalog
from tarnlog_server.usecases.checkpoints import Checkpoints
from tarnlog_server.usecases.cleanup import Cleanup
from tarnlog_server.usecases.cold_plans import ColdPlans
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.erase import Erase
from tarnlog_server.usecases.history import History
from tarnlog_server.usecases.index_guard import GuardSettings, IndexGuard
from tarnlog_server.usecases.indexed_reads import IndexedReads
from tarnlog_server.usecases.ingest import Ingest
from tarnlog_server.usecases.lanes import Lanes, LaneSizes
from tarnlog_server.usecases.open_tables import OpenTables
from tarnlog_server.usecases.operations import WAIT_SECONDS, Operations
from tarnlog_server.usecases.partition_sizes import PartitionSizes
from tarnlog_server.usecases.plans import Plans
from tarnlog_server.usecases.rebuild import Rebuild
from tarnlog_server.usecases.records import Records
from tarnlog_server.usecases.register import Register
from tarnlog_server.usecases.repair import Repair
from tarnlog_server.usecases.roots import Roots
from tarnlog_server.usecases.segment_cache import SegmentCache
from tarnlog_server.usecases.sessions import Sessions
from tarnlog_server.usecases.skips import Skips
from tarnlog_server.usecases.snapshots import Snapshots
from tarnlog_server.usecases.table_memory import GIB, TableMemory
from tarnlog_server.usecases.tables import Tables
from tarnlog_server.usecases.vacuum import Vacuum
from tarnlog_server.usecases.verify import Verify


class Coordinator:
    """One replica. It shares nothing with another but the storage."""

    def __init__(
        self,
        roots: Roots,
        world: World,
        telemetry: Telemetry | None = None,
        settings: CommitterSettings | None = None,
        *,
        cache_ttl_seconds: float = 300,
        cache_max_versions: int = 1000,
        max_open_tables: int = 1000,
        memory_bytes: int = 2 * GIB,
        columns: ColumnReader | None = None,
        operation_wait_seconds: float = WAIT_SECONDS,
        lanes: LaneSizes | None = None,
        index: Index | None = None,
        index_guard: GuardSettings | None = None,
        segments: Segments | None = None,
        segment_bytes: int = 1024**3,
        table_defaults: Mapping[str, str] | None = None,
    ) -> None:
        telemetry = telemetry or Telemetry()
        self.roots = roots
        self.world = world
        self.telemetry = telemetry
        self.operations = Operations(world, wait_seconds=operation_wait_seconds)
        self.caches = Caches(world, telemetry, ttl_seconds=cache_ttl_seconds, max_versions=cache_max_versions)
        self.catalog = Catalog(roots.warehouse.store, world)
        self.ingest = (
            None if index is None else Ingest(IndexGuard(index, world, telemetry, index_guard), world, telemetry)
        )
        """Writes the index behind commits; None without one. Somebody has to run it."""
        memory = TableMemory(telemetry, max_tables=max_open_tables, max_bytes=memory_bytes)
        self.segments: SegmentCache | None = None
        """Decoded manifests in the index; somebody has to run it, too."""
        if self.ingest is not None and segments is not None and columns is not None and segment_bytes:
            self.segments = SegmentCache(
                segments, self.ingest.guard, columns, world, telemetry, most_bytes=segment_bytes, loads=memory.loads
            )
        self.open_tables = OpenTables(
            self.catalog,
            roots,
            world,
            telemetry,
            settings or CommitterSettings(),
            memory=memory,
            columns=columns,
            lanes=Lanes(lanes),
            changed=None if self.ingest is None else self.ingest.changed,
            segments=self.segments,
            defaults=table_defaults,
        )
        indexed = IndexedReads(self.ingest, telemetry)
        records = Records(self.caches, indexed)
        self.commits = Commits(self.open_tables, indexed)
        self.snapshots = Snapshots(self.open_tables, records, self.caches)
        self.plans = Plans(self.snapshots, ColdPlans(self.open_tables, records, world), world, telemetry, memory.loads)
        self.history = History(self.open_tables, records, indexed)
        self.partitions = PartitionSizes(self.open_tables)
        self.skips = Skips(self.open_tables, self.commits)
        self.sessions = Sessions(self.open_tables)
        self.vacuum = Vacuum(self.open_tables)
        self.tables = Tables(self.open_tables, self.commits, self.snapshots)
        self.checkpoints = Checkpoints(self.open_tables, self.commits)
        self.cleanup = Cleanup(self.open_tables, self.checkpoints, self.caches)
        self.verifying = Verify(self.open_tables)
        self.repairing = Repair(self.open_tables, self.verifying, self.checkpoints)
        self.rebuilding = Rebuild(self.open_tables, self.ingest)
        self.erasing = Erase(
            self.open_tables,
            self.commits,
            self.checkpoints,
            self.cleanup,
            self.caches,
            self.rebuilding,
            self.segments,
        )
        self.registering = Register(self.open_tables, self.commits, self.tables, self.checkpoints)

    def cache_stats(self) -> dict[str, CacheStats]:
        """How every cache does, open tables among them."""
        return {**self.caches.stats(), "tables": self.open_tables.memory.stats(self.open_tables.opened())}

    async def close(self, grace_seconds: float = 10.0) -> None:
        """Answer everyone who waits, then close the stores."""
        await self.operations.close()
        await self.open_tables.close(grace_seconds)
        if self.ingest is not None:
            await self.ingest.guard.index.close()
        await self.roots.close()
