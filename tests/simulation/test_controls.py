"""Controls: break the service or its store on purpose, and see that the checker notices within a few seeds.

A check that cannot fail proves nothing. Each control breaks one promise the way a plausible bug would.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec import index_rows
from tarnlog_server.codec.version_file import CorruptObject, decode
from tarnlog_server.core import coalesce, dedupe, finality, retention_plan
from tarnlog_server.core.dedupe import CommitIds, IdAge
from tarnlog_server.core.finalize import finalize
from tarnlog_server.core.protected_files import Why
from tarnlog_server.core.ratify import Fact, Ratify, Step
from tarnlog_server.core.retention_facts import LogFacts
from tarnlog_server.core.routing import with_commit_id
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.core.vacuum_plan import VacuumPlan
from tarnlog_server.core.vacuum_references import References
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.usecases import commits, committer, records, table_log, vacuum, vacuum_run, waiting_line
from tarnlog_server.usecases.commits import Commits
from tarnlog_server.usecases.forwarding import Forwarded, Forwarding
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_log import LogOpener, Opened
from tarnlog_server.usecases.state_read import Broken
from tarnlog_server.usecases.table_log import TableLog
from tarnlog_server.usecases.vacuum_run import VacuumRun
from tests.simulation.checker import check
from tests.simulation.damage import run_damaged
from tests.simulation.index import IndexFaults
from tests.simulation.plan import TORN, Plan
from tests.simulation.run import Run, run

MAX_SEEDS = 150


def assert_caught(*words: str, of: Callable[..., Run] = run, **options: Any) -> None:
    """Some seed has a violation that says one of `words`."""
    seen: set[str] = set()
    for seed in range(MAX_SEEDS):
        found = of(seed, **options)
        faults = check(found.journal, found.objects, found.created)
        if any(word in fault for fault in faults for word in words):
            return
        seen.update(fault[:200] for fault in faults)
    raise AssertionError(f"{MAX_SEEDS} seeds and nobody noticed; instead: {sorted(seen)[:5]}")


def test_a_store_whose_conditional_create_overwrites() -> None:
    assert_caught("it is not in the log", "was replaced", broken_create=True)


def test_a_timeout_taken_for_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Ratify._after_put
    monkeypatch.setattr(
        Ratify, "_after_put", lambda self, fact: Step.REFUSED if fact is Fact.UNKNOWN else right(self, fact)
    )
    assert_caught("every answer said that it is not committed")


def test_a_deadline_that_claims_nothing_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    right = waiting_line.WaitingLine._past_deadline

    def wrong(self: Any, waiting: Any) -> None:
        in_flight, waiting.in_flight = waiting.in_flight, False
        right(self, waiting)
        waiting.in_flight = in_flight

    monkeypatch.setattr(waiting_line.WaitingLine, "_past_deadline", wrong)
    assert_caught("every answer said that it is not committed")


def test_commit_ids_that_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitIds, "record", lambda self, record: None)
    assert_caught("is in versions")


def test_commit_ids_that_are_forgotten_at_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LogOpener.open

    async def wrong(self: LogOpener, broken: Broken) -> Opened:
        opened = await right(self, broken)
        opened.tracker.ids = CommitIds()
        return opened

    monkeypatch.setattr(LogOpener, "open", wrong)
    assert_caught("is in versions")


def test_no_conflict_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "find_conflict", lambda *_: None)
    assert_caught("undetected conflict")


def test_a_removed_file_that_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "find_conflict", lambda *_: None)
    monkeypatch.setattr(coalesce, "find_missing_files", lambda *_: None)
    assert_caught("which is not live")


def test_progress_of_a_stream_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "find_recorded_progress", lambda *_: None)
    assert_caught("takes shared from")


def test_members_of_one_version_that_depend_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce._Taken, "depends", lambda *_: False)
    assert_caught("undetected conflict", "not live", "takes shared from")


def test_a_head_that_is_never_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(self: LiveTable) -> None:
        self.tracker.observed_at = self._world.monotonic()

    monkeypatch.setattr(LiveTable, "_look", wrong)
    assert_caught("is too old")


def test_timestamps_of_the_own_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "version_time", lambda own, *_: own)
    assert_caught("its timestamp")


def test_a_patch_made_of_what_it_saw_first(monkeypatch: pytest.MonkeyPatch) -> None:
    right = finalize

    def wrong(intent: Any, head: Any, *settings: Any) -> None:
        if intent.evaluate is not None and intent.actions:
            actions = intent.actions
            intent.evaluate = lambda _: actions
        right(intent, head, *settings)

    monkeypatch.setattr(coalesce, "finalize", wrong)
    assert_caught("the patch {")


def _meddled(plan: Plan) -> Plan:
    """An index that somebody meddles with, and clients that look back."""
    window = Window(versions=1, weight=1, snapshots=1, recent_ids=0)
    return dataclasses.replace(
        plan,
        index=IndexFaults(meddled=0.3),
        committer=dataclasses.replace(plan.committer, window=window),
        outsider=False,
        max_open_tables=1000,
        think=0.5,
        mix={**plan.mix, "look_back": 4.0},
    )


def test_an_index_that_is_meddled_with_harms_nobody() -> None:
    """The same as below with the checks of rows in place: what is caught there is not the index itself."""
    for seed in range(10):
        found = run(seed, adjust=_meddled)
        assert check(found.journal, found.objects, found.created) == [], f"seed {seed}"


def test_an_index_that_is_believed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rows, "_check", lambda *_: None)
    assert_caught("it is not the history", adjust=_meddled)


def _torn(plan: Plan) -> Plan:
    """Replicas that share leases over a bad network."""
    return dataclasses.replace(plan, routing=TORN, think=max(plan.think, 0.1), lulls=())


def test_a_commit_without_an_answer_that_is_written_again_under_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Forwarding.attempt

    async def wrong(self: Forwarding, table: str, body: bytes, headers: dict[str, str]) -> Forwarded:
        sent = await right(self, table, body, headers)
        if not sent.unsure:
            return sent
        return msgspec.structs.replace(sent, body=with_commit_id(sent.body, str(self._world.uuid7())))

    monkeypatch.setattr(Forwarding, "attempt", wrong)
    assert_caught("nobody sent what is in the log", adjust=_torn)


def test_a_lost_answer_that_is_told_as_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner may have written it: nobody may be told that it can never be."""
    right = Forwarding.attempt

    async def wrong(self: Forwarding, table: str, body: bytes, headers: dict[str, str]) -> Forwarded:
        sent = await right(self, table, body, headers)
        if sent.unsure:
            raise ProblemError("commit-invalid", "the owner of the table did not answer", errors=[])
        return sent

    monkeypatch.setattr(Forwarding, "attempt", wrong)
    assert_caught("every answer said that it is not committed", "it is in the log at", adjust=_torn)


def _moody(plan: Plan) -> Plan:
    """Commits that arrive late, of files that are added again and removed all the time."""
    mix = {"append": 1.0, "add_again": 3.0, "remove": 3.0}
    late = dataclasses.replace(TORN, lost_request=0.0, lost_answer=0.0, late_request=0.5)
    return dataclasses.replace(plan, routing=late, lulls=(), mix=mix, think=0.3, steps=14, cleanup=False)


def test_a_refusal_of_one_head_that_is_told_for_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner may write the commit on a later head."""
    monkeypatch.setattr(finality, "AS_OF", "nobodyReadsThis")
    monkeypatch.setattr(coalesce, "conflict_on", lambda conflict, *_: conflict)
    assert_caught("it is in the log at", adjust=_moody)


def _stepping(plan: Plan) -> Plan:
    """Replicas whose clocks are set all the time, with states and little memory."""
    window = Window(versions=2, weight=10, snapshots=1, recent_ids=0)
    return dataclasses.replace(
        plan,
        cleanup=False,
        lulls=(),
        clock_steps=0.3,
        crashes=3,
        properties={**plan.properties, "commit.dedupe.duration": "1h"},
        committer=dataclasses.replace(plan.committer, window=window),
        mix={"append": 1.0, "state": 1.0, "skip": 1.0, "look_back": 2.0},
    )


def test_an_age_that_is_judged_before_the_id_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Commits._known_or_new

    async def wrong(self: Commits, table: Any, commit_id: str) -> Any:
        age = self._age(table, commit_id)
        if age is IdAge.FUTURE:
            raise ProblemError("commit-invalid", "it is from the future; nothing was written", errors=[])
        if age is IdAge.EXPIRED:
            raise ProblemError("commit-id-expired", "it is too old")
        return await right(self, table, commit_id)

    monkeypatch.setattr(Commits, "_known_or_new", wrong)
    assert_caught("it is in the log at", "it was in the log at", adjust=_stepping)


def test_ids_that_a_clock_ahead_forgets_and_takes_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", 0)
    monkeypatch.setattr(commits, "id_age", lambda commit_id, now, window, _: dedupe.id_age(commit_id, now, window))
    assert_caught("is in versions", "it is in version", adjust=_stepping)


def test_versions_that_go_without_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        retention_plan,
        "version_gates",
        lambda facts, _: lambda version, age: None if version < facts.head else "newest",
    )
    assert_caught("before a floor was a day above it")


def test_a_floor_that_is_believed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_plan, "FLOOR_RIPE_MS", 0)
    assert_caught("before a floor was a day above it")


def test_states_of_floors_that_go_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogFacts, "pinned", property(lambda _: frozenset()))
    assert_caught("the state of the floor", "has no state")


def test_a_floor_that_readers_do_not_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveTable, "raise_floor", lambda *_: None)
    assert_caught("is below the floor")


def test_a_vacuum_that_does_not_ask_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(References, "leads_to", lambda *_: False)
    assert_caught("has it")


def test_a_vacuum_that_asks_the_newest_version_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time travel would lead to files that are gone."""

    async def wrong(self: VacuumRun) -> int:
        head = self._live.head
        self._references.add_files(add for _, add in head.rows())
        return head.version

    monkeypatch.setattr(VacuumRun, "_read_base", wrong)
    assert_caught("has it")


def test_a_vacuum_that_forgets_what_was_just_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(References, "add_removed", lambda *_: None)
    assert_caught("s before")


def test_a_vacuum_that_deletes_the_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "retention", lambda *_, **__: 0)
    assert_caught("s old")


def test_a_vacuum_that_knows_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(_: LiveTable) -> list[Any]:
        return []

    monkeypatch.setattr(vacuum_run, "read_sessions", wrong)
    assert_caught("covers it", "nobody wrote it again")


def test_a_vacuum_that_leaves_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VacuumPlan, "why_kept", lambda *_: Why.YOUNG)
    assert_caught("is an orphan")


def test_a_horizon_that_forgets_the_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time travel would end earlier than retention promises: the floor must not pass what is young."""
    monkeypatch.setattr(retention_plan, "_horizon", lambda facts, settings, low: facts.head)
    assert_caught("was passed by the floor")


def test_a_hole_that_is_taken_for_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TableLog._listed_from

    async def wrong(self: TableLog, first: int) -> tuple[list[int], int | None]:
        return (await right(self, first))[0], None

    monkeypatch.setattr(TableLog, "_listed_from", wrong)
    assert_caught("is too old", "it is not in the log", of=run_damaged, kinds=("hole",))


def test_a_slot_that_is_written_by_a_replica_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists every minute; without the listing beside its PUT it fills a hole that came in between."""
    monkeypatch.setattr(committer, "CHECK_AHEAD_AFTER_SECONDS", float("inf"))
    assert_caught("it is not in the log", of=run_damaged, kinds=("hole",))


def test_a_chain_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_log, records):
        monkeypatch.setattr(module, "chain_fault", lambda *_: None)
    assert_caught("has other files", "shows other adds", of=run_damaged, kinds=("fork",))


def test_a_file_in_a_wrong_slot_that_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(key: str, version: int, data: bytes) -> VersionRecord:
        try:
            return decode(key, version, data)
        except CorruptObject as error:
            copied = re.search(r"the file of version (\d+)", str(error))
            if copied is None:
                raise
            return msgspec.structs.replace(decode(key, int(copied[1]), data), version=version)

    for module in (table_log, records):
        monkeypatch.setattr(module, "chain_fault", lambda *_: None)
    monkeypatch.setattr(table_log, "decode", wrong)
    assert_caught("is from the future", "has other files", "is not in the log", of=run_damaged)


def test_damage_of_the_past_that_closes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(self: LiveTable, version: int, damage: CorruptObject) -> ProblemError:
        try:
            with self.translated(close=True):
                raise damage
        except ProblemError as problem:
            return problem

    monkeypatch.setattr(LiveTable, "damaged", wrong)
    assert_caught("which a state covers, stopped it", of=run_damaged)
