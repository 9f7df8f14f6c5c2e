"""The asyncio client: the blocking one, awaited.

Decisions live in the modules it drives (`_wire`, `_commit_wire`, `_exchange`, `_feed`); here are sockets and sleeping.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from tarnlog import _calls, _commit_wire, _long, _plans, _wire
from tarnlog._api import Order, described
from tarnlog._connection import (
    LOG,
    RNG,
    STREAM_SILENCE_SECONDS,
    answer_of,
    endpoint,
    new_commit_id,
    no_answer,
    timeouts,
)
from tarnlog._errors import NotFound, TarnlogError, Unavailable, Unreachable, error_from
from tarnlog._exchange import Answer, Attempts, Call, Exchange, NoAnswer, Pace, Pause, Send, exchange, not_now_text
from tarnlog._feed import ChangeFeed, Missing
from tarnlog._long import OnProgress, OperationInfo, long_exchange
from tarnlog._plans import ArrowPlan, Filter, Plan, PlanExplanation, Whole
from tarnlog._results import (
    AuditInfo,
    CheckpointInfo,
    CleanupInfo,
    CommitRecord,
    EraseInfo,
    Health,
    NotInLog,
    RebuildInfo,
    SessionInfo,
    SnapshotInfo,
    StateInfo,
    TableEntry,
    TableInfo,
    TxnInfo,
    VacuumInfo,
    VersionChange,
    VersionInfo,
)
from tarnlog._sessions import TTL_SECONDS, AsyncWriteSession
from tarnlog._transaction import AsyncTransaction
from tarnlog._wire import Timestamp
from tarnlog.protocol.actions import Action, Add, Skip
from tarnlog.protocol.commits import CommitOutcome, Committed, Isolation, Reads, Unknown
from tarnlog.protocol.plans import MAX_PAGE
from tarnlog.protocol.tables import StateFormat

T = TypeVar("T")


@described
class AsyncClient:
    """Talks to a tarnlog service; the methods are described at `TableApi`, here awaited or iterated with `async for`.

    url, api_key: default to TARNLOG_URL and TARNLOG_API_KEY, then to the local service without a key.
    timeout:      how long one try may take, in seconds.
    deadline:     how long to go on trying; what is not safe to send twice is tried once. A commit is answered by then.
    transport, sleep, clock: for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        deadline: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        where = endpoint(url, api_key)
        self.url = str(where.url)
        self._http = httpx.AsyncClient(
            base_url=where.url,
            headers=where.headers,
            verify=where.tls() if transport is None else True,
            trust_env=where.trust_env,
            transport=transport,
        )
        self._pace = Pace(deadline=deadline, timeout=timeout, clock=clock, rng=RNG, url=self.url)
        self._sleep = sleep

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # Tables

    async def create_table(
        self,
        name: str,
        schema: Mapping[str, Any],
        *,
        partition_by: Iterable[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        adopt_existing_files: bool = False,
    ) -> TableInfo:
        call = _calls.create_table(
            name,
            schema,
            partition_by=partition_by,
            location=location,
            properties=properties,
            description=description,
            adopt_existing_files=adopt_existing_files,
        )
        return await self._call(call)

    async def register_table(self, name: str, location: str, *, foreign_writers_stopped: bool = False) -> TableInfo:
        return await self._call(_calls.register_table(name, location, foreign_writers_stopped=foreign_writers_stopped))

    async def get_table(self, name: str) -> TableInfo:
        return await self._call(_calls.get_table(name))

    def list_tables(self, namespace: str | None = None, *, page_size: int | None = None) -> AsyncIterator[TableEntry]:
        return self._pages(_calls.list_tables(namespace, page_size))

    async def alter_table(
        self,
        name: str,
        *,
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Iterable[str] = (),
        schema: Mapping[str, Any] | None = None,
        description: str | None = None,
        read_version: int | None = None,
        commit_id: str | None = None,
    ) -> TableInfo:
        call = _calls.alter_table(
            name,
            commit_id=commit_id or new_commit_id(),
            read_version=read_version,
            set_properties=set_properties,
            unset_properties=unset_properties,
            schema=schema,
            description=description,
        )
        return await self._call(call)

    async def drop_table(self, name: str, *, purge: bool = False) -> None:
        await self._call(_calls.drop_table(name, purge=purge))

    # Commits

    async def commit(
        self,
        table: str,
        actions: Iterable[Action],
        *,
        commit_id: str | None = None,
        read_version: int | None = None,
        reads: Reads | None = None,
        isolation: Isolation | None = None,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        operation_metrics: Mapping[str, Any] | None = None,
        coalesce: bool | None = None,
        deadline: float | None = None,
    ) -> CommitOutcome:
        known_id = commit_id or new_commit_id()
        request = _commit_wire.commit_request(
            table,
            actions,
            commit_id=known_id,
            read_version=read_version,
            reads=reads,
            isolation=isolation,
            operation=operation,
            operation_parameters=operation_parameters,
            operation_metrics=operation_metrics,
            coalesce=coalesce,
        )
        return await self._run(_commit_wire.commit_exchange(request, known_id, self._pace.within(deadline)))

    async def commit_status(self, table: str, commit_id: str) -> Committed | Unknown | NotInLog:
        return await self._call(_commit_wire.commit_status(table, commit_id))

    def transaction(
        self,
        table: str,
        *,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        isolation: Isolation | None = None,
        read_version: int | None = None,
        commit_id: str | None = None,
        check: bool = True,
    ) -> AsyncTransaction:
        return AsyncTransaction(
            self,
            table,
            commit_id or new_commit_id(),
            operation=operation,
            operation_parameters=operation_parameters,
            isolation=isolation,
            read_version=read_version,
            check=check,
        )

    # Reading a table

    def history(
        self,
        table: str,
        *,
        from_: int | None = None,
        to: int | None = None,
        order: Order = "desc",
        page_size: int | None = None,
    ) -> AsyncIterator[CommitRecord]:
        return self._pages(_calls.history(table, from_=from_, to=to, order=order, page_size=page_size))

    async def version(self, table: str, number: int) -> VersionInfo:
        return await self._call(_calls.version(table, number))

    async def snapshot(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
    ) -> SnapshotInfo:
        return await self._call(
            _calls.snapshot(table, version=version, timestamp=timestamp, max_staleness_seconds=max_staleness_seconds)
        )

    def files(
        self,
        table: str,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[Add]:
        return self._pages(
            _calls.files(
                table,
                version=version,
                timestamp=timestamp,
                max_staleness_seconds=max_staleness_seconds,
                page_size=page_size,
            )
        )

    async def plan(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        page_size: int | None = None,
    ) -> Plan:
        pages = _plans.plan_pages(
            table,
            filter,
            version=version,
            timestamp=timestamp,
            max_staleness_seconds=max_staleness_seconds,
            exclude_cooldowns=exclude_cooldowns,
            time_zone=time_zone,
            page_size=page_size,
        )
        return await self._whole(_plans.whole_plan(pages))

    async def plan_arrow(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        fields: Sequence[str] | None = None,
        since: int | None = None,
    ) -> ArrowPlan:
        call = _plans.plan_stream(
            table,
            filter,
            version=version,
            timestamp=timestamp,
            max_staleness_seconds=max_staleness_seconds,
            exclude_cooldowns=exclude_cooldowns,
            time_zone=time_zone,
            fields=fields,
            since=since,
        )
        return await self._call(call)

    async def explain_plan(
        self,
        table: str,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        max_staleness_seconds: float | None = None,
        exclude_cooldowns: bool = False,
        time_zone: str | None = None,
        max_files: int | None = 1000,
    ) -> PlanExplanation:
        pages = _plans.plan_pages(
            table,
            filter,
            version=version,
            timestamp=timestamp,
            max_staleness_seconds=max_staleness_seconds,
            exclude_cooldowns=exclude_cooldowns,
            time_zone=time_zone,
            explain=True,
            page_size=min(max_files or MAX_PAGE, MAX_PAGE),
        )
        return await self._whole(_plans.whole_explanation(pages, max_files))

    def changes(
        self, table: str, from_: int, to: int | None = None, *, page_size: int | None = None
    ) -> AsyncIterator[VersionChange]:
        return self._pages(_calls.changes(table, from_=from_, to=to, page_size=page_size))

    async def events(self, table: str, *, after: int | None = None) -> AsyncIterator[VersionChange]:
        """Live changes above version `after` (default: from the first iteration on), once each, in order, gap-free."""
        feed = ChangeFeed((await self.snapshot(table)).version if after is None else after)
        async for change in self._events(table, feed):
            yield change

    async def txn(self, table: str, app_id: str) -> TxnInfo | None:
        try:
            return await self._call(_calls.txn(table, app_id))
        except NotFound as error:
            if error.slug == "txn-not-found":
                return None
            raise

    # Skips

    async def record_skip(
        self,
        table: str,
        path: str,
        *,
        reason: str,
        operation: str,
        partition_values: Mapping[str, str | None] | None = None,
        size: int | None = None,
        cooldown_hours: float | None = None,
    ) -> Skip:
        call = _calls.record_skip(
            table,
            path,
            reason=reason,
            operation=operation,
            partition_values=partition_values,
            size=size,
            cooldown_hours=cooldown_hours,
        )
        return await self._call(call)

    def skips(self, table: str, *, page_size: int | None = None) -> AsyncIterator[Skip]:
        return self._pages(_calls.skips(table, page_size))

    async def cooldowns(self, table: str) -> dict[str, int]:
        return await self._call(_calls.cooldowns(table))

    # States

    async def checkpoint(
        self,
        table: str,
        format: StateFormat | None = None,  # noqa: A002
        *,
        on_progress: OnProgress | None = None,
    ) -> CheckpointInfo:
        return await self._long(_calls.checkpoint(table, format), on_progress)

    async def compact(self, table: str, *, on_progress: OnProgress | None = None) -> CheckpointInfo:
        return await self._long(_calls.compact(table), on_progress)

    async def cleanup(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> CleanupInfo:
        return await self._long(_calls.cleanup(table, dry_run), on_progress)

    async def state(self, table: str) -> StateInfo:
        return await self._call(_calls.state(table))

    # Write sessions

    def write_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> AsyncWriteSession:
        return AsyncWriteSession(self, table, prefix, ttl_seconds)

    async def begin_session(self, table: str, prefix: str = "", *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        return await self._call(_calls.begin_session(table, prefix, ttl_seconds))

    async def extend_session(self, table: str, session_id: str, *, ttl_seconds: int = TTL_SECONDS) -> SessionInfo:
        return await self._call(_calls.extend_session(table, session_id, ttl_seconds))

    async def end_session(self, table: str, session_id: str) -> None:
        try:
            await self._call(_calls.end_session(table, session_id))
        except NotFound as error:
            if error.slug != "session-not-found":
                raise

    async def sessions(self, table: str) -> tuple[SessionInfo, ...]:
        return await self._call(_calls.sessions(table))

    # Audits

    async def verify(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        return await self._long(_calls.verify(table), on_progress)

    async def repair(self, table: str, *, on_progress: OnProgress | None = None) -> AuditInfo:
        return await self._long(_calls.repair(table), on_progress)

    async def rebuild(self, table: str, *, on_progress: OnProgress | None = None) -> RebuildInfo:
        return await self._long(_calls.rebuild(table), on_progress)

    # Data files

    async def vacuum(
        self,
        table: str,
        *,
        dry_run: bool = True,
        retention_hours: float | None = None,
        override_minimum: bool = False,
        on_progress: OnProgress | None = None,
    ) -> VacuumInfo:
        call = _calls.vacuum(table, dry_run=dry_run, retention_hours=retention_hours, override_minimum=override_minimum)
        return await self._long(call, on_progress)

    async def erase(self, table: str, *, dry_run: bool = False, on_progress: OnProgress | None = None) -> EraseInfo:
        return await self._long(_calls.erase(table, dry_run=dry_run), on_progress)

    # The service

    async def operations(self) -> tuple[OperationInfo, ...]:
        return await self._call(_long.operations())

    async def operation(self, operation_id: str) -> OperationInfo:
        return await self._call(_long.operation(operation_id))

    async def cache_stats(self) -> dict[str, Any]:
        return await self._call(_calls.cache_stats())

    async def invalidate_cache(self) -> dict[str, Any]:
        """Drop what the service has cached; the answer says what. Needs scope admin."""
        return await self._call(_calls.invalidate_cache())

    async def health(self) -> Health:
        return await self._call(_calls.health())

    # Sending

    async def _call(self, call: Call[T]) -> T:
        return await self._run(exchange(call, self._pace, _wire.problem_of))

    async def _long(self, call: Call[T], on_progress: OnProgress | None) -> T:
        return await self._run(long_exchange(call, self._pace, on_progress))

    async def _run(self, steps: Exchange[T]) -> T:
        reply: Answer | NoAnswer | None = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result
            reply = None
            if isinstance(step, Pause):
                await self._wait(step)
            else:
                reply = await self._send(step)

    async def _wait(self, pause: Pause) -> None:
        if pause.notice:
            LOG.warning("tarnlog: %s", pause.notice)
        await self._sleep(pause.seconds)

    async def _send(self, step: Send) -> Answer | NoAnswer:
        request = step.request
        try:
            response = await self._http.request(
                request.method,
                request.path,
                params=dict(request.params),
                headers=dict(request.headers),
                content=request.body,
                timeout=timeouts(step.timeout),
            )
        except httpx.RequestError as error:
            return no_answer(error)
        return answer_of(response)

    async def _whole(self, asking: Whole[T]) -> T:
        call = next(asking)
        while True:
            page = await self._call(call)
            try:
                call = asking.send(page)
            except StopIteration as done:
                result: T = done.value
                return result

    def _pages(self, listing: _wire.Listing[T]) -> AsyncIterator[T]:
        first = listing(None)  # what is wrong with the arguments shows here, not at the first iteration

        async def items() -> AsyncIterator[T]:
            call: Call[_wire.Page[T]] | None = first
            while call is not None:
                page = await self._call(call)
                for item in page.items:
                    yield item
                call = None if page.next is None else listing(page.next)

        return items()

    async def _events(self, table: str, feed: ChangeFeed) -> AsyncIterator[VersionChange]:
        attempts = Attempts(self._pace)
        silence = timeouts(self._pace.timeout, silence=STREAM_SILENCE_SECONDS)
        while True:
            began = self._pace.clock()
            request = _calls.events(table, feed.position)
            failure: TarnlogError = Unreachable(f"The live feed of {self.url} ended.", sent=True, url=self.url)
            try:
                async with self._http.stream(
                    request.method, request.path, headers=dict(request.headers), timeout=silence
                ) as response:
                    if response.status_code != 200:
                        await response.aread()
                        failure = error_from(_wire.problem_of(answer_of(response)), response.status_code)
                        if not isinstance(failure, Unavailable):
                            raise failure
                    else:
                        feed.connected()
                        async for chunk in response.aiter_bytes():
                            attempts, began = Attempts(self._pace), self._pace.clock()
                            for found in feed.receive(chunk):
                                if isinstance(found, Missing):
                                    async for change in self.changes(table, found.first, found.last):
                                        yield change
                                else:
                                    yield found
            except httpx.RequestError as error:
                reason = no_answer(error).reason
                failure = Unreachable(f"The live feed of {self.url} broke ({reason}).", sent=True, url=self.url)
            trouble = failure.detail if isinstance(failure, Unreachable) else not_now_text(self._pace, failure.detail)
            pause = attempts.pause(failure.retry_after, trouble, self._pace.clock() - began)
            if pause is None:
                raise failure
            await self._wait(pause)
