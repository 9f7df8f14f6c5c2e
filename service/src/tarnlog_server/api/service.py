"""The service about itself: health, metrics and caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import json_answer
from tarnlog_server.api.auth import ANONYMOUS, Caller
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import CACHE
from tarnlog_server.api.operation import Operation, Result, audited, caller_of
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.ports.telemetry import IndexState
from tarnlog_server.usecases.caches import CacheStats
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.replicas import Replicas, Role
from tarnlog_server.usecases.tables import parse_name

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TAG = "service"


class HealthView(Struct, frozen=True):
    """The service is well."""

    status: str


class ReadyView(Struct, frozen=True):
    """Writes may be sent here."""

    status: str
    role: Annotated[
        Role,
        Meta(
            description="`alone` writes every commit itself; a `replica` shares tables with others by leases; one that "
            "is `replica-cut-off` from the database writes every commit itself until it is back. All of them are ready."
        ),
    ]
    index: Annotated[
        IndexState,
        Meta(
            description="The index is a cache: while it is `degraded`, `starting` or `off`, storage answers what it "
            "would have answered. `/metrics` says more."
        ),
    ]


class Invalidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to drop from the caches: one table, or everything."""

    table: str | None = None


Metrics = Callable[[Callable[[str], bool] | None], bytes]
"""All metrics as text, or without the series of tables for which the argument is false."""


def _tables_of(caller: Caller) -> Callable[[str], bool]:
    return lambda table: caller.sees(table.partition(".")[0])


_INVALIDATE = msgspec.json.Decoder(Invalidate)


class ServiceRoutes:
    """The operations about the service."""

    def __init__(
        self,
        coordinator: Coordinator,
        readiness: Readiness,
        limits: BodyLimits,
        metrics: Metrics,
        replicas: Replicas,
    ) -> None:
        self._replicas = replicas
        self._coordinator = coordinator
        self._readiness = readiness
        self._limits = limits
        self._metrics = metrics

    async def live(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        return json_answer(HealthView("live"))

    async def ready(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        try:
            self._readiness.require_all()
        except ProblemError as problem:
            if caller_of(request) is not ANONYMOUS or problem.slug != "not-ready":
                raise
            # The reasons name buckets and repeat what stores answered.
            detail = "this replica serves no writes; send an API key to read the reasons, or look in the service's log"
            raise ProblemError("not-ready", detail, retry_after=problem.retry_after) from problem
        ingest = self._coordinator.ingest
        index: IndexState = "off" if ingest is None else ingest.guard.state
        return json_answer(ReadyView("ready", self._replicas.role, index))

    async def metrics(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        caller = caller_of(request)
        sees = None if caller.namespaces is None else _tables_of(caller)
        return Response(self._metrics(sees), media_type=METRICS_TYPE)

    async def caches(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        return json_answer(self._coordinator.cache_stats())

    async def invalidate(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _INVALIDATE, self._limits, self._coordinator.world, empty=Invalidate())
        caller = caller_of(request)
        location = None
        if wanted.table is not None:
            name = parse_name(wanted.table)
            audited(request, table=str(name))
            caller.require("admin", name.namespace)
            location = (await self._coordinator.open_tables.get(name)).live.location
        elif caller.namespaces is not None:
            raise ProblemError("forbidden", f"key {caller.id!r} is limited to namespaces: name one of its tables")
        return json_answer(self._coordinator.caches.invalidate(location))

    def operations(self) -> list[Operation]:
        """What is served here."""
        counts = dict.fromkeys(CACHE, 10)
        return [
            Operation(
                id="live",
                method="GET",
                path="/v1/health/live",
                endpoint=self.live,
                tag=_TAG,
                summary="Is the process alive?",
                description="Answers as long as the process can answer at all. Needs no key.",
                scope=None,
                results={200: Result("Alive", HealthView, {"status": "live"})},
            ),
            Operation(
                id="ready",
                method="GET",
                path="/v1/health/ready",
                endpoint=self.ready,
                tag=_TAG,
                summary="May writes be sent here?",
                description="503 names the reason: a store that breaks its promises, or refuses writes (a full disk, "
                "missing rights), a clock that is off, a shutdown. "
                "Needs no key; where keys are configured, the reasons are shown only to a request with one.",
                scope=None,
                results={200: Result("Ready", ReadyView, {"status": "ready", "role": "alone", "index": "ready"})},
                problems=("not-ready", "shutting-down", "host-not-allowed"),
            ),
            Operation(
                id="metrics",
                method="GET",
                path="/metrics",
                endpoint=self.metrics,
                tag=_TAG,
                summary="Metrics for Prometheus",
                description="In the text format. A key that is limited to namespaces gets no series of other tables; "
                "sums are of the whole service.",
                results={200: Result("The metrics", media=METRICS_TYPE)},
            ),
            Operation(
                id="cacheStats",
                method="GET",
                path="/v1/cache",
                endpoint=self.caches,
                tag=_TAG,
                summary="How the caches do",
                description="Hit rates since the start, by cache. `tables` are the open tables: what they take of "
                "the memory that they may take, and how many were closed to make room.",
                results={200: Result("Statistics by cache", dict[str, CacheStats], CACHE)},
            ),
            Operation(
                id="invalidateCache",
                method="POST",
                path="/v1/cache/invalidate",
                endpoint=self.invalidate,
                tag=_TAG,
                summary="Drop what is cached",
                description="Of one table, or everything. Nothing is lost by it. Needs scope `admin`.",
                scope="admin",
                changes="invalidate caches",
                body=Invalidate,
                body_optional=True,
                example={},
                results={200: Result("How many entries went, by cache", dict[str, int], counts)},
                problems=("table-not-found", "table-name-invalid", "not-ready", "shutting-down"),
            ),
        ]
