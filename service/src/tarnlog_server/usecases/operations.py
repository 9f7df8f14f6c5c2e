"""Long work with progress: whoever asked waits a few seconds for it, then gets an operation to look at.

An operation lives in the process that runs it, and ends with it: every piece of work must be safe to stop anywhere and
to begin again. Its caller going away does not stop it. Memory is bounded: so many run at once, and those that ended are
forgotten after a while, or when there are too many; one that nobody was sent to look for is forgotten at its end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.world import World

_log = logging.getLogger(__name__)
T = TypeVar("T")
Status: TypeAlias = Literal["running", "succeeded", "failed"]
WAIT_SECONDS = 3.0
"""How long a caller waits for the result itself."""
MAX_RUNNING = 32
MAX_FINISHED = 256
FORGET_AFTER_SECONDS = 3600.0


class Progress(Protocol):
    """Told by long work as it gets on; costs nothing, so tell it as often as it is true."""

    def __call__(self, done: int, total: int | None, unit: str) -> None:
        """`done` of `total` (None: nobody knows yet) pieces of what `unit` names, such as `files`."""
        ...


def unheard(done: int, total: int | None, unit: str) -> None:
    """Progress that nobody looks at."""


class ProgressView(Struct, frozen=True):
    """How far an operation got; `total` is null while nobody knows."""

    done: int = 0
    total: int | None = None
    unit: str = ""


class OperationView(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An operation: `result` is what the call would have answered, `problem` the document of what went wrong."""

    id: str
    kind: str
    table: str
    status: Status
    progress: ProgressView
    started_at: int
    finished_at: int | UnsetType = UNSET
    result: Any = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


class OperationsView(Struct, frozen=True):
    """The operations of this process, oldest first."""

    operations: tuple[OperationView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The work was done while the caller waited."""

    result: T


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """The work goes on; the operation tells how it does."""

    operation: OperationView


@dataclasses.dataclass(slots=True, eq=False)
class _Record:
    """An operation as it is kept."""

    id: str
    kind: str
    table: TableName
    started_at: int
    progress: ProgressView = dataclasses.field(default_factory=ProgressView)
    task: asyncio.Task[Any] | None = None
    waiting: int = 0
    told: bool = False
    """Whether somebody was sent here to look for the result."""
    finished_at: int | None = None
    ended: float = 0.0
    result: Any = None
    failure: ProblemError | None = None

    def tell(self, done: int, total: int | None, unit: str) -> None:
        self.progress = ProgressView(done, total, unit)

    @property
    def view(self) -> OperationView:
        finished = self.finished_at is not None
        failed = self.failure is not None
        return OperationView(
            id=self.id,
            kind=self.kind,
            table=str(self.table),
            status="running" if not finished else "failed" if failed else "succeeded",
            progress=self.progress,
            started_at=self.started_at,
            finished_at=UNSET if self.finished_at is None else self.finished_at,
            result=self.result if finished and not failed else UNSET,
            problem=UNSET if self.failure is None else self.failure.document(),
        )


class Operations:
    """The long work of this process. `wait_seconds` is how long a caller waits for a result."""

    def __init__(self, world: World, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self.wait_seconds = wait_seconds
        self._world = world
        self._records: dict[str, _Record] = {}
        self._running: dict[Hashable, _Record] = {}
        self._closed = False

    async def run(
        self,
        kind: str,
        table: TableName,
        work: Callable[[Progress], Awaitable[T]],
        *,
        parameters: Hashable = None,
    ) -> Finished[T] | Running:
        """Start the work, or join the same that runs already, and wait for it a little. Raises what the work raises.

        The same is: this kind, on this table, with equal `parameters`; the work itself is not compared.
        """
        key = (kind, table, parameters)
        record = self._running.get(key) or self._start(key, kind, table, work)
        task = record.task
        assert task is not None
        record.waiting += 1
        try:
            done, _ = await asyncio.wait({task}, timeout=self.wait_seconds)
        finally:
            record.waiting -= 1
            self._forget_unseen(record)
        if done:
            if task.cancelled():
                raise _shutting_down(kind, table)
            return Finished(task.result())
        record.told = True
        return Running(record.view)

    def find(self, operation_id: str) -> tuple[TableName, OperationView]:
        """An operation, with the table it is about. ProblemError `operation-not-found`."""
        self._forget_old()
        record = self._records.get(operation_id)
        if record is None:
            raise not_found(operation_id)
        return record.table, record.view

    def list(self) -> list[tuple[TableName, OperationView]]:
        """All that run, and those that ended lately, oldest first."""
        self._forget_old()
        return [(record.table, record.view) for record in self._records.values()]

    async def close(self) -> None:
        """Stop what runs, and take on nothing more; whoever waits is told that the service shuts down."""
        self._closed = True
        tasks = [record.task for record in self._running.values() if record.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Hashable, kind: str, table: TableName, work: Callable[[Progress], Awaitable[Any]]) -> _Record:
        if self._closed:
            raise _shutting_down(kind, table)
        if len(self._running) >= MAX_RUNNING:
            detail = f"{MAX_RUNNING} operations run already; wait until one of them ends (GET /v1/operations)"
            raise ProblemError("too-many-waiting", detail, retry_after=5.0)
        self._forget_old()
        record = _Record(str(self._world.uuid7()), kind, table, self._world.now_ms())
        self._records[record.id] = self._running[key] = record
        record.task = asyncio.create_task(self._carried_out(record, work), name=f"{kind} {table}")
        record.task.add_done_callback(lambda task: self._ended(key, record, task))
        return record

    async def _carried_out(self, record: _Record, work: Callable[[Progress], Awaitable[Any]]) -> Any:
        try:
            return await work(record.tell)
        except asyncio.CancelledError:
            _log.warning("operation %s (%s of %s) stopped by shutdown", record.id, record.kind, record.table)
            raise _shutting_down(record.kind, record.table) from None

    def _ended(self, key: Hashable, record: _Record, task: asyncio.Task[Any]) -> None:
        self._running.pop(key, None)
        record.finished_at = self._world.now_ms()
        record.ended = self._world.monotonic()
        if task.cancelled():  # before it began
            record.failure = _shutting_down(record.kind, record.table)
        elif (error := task.exception()) is None:
            record.result = task.result()
        elif isinstance(error, ProblemError):
            record.failure = error
        else:
            detail = f"{record.kind} of {record.table} failed by a defect; the service's log says more"
            record.failure = ProblemError("internal-error", detail)
            _log.error("operation %s (%s of %s) crashed", record.id, record.kind, record.table, exc_info=error)
        self._say(record)
        self._forget_unseen(record)
        self._forget_old()

    def _say(self, record: _Record) -> None:
        """Those who were sent away read the end in the log, too: it is not in the answer of their request."""
        if not record.told:
            return
        took = record.finished_at - record.started_at if record.finished_at is not None else 0
        end = "succeeded" if record.failure is None else record.failure.slug
        level = logging.WARNING if record.failure is not None else logging.INFO
        _log.log(level, "operation %s (%s of %s): %s after %s ms", record.id, record.kind, record.table, end, took)

    def _forget_unseen(self, record: _Record) -> None:
        if record.finished_at is not None and not record.told and record.waiting == 0:
            self._records.pop(record.id, None)

    def _forget_old(self) -> None:
        """Costs a pass over what is kept, which is bounded."""
        ended = sorted(
            (one for one in self._records.values() if one.finished_at is not None), key=lambda one: one.ended
        )
        since = self._world.monotonic() - FORGET_AFTER_SECONDS
        excess = len(ended) - MAX_FINISHED
        for position, record in enumerate(ended):
            if position < excess or record.ended < since:
                self._records.pop(record.id, None)


def not_found(operation_id: str) -> ProblemError:
    """What is said of an operation that this process does not know, or that the caller may not know."""
    return ProblemError(
        "operation-not-found",
        f"there is no operation {operation_id} in this process: it ended long ago, the service was started again, or "
        "another replica runs it. Send the call again: it is safe to repeat, and joins what runs",
    )


def _shutting_down(kind: str, table: TableName) -> ProblemError:
    detail = f"{kind} of {table} was stopped because the service shuts down; send it again, it goes on where it can"
    return ProblemError("shutting-down", detail, retry_after=1.0)
