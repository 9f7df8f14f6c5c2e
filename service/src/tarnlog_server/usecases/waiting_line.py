"""Who waits for a table's committer, and what they are told: bounded when they come, answered once, none forgotten."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque

from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted, NotNow, Rejected, Unknown
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import Kind, ProblemError
from tarnlog_server.core.coalesce import Answer
from tarnlog_server.core.intent import Intent
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World

MIN_TIMER_SECONDS = 0.001


@dataclasses.dataclass(slots=True, eq=False)
class Waiting:
    """A commit that waits for its answer."""

    intent: Intent
    answer: asyncio.Future[CommitOutcome]
    generation: object
    """Up to which generation of sealed ids it is known not to be there."""
    arrived: float
    attempts: int = 0
    in_flight: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LineLimits:
    """How many may wait, with how many bytes, and for how long."""

    waiting: int
    size: int
    seconds: float


class WaitingLine:
    """The commits of one table that have no answer yet."""

    def __init__(self, table: TableName, world: World, telemetry: Telemetry, limits: LineLimits) -> None:
        self._table = table
        self._world = world
        self._telemetry = telemetry
        self._limits = limits
        self.queue: deque[Waiting] = deque()
        self.in_flight: list[Waiting] = []
        """In the version that is being written: they may land."""
        self.parked: list[Waiting] = []
        """Planned long ago: they wait for old winners to be read, and nobody waits for them."""
        self.arrived = 0
        """How many ever came."""
        self._queued_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return not (self.queue or self.in_flight or self.parked)

    @property
    def length(self) -> int:
        """How many have no answer yet."""
        return len(self.queue) + len(self.in_flight) + len(self.parked)

    def waits(self, commit_id: str) -> bool:
        """Whether a commit is here: its outcome is not known yet."""
        return any(waiting.intent.commit_id == commit_id for waiting in self._all())

    def join(self, intent: Intent, generation: object) -> Waiting:
        """Queue a commit. ProblemError `too-many-waiting` when there is no room."""
        if (
            len(self.queue) + len(self.parked) >= self._limits.waiting
            or self._queued_bytes + intent.size > self._limits.size
        ):
            detail = f"{len(self.queue)} commits already wait for this table; not committed, send it again later"
            raise ProblemError("too-many-waiting", detail, retry_after=1.0)
        loop = asyncio.get_running_loop()
        waiting = Waiting(intent, loop.create_future(), generation, self._world.monotonic())
        self.queue.append(waiting)
        self._queued_bytes += intent.size
        self.arrived += 1
        if self._deadline is None:
            self._deadline = loop.call_later(self._limits.seconds, self._check_deadlines)
        return waiting

    def requeue(self, waiting: list[Waiting]) -> None:
        """Let these wait, in this order, and nobody else."""
        self.queue = deque(waiting)
        self._queued_bytes = sum(one.intent.size for one in waiting)
        self._telemetry.queue_depth(str(self._table), len(self.queue))

    def drop_answered(self) -> None:
        """Commits whose client was already told to resend must not be written behind its back."""
        if any(waiting.answer.done() for waiting in self.queue):
            self.requeue([waiting for waiting in self.queue if not waiting.answer.done()])

    def answer(self, waiting: Waiting, answer: Answer | CommitOutcome) -> None:
        """Tell one, unless it was told already."""
        if waiting.answer.done():
            return
        if isinstance(answer, ProblemError):
            commit_id = waiting.intent.commit_id
            if answer.code.kind is Kind.UNAVAILABLE:
                waiting.answer.set_result(
                    NotNow(commit_id=commit_id, problem=answer.document(), retry_after=answer.retry_after or 1.0)
                )
            else:
                waiting.answer.set_result(Rejected(commit_id=commit_id, problem=answer.document()))
            return
        if isinstance(answer, Conflicted):
            self._telemetry.conflict(str(self._table), answer.rule)
        if isinstance(answer, Committed) and answer.replayed is False and waiting.attempts == 0:
            raise AssertionError("a commit that was never in a version cannot be committed")
        waiting.answer.set_result(answer)

    def answer_queued(self, problem: ProblemError) -> None:
        """The same news for everyone in the queue."""
        for waiting in self.queue:
            self.answer(waiting, problem)
        self.requeue([])

    def answer_in_flight(self, answer: ProblemError) -> None:
        """Nothing of the version was written: the same news for everyone in it."""
        members, self.in_flight = self.in_flight, []
        for waiting in members:
            waiting.in_flight = False
            self.answer(waiting, answer)

    def answer_parked(self, problem: ProblemError) -> None:
        """The same news for everyone who waits aside; who they were is for the caller to clear."""
        for waiting in self.parked:
            self.answer(waiting, problem)

    def send_away(self) -> None:
        """Tell everyone who only waits that the service shuts down."""
        problem = ProblemError("shutting-down", "the service is shutting down; resend", retry_after=1.0)
        self.answer_parked(problem)
        self.parked = []
        self.answer_queued(problem)

    def give_up(self) -> None:
        """A fault of ours: what was in flight may land, what only waited did not."""
        members, self.in_flight = self.in_flight, []
        for waiting in members:
            self.answer(waiting, Unknown(commit_id=waiting.intent.commit_id, retry_after=2.0))
        self.answer_queued(ProblemError("internal-error", "the commit was not written because of an internal error"))

    async def close(self, grace_seconds: float) -> None:
        """Answer everyone: what only waits is told to resend, what is in flight gets `grace_seconds` to settle."""
        if self._deadline is not None:
            self._deadline.cancel()
        self.send_away()
        if self.in_flight:
            await asyncio.wait({waiting.answer for waiting in self.in_flight}, timeout=grace_seconds)
        for waiting in self.in_flight:
            self.answer(waiting, Unknown(commit_id=waiting.intent.commit_id, retry_after=1.0))

    def _all(self) -> tuple[Waiting, ...]:
        return (*self.queue, *self.in_flight, *self.parked)

    def _check_deadlines(self) -> None:
        """Tell those who waited too long. One timer for all: a timer for each commit costs more than its queueing."""
        self._deadline = None
        now = self._world.monotonic()
        ends = []
        for waiting in self._all():
            end = waiting.arrived + self._limits.seconds
            if end <= now:
                self._past_deadline(waiting)
            elif not waiting.answer.done():
                ends.append(end)
        if ends:
            again = max(min(ends) - now, MIN_TIMER_SECONDS)
            self._deadline = asyncio.get_running_loop().call_later(again, self._check_deadlines)

    def _past_deadline(self, waiting: Waiting) -> None:
        """A commit in flight may land, so its outcome is unknown; one that only waited certainly did not."""
        if waiting.in_flight:
            self.answer(waiting, Unknown(commit_id=waiting.intent.commit_id, retry_after=2.0))
        else:
            detail = "not written before the deadline; send it again"
            self.answer(waiting, ProblemError("commit-contended", detail, retry_after=1.0))
