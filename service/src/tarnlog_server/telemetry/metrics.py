"""The service's facts as Prometheus metrics, in a registry of their own.

These run inside every commit: what each commit counts is a plain number (`tallies`), children of labels are made once
and kept, and what can be computed at scrape time (queue depths, open tables) is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import metadata

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric

from tarnlog.protocol.plans import Ledger
from tarnlog_server.ports.telemetry import IndexStatus, Telemetry
from tarnlog_server.telemetry.tallies import Spread, Tally

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""For work whose size is the table's, not the commit's."""
COMMITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SIZES = tuple(1024 * 4**step for step in range(12))
"""From a kibibyte to four gibibytes."""
SHOWN_QUEUES = 50
"""Tables whose queue is shown by name: the longest. A label for every table would grow without bound."""


class PrometheusTelemetry(Telemetry):
    """Counts everything the service tells."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody reads
        self.registry = registry = CollectorRegistry()
        self._commits = Tally("tarnlog_commits", "Commits by how they were answered", ["outcome"])
        self._seconds = Spread("tarnlog_commit_seconds", "From a commit's arrival to its answer", SECONDS)
        self._phases = Histogram(
            "tarnlog_commit_phase_seconds", "Phases of writing a version", ["phase"], buckets=SECONDS, registry=registry
        )
        self._conflicts = Counter("tarnlog_conflicts", "Commits refused, by rule", ["rule"], registry=registry)
        self._batches = Histogram("tarnlog_batch_commits", "Commits in a version", buckets=COMMITS, registry=registry)
        self._requests = Counter(
            "tarnlog_storage_requests", "Storage requests by their outcome", ["op", "code"], registry=registry
        )
        self._storage_seconds = Histogram(
            "tarnlog_storage_seconds", "How long storage took", ["op"], buckets=SECONDS, registry=registry
        )
        self._storage_bytes = Counter("tarnlog_storage_bytes", "Bytes read or written", ["op"], registry=registry)
        self._lookups = Tally("tarnlog_cache_lookups", "Lookups in caches", ["cache", "result"])
        for often in (self._commits, self._seconds, self._lookups):
            registry.register(often)
        self._lost = Counter("tarnlog_slots_lost", "Versions that another writer took first", registry=registry)
        self._hedged = Counter("tarnlog_puts_hedged", "Second PUTs sent because the first was slow", registry=registry)
        self._opened = Counter(
            "tarnlog_tables_opened", "Tables opened, by what they were opened from", ["source"], registry=registry
        )
        self._open_seconds = Histogram(
            "tarnlog_table_open_seconds",
            "How long opening a table took",
            ["source"],
            buckets=LONG_SECONDS,
            registry=registry,
        )
        self._evicted = Counter(
            "tarnlog_tables_evicted", "Open tables that were closed to make room for others", registry=registry
        )
        self._held_bytes = Gauge(
            "tarnlog_tables_memory_bytes", "Memory that open tables take, about", registry=registry
        )
        self._states = Counter(
            "tarnlog_states_written", "States written, and why", ["format", "reason"], registry=registry
        )
        self._state_seconds = Histogram(
            "tarnlog_state_write_seconds",
            "How long writing a state took",
            ["format"],
            buckets=LONG_SECONDS,
            registry=registry,
        )
        self._state_bytes = Counter("tarnlog_state_bytes", "Bytes sent for states", ["format"], registry=registry)
        self._state_raw_bytes = Counter(
            "tarnlog_state_uncompressed_bytes",
            "What the bytes sent for states would be without compression",
            ["format"],
            registry=registry,
        )
        self._state_sizes = Histogram(
            "tarnlog_state_size_bytes", "Bytes sent for one state", ["format"], buckets=SIZES, registry=registry
        )
        self._plan_seconds = Histogram(
            "tarnlog_plan_seconds", "How long planning a scan took", ["source"], buckets=SECONDS, registry=registry
        )
        self._plan_files = Counter(
            "tarnlog_planned_files", "Files of planned scans by what became of them", ["fate"], registry=registry
        )
        self._broken = Counter(
            "tarnlog_states_broken", "States that were not believed and passed over", ["format"], registry=registry
        )
        self._failed = Counter("tarnlog_states_failed", "States that were not written", ["format"], registry=registry)
        self._foreign = Counter(
            "tarnlog_foreign_writers", "Traces of other writers that stopped commits to a table", registry=registry
        )
        self._cleaned = Counter(
            "tarnlog_log_objects_deleted",
            "Versions, checkpoints, states and manifests that cleanups deleted",
            ["kind"],
            registry=registry,
        )
        self._cleanups = Counter(
            "tarnlog_cleanups", "Cleanups of a log by how they ended", ["status"], registry=registry
        )
        self._cleanup_seconds = Histogram(
            "tarnlog_cleanup_seconds", "How long a cleanup took", buckets=LONG_SECONDS, registry=registry
        )
        self._vacuums = Counter("tarnlog_vacuums", "Runs of vacuum", ["outcome"], registry=registry)
        self._vacuum_seconds = Histogram(
            "tarnlog_vacuum_seconds", "How long a vacuum took", buckets=LONG_SECONDS, registry=registry
        )
        self._vacuum_files = Counter(
            "tarnlog_vacuum_files_deleted", "Data files that vacuum deleted", registry=registry
        )
        self._vacuum_bytes = Counter("tarnlog_vacuum_bytes_deleted", "Their bytes", registry=registry)
        self._forwarded = Counter(
            "tarnlog_commits_forwarded",
            "Commits sent on to the replica that holds their table",
            ["outcome"],
            registry=registry,
        )
        self._news = Counter(
            "tarnlog_change_notifications",
            "New versions told to and heard from other replicas",
            ["direction"],
            registry=registry,
        )
        Info("tarnlog_build", "What runs here", registry=registry).info({"version": metadata.version("tarnlog-server")})
        self._index_lookups = Counter(
            "tarnlog_index_lookups",
            "Questions to the index: a miss was answered from storage",
            ["kind", "result"],
            registry=registry,
        )
        self._index_versions = Counter(
            "tarnlog_index_versions_written", "Versions put into the index", registry=registry
        )
        self._index_seconds = Histogram(
            "tarnlog_index_write_seconds",
            "How long putting a batch of versions took",
            buckets=SECONDS,
            registry=registry,
        )
        self._index_errors = Counter(
            "tarnlog_index_errors", "Calls of the index that failed or took too long", ["kind"], registry=registry
        )
        self._index_wrong = Counter(
            "tarnlog_index_wrong", "Tables whose rows were not as they were put, and made again", registry=registry
        )
        self._index: Callable[[], IndexStatus] | None = None
        self._depths: dict[str, int] = {}
        self._open_tables: Callable[[], int] = lambda: 0
        self._leases: Callable[[], int] = lambda: 0
        registry.register(_AtScrape(self._gauges))
        self._bound: dict[tuple[str, ...], tuple[Counter, Histogram, Counter]] = {}
        self._bound_phases: dict[str, Histogram] = {}

    def watch_open_tables(self, count: Callable[[], int]) -> None:
        """Where to ask how many tables are open."""
        self._open_tables = count

    def watch_leases(self, count: Callable[[], int]) -> None:
        """Where to ask how many leases this replica holds."""
        self._leases = count

    def watch_index(self, status: Callable[[], IndexStatus]) -> None:
        """Where to ask how the index does."""
        self._index = status

    def index_lookup(self, kind: str, hit: bool) -> None:
        self._index_lookups.labels(kind, "hit" if hit else "miss").inc()

    def index_written(self, versions: int, seconds: float) -> None:
        self._index_versions.inc(versions)
        self._index_seconds.observe(seconds)

    def index_failed(self, kind: str) -> None:
        self._index_errors.labels(kind).inc()

    def index_wrong(self) -> None:
        self._index_wrong.inc()

    def exposition(self, sees: Callable[[str], bool] | None = None) -> bytes:
        """Everything in the text format; without the series of tables for which `sees` is false."""
        return generate_latest(self.registry if sees is None else _Restricted(self.registry, sees))

    def commit_answered(self, table: str, outcome: str, seconds: float) -> None:
        self._commits.counts[(outcome,)] += 1
        self._seconds.observe(seconds)

    def conflict(self, table: str, rule: str) -> None:
        self._conflicts.labels(rule).inc()

    def batch_written(self, commits: int, actions: int, size: int) -> None:
        self._batches.observe(commits)

    def phase(self, name: str, seconds: float) -> None:
        histogram = self._bound_phases.get(name)
        if histogram is None:
            histogram = self._bound_phases[name] = self._phases.labels(name)
        histogram.observe(seconds)

    def slot_lost(self) -> None:
        self._lost.inc()

    def put_hedged(self) -> None:
        self._hedged.inc()

    def queue_depth(self, table: str, depth: int) -> None:
        if depth:
            self._depths[table] = depth
        else:
            self._depths.pop(table, None)

    def cache_lookup(self, cache: str, hit: bool) -> None:
        self._lookups.counts[cache, "hit" if hit else "miss"] += 1

    def table_opened(self, source: str, seconds: float) -> None:
        self._opened.labels(source).inc()
        self._open_seconds.labels(source).observe(seconds)

    def table_evicted(self) -> None:
        self._evicted.inc()

    def tables_held(self, count: int, size: int) -> None:
        self._held_bytes.set(size)

    def plan_ended(self, source: str, seconds: float, ledger: Ledger) -> None:
        self._plan_seconds.labels(source).observe(seconds)
        steps = (
            ("partition", ledger.files_total - ledger.files_after_partition_pruning),
            ("statistics", ledger.files_after_partition_pruning - ledger.files_after_data_skipping),
            ("cooldown", ledger.files_after_data_skipping - ledger.files_after_cooldowns),
            ("kept", ledger.files_after_cooldowns),
        )
        for fate, files in steps:
            self._plan_files.labels(fate).inc(max(0, files))

    def state_broken(self, kind: str) -> None:
        self._broken.labels(kind).inc()

    def foreign_writer(self) -> None:
        self._foreign.inc()

    def state_written(self, kind: str, reason: str, seconds: float, size: int, files: int, raw_size: int) -> None:
        self._states.labels(kind, reason).inc()
        self._state_seconds.labels(kind).observe(seconds)
        self._state_bytes.labels(kind).inc(size)
        self._state_raw_bytes.labels(kind).inc(raw_size)
        self._state_sizes.labels(kind).observe(size)

    def commit_forwarded(self, outcome: str) -> None:
        self._forwarded.labels(outcome).inc()

    def news(self, direction: str, count: int) -> None:
        self._news.labels(direction).inc(count)

    def cleaned(self, kind: str, count: int) -> None:
        self._cleaned.labels(kind).inc(count)

    def cleanup_ended(self, status: str, seconds: float) -> None:
        self._cleanups.labels(status).inc()
        self._cleanup_seconds.observe(seconds)

    def state_failed(self, kind: str) -> None:
        self._failed.labels(kind).inc()

    def vacuum_ended(self, outcome: str, seconds: float, files: int, size: int) -> None:
        self._vacuums.labels(outcome).inc()
        self._vacuum_seconds.observe(seconds)
        self._vacuum_files.inc(files)
        self._vacuum_bytes.inc(size)

    def storage(self, op: str, code: str, seconds: float, size: int) -> None:
        """The sink of a metered store."""
        bound = self._bound.get((op, code))
        if bound is None:
            bound = (
                self._requests.labels(op, code),
                self._storage_seconds.labels(op),
                self._storage_bytes.labels(op),
            )
            self._bound[(op, code)] = bound
        bound[0].inc()
        bound[1].observe(seconds)
        if size:
            bound[2].inc(size)

    def _gauges(self) -> Iterable[Metric]:
        longest = sorted(self._depths.items(), key=lambda item: (-item[1], item[0]))
        depths = GaugeMetricFamily("tarnlog_queue_depth", "Commits that wait, in the longest queues", labels=["table"])
        for table, depth in longest[:SHOWN_QUEUES]:
            depths.add_metric([table], depth)
        yield depths
        waiting = sum(self._depths.values())
        yield GaugeMetricFamily("tarnlog_commits_waiting", "Commits that wait, in all queues", value=waiting)
        index = None if self._index is None else self._index()
        ready = index is not None and index.state == "ready"
        yield GaugeMetricFamily("tarnlog_index_ready", "1 while the index can be used, else 0", value=int(ready))
        waiting_tables, behind = (0, 0) if index is None else (index.tables, index.versions)
        yield GaugeMetricFamily(
            "tarnlog_index_waiting_tables", "Tables with versions that the index does not have", value=waiting_tables
        )
        yield GaugeMetricFamily("tarnlog_index_lag_versions", "Versions that the index does not have", value=behind)
        yield GaugeMetricFamily("tarnlog_open_tables", "Tables held in memory", value=self._open_tables())
        yield GaugeMetricFamily("tarnlog_leases_held", "Tables whose commits come together here", value=self._leases())


class _AtScrape:
    def __init__(self, gauges: Callable[[], Iterable[Metric]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        return self._gauges()


class _Restricted(CollectorRegistry):
    """A registry without the samples of some tables."""

    def __init__(self, everything: CollectorRegistry, sees: Callable[[str], bool]) -> None:
        super().__init__()
        self._everything = everything
        self._sees = sees

    def collect(self) -> Iterable[Metric]:
        for metric in self._everything.collect():
            metric.samples = [
                one for one in metric.samples if "table" not in one.labels or self._sees(one.labels["table"])
            ]
            yield metric
