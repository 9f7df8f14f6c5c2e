"""The committer of one table: commits go in, versions come out, one PUT in flight at a time.

It reads like the protocol: FORMING decides (core.coalesce), PUTTING and RESOLVING settle one slot (core.ratify), LOST
catches up and forms again, COMMITTED applies and answers everyone. Idle, a commit is written at once; busy, whatever
queued during the PUT in flight becomes the next version. There is no timer and no lock, and another replica doing the
same is just another writer.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted
from tarnlog.protocol.problems import Kind, ProblemError
from tarnlog_server.codec.version_file import CorruptObject, encode
from tarnlog_server.core.coalesce import Answer, Batch, Limits, form, replayed
from tarnlog_server.core.compose import commit_info, compose
from tarnlog_server.core.dedupe import version_time
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.ratify import Step
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.object_store import StoreError
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.hedged_put import HedgedPut
from tarnlog_server.usecases.live_table import LiveTable, corrupt_problem
from tarnlog_server.usecases.meanwhile import Meanwhile
from tarnlog_server.usecases.older_steps import OlderSteps
from tarnlog_server.usecases.slots import Slots
from tarnlog_server.usecases.waiting_line import LineLimits, Waiting, WaitingLine

_log = logging.getLogger(__name__)
ENGINE = "tarnlog/0.1"
ENCODE_OFF_LOOP_ABOVE = 256 * 1024
MAX_REBASED_LISTED = 100
CHECK_AHEAD_AFTER_SECONDS = 5.0
"""A head that was known longer ago is checked while the PUT is under way: its next slot may be a hole in the log."""
LINGER_ABOVE_SECONDS = 0.001
LINGER_SHARE = 0.5
LINGER_POLL_SECONDS = 0.001
Written = Callable[[str, int], None]
"""Hears of each version that was written here: the table's location, and the version. Must be quick."""


@dataclasses.dataclass(frozen=True, slots=True)
class CommitterSettings:
    """Bounds of one table's committer."""

    max_waiting: int = 4096
    max_waiting_bytes: int = 256 * 1024 * 1024
    deadline_seconds: float = 30.0
    head_max_age_seconds: float = 60.0
    limits: Limits = dataclasses.field(default_factory=Limits)
    window: Window = dataclasses.field(default_factory=Window)


class Committer:
    """Serialises the commits of one table on this replica."""

    def __init__(
        self,
        table: LiveTable,
        world: World,
        telemetry: Telemetry,
        settings: CommitterSettings,
        *,
        hedge: bool = False,
        written: Written | None = None,
    ) -> None:
        self._written = written
        self._table = table
        self._world = world
        self._telemetry = telemetry
        self._settings = settings
        self._slots = Slots(table, world, HedgedPut(table.log.store, world, telemetry, hedge=hedge))
        self._older = OlderSteps(table)
        self._line = WaitingLine(
            table.name,
            world,
            telemetry,
            LineLimits(settings.max_waiting, settings.max_waiting_bytes, settings.deadline_seconds),
        )
        self._reading: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._answered_at = float("-inf")
        self._answered_together = 0
        self._typical_put = 0.0

    @property
    def idle(self) -> bool:
        return self._line.idle

    @property
    def waiting(self) -> int:
        """How many commits have no answer yet."""
        return self._line.length

    def waits(self, commit_id: str) -> bool:
        """Whether this replica is still busy with a commit: its outcome is not known yet."""
        return self._line.waits(commit_id)

    async def commit(self, intent: Intent) -> CommitOutcome:
        """Queue a commit and wait for its answer, at most until the deadline. ProblemError when the queue is full."""
        if self._closing:
            raise ProblemError("shutting-down", "the service is shutting down; send it again", retry_after=1.0)
        waiting = self._line.join(intent, self._table.tracker.ids.generation)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"committer {self._table.name}")
        self._wake.set()
        return await waiting.answer

    async def close(self, grace_seconds: float) -> None:
        """Answer everyone: what only waits is told to resend, what is in flight gets `grace_seconds` to settle."""
        self._closing = True
        await self._line.close(grace_seconds)
        tasks = [task for task in (self._task, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._slots.close()

    async def _run(self) -> None:
        failures = 0
        while not self._closing:
            if not self._line.queue:
                self._wake.clear()
                if not self._line.queue:
                    await self._wake.wait()
                # One turn of the loop: requests that are already here join this version instead of the next. Not when
                # some waited for the last version: theirs is on its way before the answers to that one are written.
                await asyncio.sleep(0)
            await self._let_answered_return()
            try:
                await self._round()
                failures = 0
            except ProblemError as problem:
                # The log could not be read: nobody in the queue was written, and everybody may try again.
                failures += 1
                if problem.code.kind is not Kind.UNAVAILABLE:
                    self._line.answer_queued(problem)
                else:
                    await self._world.sleep(self._slots.backoff(failures))
                    self._line.drop_answered()
            except Exception:
                _log.exception("the committer of %s failed; everyone waiting is told", self._table.name)
                self._line.give_up()
        # Those whose version was lost to another writer during the shutdown wait again, for nothing.
        self._line.send_away()

    async def _let_answered_return(self) -> None:
        """After a version for several, wait a moment while the clients it answered keep coming back.

        Writers that commit in a loop otherwise split into two halves that take turns, and half of what one PUT could
        carry is lost. It ends at the first poll without an arrival, or after a share of what a PUT costs there; an
        idle table, a lone writer and a store in memory never wait.
        """
        if self._answered_together < 2 or self._typical_put < LINGER_ABOVE_SECONDS:
            return
        until = self._answered_at + LINGER_SHARE * self._typical_put
        while self._world.monotonic() < until:
            before = self._line.arrived
            await self._world.sleep(LINGER_POLL_SECONDS)
            if self._line.arrived == before:
                return

    async def _round(self) -> None:
        """One trip through FORMING and, if there is anything to write, one slot."""
        await self._table.refresh(self._settings.head_max_age_seconds)
        foreign = await self._table.foreign_writer(self._settings.head_max_age_seconds)
        await self._answer_sealed()
        self._line.drop_answered()
        head = self._table.head
        batch, unsure = self._form()
        if batch.members and foreign is not None and not any(one.adopted_from is not None for one in batch.members):
            # Only now: what is in the log already is answered as what it is.
            self._line.answer_in_flight(foreign)
        elif batch.members:
            await self._write(batch, head)
        elif unsure:
            await self._table.refresh(0)
        if batch.needs_history:
            self._park(batch.needs_history)
        elif self.idle:
            self._older.forget()

    def _park(self, intents: list[Intent]) -> None:
        """Let commits whose winners left memory wait aside while those are read; the others go on."""
        parked = {id(intent) for intent in intents}
        self._line.parked += [w for w in self._line.queue if id(w.intent) in parked]
        self._line.requeue([w for w in self._line.queue if id(w.intent) not in parked])
        if self._line.parked and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_older(), name=f"older versions of {self._table.name}")

    async def _read_older(self) -> None:
        try:
            await self._older.load(min(w.intent.read_version or 0 for w in self._line.parked))
        except ProblemError as problem:
            if problem.code.kind is Kind.UNAVAILABLE:
                await self._world.sleep(self._slots.backoff(1))
            else:
                self._answer_planned_below(problem)
        except Exception:
            _log.exception("older versions of %s could not be read", self._table.name)
            fault = ProblemError("internal-error", "the commit was not written because of an internal error")
            self._line.answer_parked(fault)
        parked, self._line.parked = self._line.parked, []
        self._line.requeue([w for w in (*parked, *self._line.queue) if not w.answer.done()])
        self._wake.set()

    def _answer_planned_below(self, problem: ProblemError) -> None:
        """Answer the parked commits that need a damaged version: those planned below it, or all where none was."""
        damaged = self._table.log.paths.parse_version(str(problem.fields.get("object", "")))
        below = [w for w in self._line.parked if damaged is None or (w.intent.read_version or 0) < damaged]
        for waiting in below if self._table.opened and below else self._line.parked:
            self._line.answer(waiting, problem)

    async def _answer_sealed(self) -> None:
        """While a resend waited, its id may have come into the log and left the recent ones again."""
        while True:
            generation = self._table.tracker.ids.generation
            unsure = [w for w in self._line.queue if w.generation is not generation]
            if not unsure:
                return
            for waiting in unsure:
                try:
                    known = await self._table.find_sealed(waiting.intent.commit_id)
                except ProblemError as problem:
                    if problem.code.kind is Kind.UNAVAILABLE or not self._table.opened:
                        raise
                    # The version that it may be in is damaged, and the head does not depend on it: this one alone.
                    self._line.answer(waiting, problem)
                    known = None
                if known is not None:
                    intent = waiting.intent
                    self._line.answer(waiting, replayed(intent.commit_id, intent.request_hash, known))
                waiting.generation = generation

    def _form(self) -> tuple[Batch, list[Waiting]]:
        """FORMING: take what can go together; answer, defer or keep the rest in order.

        Also gives those that would be refused on a head last seen before they came. A refusal is final, and such a
        commit may be in the log already, through another replica: they stay until the head was seen again.
        """
        started = self._world.monotonic()
        by_intent = {id(w.intent): w for w in self._line.queue}
        batch = form(
            (w.intent for w in self._line.queue),
            self._table.tracker,
            floor=self._table.unreadable_below,
            limits=self._settings.limits,
            coalesce=bool(self._table.setting("commit.coalesce")),
            older_steps=self._older.after,
            defaults=self._table.log.defaults,
        )
        unsure = []
        for intent, answer in batch.answers:
            waiting = by_intent[id(intent)]
            if _refuses(answer) and self._table.tracker.observed_at < waiting.arrived:
                unsure.append(waiting)
            else:
                self._line.answer(waiting, answer)
        self._line.in_flight = [by_intent[id(intent)] for intent in batch.members]
        for waiting in self._line.in_flight:
            waiting.in_flight = True
            waiting.attempts += 1
        stay = {id(intent) for intent in (*batch.deferred, *batch.needs_history, *(w.intent for w in unsure))}
        self._line.requeue([w for w in self._line.queue if id(w.intent) in stay])
        self._telemetry.phase("forming", self._world.monotonic() - started)
        return batch, unsure

    async def _write(self, batch: Batch, head: Snapshot) -> None:
        """PUTTING and RESOLVING: settle the slot after `head`, on which the batch was formed, then act on it."""
        put_id = self._world.uuid7().hex
        at = version_time(self._world.now_ms(), head.timestamp, [one.commit_id for one in batch.members])
        record = compose(head.version + 1, at, put_id, batch.members, head.put_id)
        data = await self._encode(record, batch.members)
        put_started = self._world.monotonic()
        fresh = put_started - self._table.tracker.observed_at <= CHECK_AHEAD_AFTER_SECONDS
        async with Meanwhile(self._anything_after(record.version), near=fresh) as ahead:
            step = await self._slots.settle(record.version, put_id, data)
            behind = step is Step.WON and not fresh and await ahead
        put_seconds = self._world.monotonic() - put_started
        self._typical_put += 0.2 * (put_seconds - self._typical_put)
        self._telemetry.phase("putting", put_seconds)
        if step is Step.WON:
            if behind and not await self._is_followed(record):
                return
            self._table.advance(record, put_started)
            self._telemetry.batch_written(len(batch.members), len(record.actions), len(data))
            self._committed(record)
            if self._written is not None:
                self._written(self._table.location, record.version)
            self._answered_at = self._world.monotonic()
            self._answered_together = len(batch.members)
        elif step is Step.REFUSED:
            detail = f"the object store refused the write: {self._slots.refusal}; not committed, send it again"
            self._line.answer_in_flight(ProblemError("storage-refused", detail, retry_after=5.0))
        else:
            await self._lost(reload=step is Step.RELOAD)

    async def _anything_after(self, slot: int) -> bool:
        """Whether there are versions above a slot that is about to be won.

        Then the slot was a hole, unless another writer follows already. I/O: 1 LIST beside the PUT, for a head that is
        older than CHECK_AHEAD_AFTER_SECONDS. A store that does not answer says nothing; the next reader notices.
        """
        try:
            return await self._table.log.anything_after(slot)
        except StoreError:
            return False

    async def _is_followed(self, record: VersionRecord) -> bool:
        """Whether the versions behind a slot that was won follow it; else its members learn what is wrong.

        A table that had to be read again, from a state behind the slot, says nothing about the slot, but knows the ids
        of the commits before it: another replica may have erased or cleaned up what is below that state.
        """
        tracker = self._table.tracker
        try:
            await self._table.refresh(0)
        except ProblemError as problem:
            if problem.code.kind is Kind.UNAVAILABLE:
                return True
            self._line.answer_in_flight(problem)
            return False
        at = self._table.tracker.snapshot_at(record.version)
        if self._table.tracker is tracker or (at is not None and at.put_id == record.put_id):
            return True
        if at is None and await self._knows(record):
            return True
        detail = "the version file was missing while later versions exist, and a commit was written in its place"
        lost = CorruptObject(self._table.log.paths.version(record.version), detail)
        self._line.answer_in_flight(corrupt_problem(self._table.name, lost))
        return False

    async def _knows(self, record: VersionRecord) -> bool:
        """Whether the log, as it was read last, has the commits of this version there. I/O: a GET of the version."""
        commit_id = record.sub_commits[0].commit_id
        failures = 0
        while True:
            try:
                known = self._table.tracker.ids.recent(commit_id) or await self._table.find_sealed(commit_id)
                return known is not None and known.version == record.version
            except ProblemError as problem:
                if problem.code.kind is not Kind.UNAVAILABLE:
                    return False
                failures += 1
                await self._world.sleep(self._slots.backoff(failures))

    async def _lost(self, *, reload: bool) -> None:
        """LOST: learn what is there; the next FORMING answers members found there, the others go round again."""
        self._telemetry.slot_lost()
        started = self._world.monotonic()
        failures = 0
        while True:
            try:
                await (self._table.reload() if reload else self._table.catch_up())
                break
            except ProblemError as problem:
                # Another replica may have written a member into what we cannot read: they stay in flight.
                if problem.code.kind is not Kind.UNAVAILABLE:
                    self._line.answer_in_flight(problem)
                    return
                failures += 1
                await self._world.sleep(self._slots.backoff(failures))
        self._telemetry.phase("catching-up", self._world.monotonic() - started)
        members, self._line.in_flight = self._line.in_flight, []
        again = []
        for waiting in members:
            waiting.in_flight = False
            if waiting.answer.done():
                continue
            if (
                waiting.attempts >= int(self._table.setting("transaction.retry.maxAttempts"))
                and self._table.tracker.ids.recent(waiting.intent.commit_id) is None
            ):
                detail = f"lost {waiting.attempts} versions to other writers; not committed, send it again"
                self._line.answer(waiting, ProblemError("commit-contended", detail, retry_after=0.5))
            else:
                again.append(waiting)
        self._line.requeue([*again, *self._line.queue])

    def _committed(self, record: VersionRecord) -> None:
        """COMMITTED: everyone in the version is told together."""
        for seq, waiting in enumerate(self._line.in_flight):
            read = waiting.intent.read_version
            rebased = range(read + 1, record.version) if read is not None else range(0)
            waiting.in_flight = False
            self._line.answer(
                waiting,
                Committed(
                    commit_id=waiting.intent.commit_id,
                    version=record.version,
                    seq=seq,
                    timestamp=record.timestamp,
                    attempts=waiting.attempts,
                    rebased_over=tuple(rebased[-MAX_REBASED_LISTED:]),
                ),
            )
        self._line.in_flight = []

    async def _encode(self, record: VersionRecord, members: list[Intent]) -> bytes:
        started = self._world.monotonic()
        info = commit_info(record, ENGINE)
        lines = [intent.lines for intent in members]
        compress = bool(self._table.setting("transaction.compression.enabled"))
        if sum(map(len, lines)) > ENCODE_OFF_LOOP_ABOVE:
            data = await self._world.run_blocking(lambda: encode(info, lines, compress=compress))
        else:
            data = encode(info, lines, compress=compress)
        self._telemetry.phase("encoding", self._world.monotonic() - started)
        return data


def _refuses(answer: Answer) -> bool:
    """Whether an answer says that a commit is not in the log; the others rest on where it is."""
    return isinstance(answer, Conflicted) or (isinstance(answer, ProblemError) and answer.slug != "commit-id-reused")
