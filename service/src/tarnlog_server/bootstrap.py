"""The only place that builds adapters: from settings to a running service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from fastapi import FastAPI

from tarnlog_server.adapters.datafusion_columns import column_reader
from tarnlog_server.adapters.delayed_store import DelayedStore
from tarnlog_server.adapters.metered_store import MeteredStore
from tarnlog_server.adapters.open_index import index_of, open_database, segments_of
from tarnlog_server.adapters.open_store import local_folder, open_store
from tarnlog_server.adapters.retrying_reads_store import RetryingReadsStore
from tarnlog_server.adapters.sql_engine import Database, PoolSettings
from tarnlog_server.adapters.sql_leases import SqlLeases
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import ApiSettings, Application, create_app
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.api.bodies import BodyLimits
from tarnlog_server.api.body_budget import BodyBudget
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.jobs.keep_packed import keep_packed
from tarnlog_server.jobs.keep_states import keep_states
from tarnlog_server.jobs.load_ahead import load_ahead
from tarnlog_server.jobs.store_checks import attempted, check_stores, keep_checking
from tarnlog_server.jobs.supervised import cancelled, supervised
from tarnlog_server.jobs.watch_index_file import watch_index_file
from tarnlog_server.jobs.write_checks import WRITES, keep_write_checking
from tarnlog_server.ports.leases import Owner
from tarnlog_server.ports.object_store import ObjectStore, StoreRefused
from tarnlog_server.ports.world import World
from tarnlog_server.settings import BadSettings, Settings
from tarnlog_server.telemetry.recording import RecordingTelemetry
from tarnlog_server.usecases.change_news import ChangeNews
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.index_guard import GuardSettings
from tarnlog_server.usecases.lanes import LaneSizes
from tarnlog_server.usecases.ownership import Ownership
from tarnlog_server.usecases.probe import ProbeReport
from tarnlog_server.usecases.replicas import Replicas
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.steady_clock import SteadyClock

INDEX_START_SECONDS = 1.0
"""How long a start waits for the index: a plan that comes before it is there decodes what the index has decoded."""


class Service:
    """One replica with everything around it. `app` is what an HTTP server runs."""

    def __init__(self, settings: Settings, world: World | None = None) -> None:
        self.settings = settings
        self.world = SteadyClock(world or SystemWorld())
        self.telemetry = RecordingTelemetry(self.world.monotonic)
        self.readiness = Readiness(self.world)
        self._write_refused = asyncio.Event()
        self.database = self._database()
        self.coordinator = self._coordinator()
        if self.coordinator.ingest is not None:
            self.telemetry.watch_index(self.coordinator.ingest.status)
        self.replicas = self._replicas()
        self.telemetry.watch_leases(self.replicas.leases)
        self.telemetry.watch_open_tables(lambda: len(self.coordinator.open_tables.opened()))
        self._background: list[asyncio.Task[None]] = []
        self.app = self._app()

    async def stop_serving(self) -> None:
        """Answer everyone who waits and end the streams; nothing new is taken on. The first half of a shutdown."""
        self.readiness.closed.set()
        await cancelled(*self._background)
        await self.replicas.leave()
        await self.coordinator.operations.close()
        await self.coordinator.open_tables.close(self.settings.shutdown_grace_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Check the stores before the first request, watch them meanwhile, and close them after the last."""
        roots = self.coordinator.roots.all
        passed = await attempted(lambda: check_stores(roots, self.world, self._checked))
        watch = asyncio.create_task(keep_checking(roots, self.world, self._checked, passed=passed), name="store checks")
        self._background = self._jobs()
        if self.coordinator.ingest is not None:
            await self.coordinator.ingest.guard.tried(INDEX_START_SECONDS)
        # Not before: it takes the processor from what the start waits for.
        loading = asyncio.create_task(load_ahead(self.world), name="loading")
        try:
            yield
        finally:
            self.readiness.closed.set()
            await cancelled(loading, watch, *self._background)
            await self.replicas.leave()
            await self.coordinator.close(self.settings.shutdown_grace_seconds)
            await self.replicas.close()
            if self.database is not None:
                await self.database.close()

    def _jobs(self) -> list[asyncio.Task[None]]:
        """What works on tables in the background; it must have ended before the tables are closed."""
        jobs = self.replicas.jobs()
        if self.coordinator.ingest is not None:
            ingest = self.coordinator.ingest
            jobs["index"] = ingest.run
            if self.database is not None and self.database.is_sqlite:
                jobs["index file"] = lambda: watch_index_file(ingest.guard, self.world)
        if self.coordinator.segments is not None:
            jobs["segments"] = self.coordinator.segments.run
        roots = self.coordinator.roots.all
        jobs["write checks"] = lambda: keep_write_checking(
            roots, self.world, self.readiness.refused, self._write_refused
        )
        jobs["packing"] = lambda: keep_packed(self.coordinator)
        if self.settings.background_states:
            jobs["states"] = lambda: keep_states(self.coordinator)
        return [asyncio.create_task(supervised(name, job, self.world), name=name) for name, job in jobs.items()]

    def _checked(self, place: str, report: ProbeReport) -> None:
        self.readiness.checked(place, report.problems, report.clock_offset_ms)

    def _coordinator(self) -> Coordinator:
        settings = self.settings
        committing = CommitterSettings(
            max_waiting=settings.max_waiting,
            max_waiting_bytes=settings.max_waiting_bytes,
            deadline_seconds=settings.commit_deadline_seconds,
            head_max_age_seconds=settings.head_max_age_seconds,
        )
        return Coordinator(
            Roots(
                self._root("warehouse", settings.warehouse), *(self._root("locations", u) for u in settings.locations)
            ),
            self.world,
            self.telemetry,
            committing,
            cache_ttl_seconds=settings.cache_ttl_seconds,
            cache_max_versions=settings.cache_max_versions,
            max_open_tables=settings.max_open_tables,
            memory_bytes=settings.memory_bytes,
            operation_wait_seconds=settings.operation_wait_seconds,
            columns=column_reader(),
            lanes=LaneSizes(
                listing=settings.listing_places,
                reading=settings.reading_places,
                checkpointing=settings.checkpointing_places,
            ),
            index=index_of(settings.database_url, self.database),
            segments=segments_of(settings.database_url, self.database),
            segment_bytes=settings.index_segment_bytes,
            table_defaults=settings.table_defaults,
            index_guard=GuardSettings(
                read_seconds=settings.database_read_seconds,
                write_seconds=settings.database_write_seconds,
                longest_pause_seconds=settings.database_retry_seconds,
            ),
        )

    def _database(self) -> Database | None:
        settings = self.settings
        pool = PoolSettings(
            size=settings.database_pool_size,
            connect_seconds=settings.database_connect_seconds,
            statement_seconds=settings.database_write_seconds,
        )
        try:
            return open_database(
                settings.database_url, local_folder(settings.warehouse), pool, migrate=settings.database_migrate
            )
        except ValueError as error:
            raise BadSettings(f"TARNLOG_DATABASE_URL cannot be used: {error}.") from error

    def _replicas(self) -> Replicas:
        """What joins this replica to others: news over Postgres, leases once others know where to reach it."""
        if self.database is None:
            return Replicas()
        settings, me = self.settings, Owner(self.world.uuid7().hex, self.settings.advertised_url or "")
        news = None
        if not self.database.is_sqlite:
            # Late, as below: a service on its own starts without them.
            from tarnlog_server.adapters.postgres_feed import PostgresFeed

            feed, tables = PostgresFeed(self.database.url), self.coordinator.open_tables
            news = ChangeNews(feed, tables, self.world, self.telemetry, replica=me.id)
            tables.written = news.written
        if settings.advertised_url is None:
            return Replicas(news=news)
        leases = SqlLeases(self.database, self.coordinator.roots.warehouse.uri)
        ownership = Ownership(leases, me, self.world, self.telemetry, lease_seconds=settings.lease_seconds)
        from tarnlog_server.adapters.http_peers import HttpPeers

        peers = HttpPeers(
            connect_seconds=settings.forward_connect_seconds, answer_seconds=settings.forward_timeout_seconds
        )
        return Replicas(Forwarding(ownership, peers, self.world, self.telemetry), peers, news)

    def _root(self, setting: str, uri: str) -> Root:
        try:
            store: ObjectStore = open_store(
                uri, s3_endpoint=self.settings.s3_endpoint, s3_client=self.settings.s3_client
            )
        except (StoreRefused, OSError, ValueError) as error:
            raise BadSettings(f"TARNLOG_{setting.upper()} cannot be used: {error}.") from error
        remote = not store.uri.startswith(("file:", "memory:"))
        delay = self.settings.test_store_delay_ms / 1000
        if delay:
            store = DelayedStore(store, delay, self.world.sleep)
        store = MeteredStore(store, self._stored, monotonic=self.world.monotonic)
        if remote:
            store = RetryingReadsStore(store, sleep=self.world.sleep, rng=self.world.rng)
        hedge = remote if self.settings.hedge == "auto" else self.settings.hedge == "on"
        return Root(store.uri, store, hedge)

    def _stored(self, operation: str, code: str, seconds: float, size: int) -> None:
        """The sink of every store. A write that was refused is a reason to check whether writes are possible."""
        self.telemetry.storage(operation, code, seconds, size)
        if code == "refused" and operation in WRITES:
            self._write_refused.set()

    def _app(self) -> Application:
        settings = self.settings
        keys = tuple(
            ApiKey(id=key.id, sha256=key.sha256, scope=key.scope, namespaces=key.namespaces)
            for key in settings.api_keys
        )
        limits = BodyLimits(
            sent=settings.max_body_bytes,
            inflated=settings.max_inflated_bytes,
            budget=BodyBudget(settings.max_body_memory_bytes),
        )
        return create_app(
            self.coordinator,
            self.readiness,
            ApiSettings(keys=keys, limits=limits, allowed_hosts=_own_names(settings)),
            metrics=self.telemetry.exposition,
            activity=self.telemetry.activity,
            lifespan=self.lifespan,
            replicas=self.replicas,
        )


def _own_names(settings: Settings) -> tuple[str, ...]:
    """The names that requests to a service without keys may carry: where it listens, and where replicas reach it."""
    advertised = urlsplit(settings.advertised_url).hostname if settings.advertised_url is not None else None
    return (settings.host, *settings.allowed_hosts, *([advertised] if advertised is not None else []))
