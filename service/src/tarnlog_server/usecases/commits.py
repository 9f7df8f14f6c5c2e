"""A client's commit, from request to outcome; and where a commit id is now."""

from __future__ import annotations

import contextlib
import functools

from tarnlog.protocol.commits import CommitOutcome, CommitRequest, Committed, Rejected, Unknown
from tarnlog.protocol.ids import TableName, commit_id_time_ms, parse_commit_id
from tarnlog.protocol.problems import CODES, TYPE_PREFIX, Kind, ProblemError
from tarnlog_server.core.coalesce import replayed
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS, IdAge, Known, id_age
from tarnlog_server.core.finality import refused_before_queueing
from tarnlog_server.core.intent import Intent
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.validate import invalid, prepare, request_hash
from tarnlog_server.usecases.filters import OFF_LOOP_ABOVE, sql_tree
from tarnlog_server.usecases.indexed_reads import IndexedReads
from tarnlog_server.usecases.open_tables import OpenTable, OpenTables

PREPARED_ON_LOOP = 1000
"""Actions of a commit that are prepared on the event loop: about ten milliseconds."""
MAX_SQL = 128 * 1024
"""Characters of all SQL filters of one commit."""

LONGEST_RETRY_SECONDS = 60.0
"""The longest pause that is advised after `clock-skew`: clocks may be set at any time."""


class Commits:
    """The verbs of committing."""

    def __init__(self, tables: OpenTables, indexed: IndexedReads | None = None) -> None:
        self._tables = tables
        self._indexed = indexed or IndexedReads()

    async def commit(self, name: TableName, request: CommitRequest, by: str | None = None) -> CommitOutcome:
        """Commit a request. Outcomes are values; ProblemError only for what never reached the table's queue.

        `by` is the id of the API key that sent it: the log keeps that of whoever was first with a commit id.
        """
        started = self._tables.world.monotonic()
        try:
            commit_id = self._commit_id(request.commit_id)
            table = await self._tables.get(name)
            outcome = await self._commit_to(table, request, commit_id, by)
            if isinstance(outcome, Rejected) and _table_is_gone(outcome) and not _read_anything(request):
                # Dropped and created again under us: a blind append goes to the table that has the name now.
                with contextlib.suppress(ProblemError):
                    again = await self._tables.get(name)
                    outcome = await self._commit_to(again, request, commit_id, by)
        except ProblemError as problem:
            self._count_refused(name, problem, started)
            raise
        self._count(name, outcome_name(outcome), started)
        return outcome

    async def submit(self, table: OpenTable, intent: Intent) -> CommitOutcome:
        """Queue an intent that the service made itself (PATCH, DROP, skips), deduplicated like a client's commit."""
        started = self._tables.world.monotonic()
        try:
            known, seen = await self._known_or_new(table, intent.commit_id)
            if known is None:
                check_writable(table)
                outcome = await self._settled(table, intent, seen)
            else:
                outcome = _replayed(intent.commit_id, intent.request_hash, known)
        except ProblemError as problem:
            self._count_refused(table.live.name, problem, started)
            raise
        self._count(table.live.name, outcome_name(outcome), started)
        return outcome

    async def status(self, name: TableName, text: str) -> Committed | Unknown:
        """Where a commit id is. ProblemError `commit-not-found` (never final) or `commit-id-out-of-window`.

        A commit that is found is reported, however old its id is.
        """
        commit_id = self._commit_id(text)
        table = await self._tables.get(name)
        head = await table.live.refresh(0)
        ids = table.live.tracker.ids
        known = ids.recent(commit_id)
        if known is None and ids.candidates(commit_id):
            known = await self._indexed.outcome(table.live, commit_id)
        if known is None:
            try:
                known = await table.live.find_sealed(commit_id)
            except ProblemError as problem:
                if problem.slug != "commit-id-expired":
                    raise
                raise ProblemError("commit-id-out-of-window", problem.detail) from problem
        if known is not None:
            return Committed(
                commit_id=commit_id, version=known.version, seq=known.seq, timestamp=known.timestamp, replayed=True
            )
        if table.committer.waits(commit_id):
            return Unknown(commit_id=commit_id, retry_after=1.0)
        if self._age(table, commit_id) in (IdAge.EXPIRED, IdAge.LOG_AHEAD):
            seconds = _window(table) // 1000
            detail = f"commit {text} is older than the {seconds} s that ids are remembered; look in the history"
            raise ProblemError("commit-id-out-of-window", detail)
        raise ProblemError(
            "commit-not-found",
            "the commit is not in these versions of the log; that is never final: resend it with the same commitId",
            commitId=commit_id,
            fromVersion=max(table.live.oldest, table.live.floor),
            asOfVersion=head.version,
        )

    async def _commit_to(
        self, table: OpenTable, request: CommitRequest, commit_id: str, by: str | None
    ) -> CommitOutcome:
        known, seen = await self._known_or_new(table, commit_id)
        if known is not None:
            return _replayed(commit_id, request_hash(request), known)
        try:
            intent = await self._admitted(table, request, commit_id)
        except ProblemError:
            # This replica may not know the newest versions: they may hold this commit, or a column that it names.
            await table.live.refresh(0)
            known = await self._find(table, commit_id)
            if known is not None:
                return _replayed(commit_id, request_hash(request), known)
            seen = table.live.tracker.ids.generation
            try:
                intent = await self._admitted(table, request, commit_id)
            except ProblemError as problem:
                raise refused_before_queueing(problem, table.live.head.version) from None
        intent.committed_by = by
        return await self._settled(table, intent, seen)

    async def _admitted(self, table: OpenTable, request: CommitRequest, commit_id: str) -> Intent:
        """The intent of a request that may be queued. Raises ProblemError."""
        check_writable(table)
        intent = await self._prepared(table, request, commit_id)
        limit = int(table.live.setting("commit.maxBytes"))
        if intent.size > limit:
            detail = f"the actions are {intent.size} bytes, above commit.maxBytes = {limit}: split the commit"
            raise ProblemError("commit-too-large", detail)
        return intent

    async def _find(self, table: OpenTable, commit_id: str) -> Known | None:
        """Where an id is, as far as this replica has read the log."""
        known = table.live.tracker.ids.recent(commit_id)
        return known if known is not None else await table.live.find_sealed(commit_id)

    async def _known_or_new(self, table: OpenTable, commit_id: str) -> tuple[Known | None, object]:
        """Where an id is, or None for one that may be committed; and up to which generation of ids that holds.

        The lookup comes first: what is in the log is answered from the log, whatever any clock says. An unknown id
        whose age is in doubt is looked up again in the newest versions. Then: ProblemError `commit-id-expired`, or
        `clock-skew`, which is never final.
        """
        known = await self._find(table, commit_id)
        if known is None and self._age(table, commit_id) is not IdAge.USABLE:
            await table.live.refresh(0)
            known = await self._find(table, commit_id)
            if known is None:
                self._check_age(table, commit_id)
        return known, table.live.tracker.ids.generation

    async def _settled(self, table: OpenTable, intent: Intent, seen: object) -> CommitOutcome:
        """What became of an id that left the recent ones since it was looked up, or else what the committer says."""
        if table.live.tracker.ids.generation is not seen:
            known = await table.live.find_sealed(intent.commit_id)
            if known is not None:
                return _replayed(intent.commit_id, intent.request_hash, known)
        return await table.committer.commit(intent)

    def _count(self, table: TableName, outcome: str, started: float) -> None:
        self._tables.telemetry.commit_answered(str(table), outcome, self._tables.world.monotonic() - started)

    def _count_refused(self, table: TableName, problem: ProblemError, started: float) -> None:
        """What never reached the queue counts too."""
        self._count(table, "not-now" if problem.code.kind is Kind.UNAVAILABLE else "rejected", started)

    async def _prepared(self, table: OpenTable, request: CommitRequest, commit_id: str) -> Intent:
        """The intent of a request; a large one is prepared beside the loop, so that the small ones go on."""
        head = table.live.head
        metadata = head.metadata
        if metadata is None:
            raise ProblemError("table-read-only", "the log has no metaData, so nothing can be committed to it")
        world = self._tables.world
        ready = functools.partial(
            prepare,
            request,
            commit_id,
            partition_columns=metadata.partition_columns,
            schema=schema_of(metadata.schema_string),
            now_ms=world.now_ms(),
            truncation=head.truncation,
            sql=sql_tree,
        )
        sql_size = sum(len(asked) for asked in request.reads.filters if isinstance(asked, str))
        if sql_size > MAX_SQL:
            message = f"the SQL filters of a commit have {sql_size} characters, at most {MAX_SQL} are read: send trees"
            raise invalid([{"pointer": "/reads/filters", "message": message}])
        quick = len(request.actions) <= PREPARED_ON_LOOP and sql_size <= OFF_LOOP_ABOVE
        return ready() if quick else await world.run_blocking(ready)

    def _commit_id(self, text: str | None) -> str:
        if text is None:
            return str(self._tables.world.uuid7())
        try:
            return parse_commit_id(text)
        except ValueError as error:
            raise invalid([{"pointer": "/commitId", "message": str(error)}]) from error

    def _age(self, table: OpenTable, commit_id: str) -> IdAge:
        complete_since = table.live.tracker.ids.complete_since_ms
        return id_age(commit_id, self._tables.world.now_ms(), _window(table), complete_since)

    def _check_age(self, table: OpenTable, commit_id: str) -> None:
        """Refuse an id that is not in the log and whose age does not allow to commit it."""
        age = self._age(table, commit_id)
        if age is IdAge.EXPIRED:
            detail = (
                "the commit id is older than the ids that are remembered (commit.dedupe.duration), so it cannot be "
            )
            detail += "determined whether it was committed; look in the history, then make a new id"
            raise ProblemError("commit-id-expired", detail, commitId=commit_id)
        ahead = commit_id_time_ms(commit_id) - self._tables.world.now_ms()
        if age is IdAge.FUTURE:
            detail = (
                f"the time inside the commit id is {ahead // 1000} s ahead of this service's clock, more than the 15 "
            )
            detail += "minutes that are allowed; not committed: set the clock that is wrong, or resend later"
            wait = min(max((ahead - CLOCK_TOLERANCE_MS) / 1000, 1.0), LONGEST_RETRY_SECONDS)
            raise ProblemError("clock-skew", detail, retry_after=wait, commitId=commit_id)
        if age is IdAge.LOG_AHEAD:
            detail = "the newest state of this table was written by a clock that was ahead, or this service's clock is "
            detail += (
                "behind: whether this id was committed before cannot be determined yet; set the clock, or resend later"
            )
            raise ProblemError("clock-skew", detail, retry_after=LONGEST_RETRY_SECONDS, commitId=commit_id)


def _replayed(commit_id: str, sent_hash: str, known: Known) -> Committed | Rejected:
    """The answer to an id that is in the log; `commit-id-reused` when that was another body."""
    answer = replayed(commit_id, sent_hash, known)
    if isinstance(answer, ProblemError):
        return Rejected(commit_id=commit_id, problem=answer.document())
    return answer


def check_writable(table: OpenTable) -> None:
    """ProblemError when the table may not be written by this service."""
    if table.live.read_only:
        raise ProblemError(
            "table-read-only",
            "the table is registered read-only; register it again with foreignWritersStopped: true to write to it",
        )
    lacking = unsupported_for_writing(table.live.head.protocol)
    if lacking is not None:
        raise ProblemError("protocol-not-supported", f"writing to this table needs {lacking}")


def outcome_name(outcome: CommitOutcome) -> str:
    """What metrics call an outcome."""
    if isinstance(outcome, Committed):
        return "replayed" if outcome.replayed else "committed"
    return {"Conflicted": "conflict", "Rejected": "rejected", "NotNow": "not-now", "Unknown": "unknown"}[
        type(outcome).__name__
    ]


def _window(table: OpenTable) -> int:
    return int(table.live.setting("commit.dedupe.duration"))


def _table_is_gone(outcome: Rejected) -> bool:
    return bool(outcome.problem["type"] == TYPE_PREFIX + CODES["table-not-found"].slug)


def _read_anything(request: CommitRequest) -> bool:
    return request.read_version is not None
