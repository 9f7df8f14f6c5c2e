"""Commits from request to answer: resends wherever they arrive, ids of every age, and limits that really refuse."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest

from tarnlog.protocol.commits import Committed, Conflicted, NotNow, Rejected, Unknown
from tarnlog.protocol.ids import uuid7
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases.committer import CommitterSettings
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    remove_line,
    send,
    set_properties,
    together,
    version_key,
)

FORGETFUL = CommitterSettings(window=Window(versions=2, weight=4, snapshots=2, recent_ids=2))


async def test_what_the_log_says_about_a_commit(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    made = str(warehouse.world.uuid7())
    done = await commit(
        replica,
        add_line("x"),
        commitId=made,
        operation="IMPORT",
        operationParameters={"from": "a.csv"},
        operationMetrics={"rows": 2},
    )
    assert done == Committed(commit_id=made, version=1, seq=0, timestamp=done.timestamp, attempts=1)
    info, line = map(msgspec.json.decode, warehouse.store.raw(version_key(warehouse.log(view), 1)).splitlines())
    (sub,) = info["commitInfo"]["subCommits"]
    hashed = sub.pop("requestHash")
    assert len(hashed) == 64
    assert sub == {
        "commitId": made,
        "seq": 0,
        "operation": "IMPORT",
        "operationParameters": {"from": "a.csv"},
        "operationMetrics": {"rows": 2},
        "isBlindAppend": True,
        "isolation": "write-serializable",
        "actionCount": 1,
    }
    assert line == add_line("x")


async def test_a_resend_gets_the_first_answer_on_any_replica_with_any_read_version(warehouse: Warehouse) -> None:
    """Also after a fail-over, and when the client read the table again in between."""
    first = warehouse.replica()
    await create(first)
    await commit(first, add_line("a"))
    made = str(warehouse.world.uuid7())
    done = await commit(first, remove_line("a"), add_line("b"), commitId=made, readVersion=1, operation="UPDATE")
    await first.close(0)
    for settings in (CommitterSettings(), FORGETFUL):
        other = warehouse.replica(settings=settings)
        for read_version in (0, 1, 2):
            again = await commit(
                other, remove_line("a"), add_line("b"), commitId=made, readVersion=read_version, operation="UPDATE"
            )
            assert again == msgspec.structs.replace(done, replayed=True, rebased_over=())
    assert await files(warehouse.replica()) == ["b"]


@pytest.mark.parametrize("settings", [CommitterSettings(), FORGETFUL], ids=["remembering", "forgetful"])
async def test_ids_are_known_however_many_came_after(warehouse: Warehouse, settings: CommitterSettings) -> None:
    replica = warehouse.replica(settings=settings)
    await create(replica)
    made = [str(warehouse.world.uuid7()) for _ in range(20)]
    done = [await commit(replica, add_line(f"f{n}"), commitId=one) for n, one in enumerate(made)]
    for reader in (replica, warehouse.replica(settings=settings)):
        for number, one in enumerate(made):
            again = await commit(reader, add_line(f"f{number}"), commitId=one)
            assert (again.version, again.seq, again.replayed) == (done[number].version, 0, True)
            status = await reader.commits.status(ORDERS, one)
            assert isinstance(status, Committed)
            assert (status.version, status.timestamp) == (done[number].version, done[number].timestamp)
            try:
                outcome: Any = await send(reader, add_line("another"), commitId=one)
            except ProblemError as problem:
                outcome = Rejected(commit_id=one, problem=problem.document())
            assert isinstance(outcome, Rejected)
            assert outcome.problem["type"].endswith("commit-id-reused")
            assert outcome.problem["version"] == done[number].version
    assert len(await files(replica)) == 20


async def test_the_same_commit_sent_many_times_at_once_is_placed_once(warehouse: Warehouse) -> None:
    replicas = [warehouse.replica() for _ in range(3)]
    await create(replicas[0])
    made = str(warehouse.world.uuid7())
    outcomes = await asyncio.gather(
        *(commit(replica, add_line("x"), commitId=made) for replica in replicas for _ in range(5))
    )
    assert {(one.version, one.seq, one.timestamp) for one in outcomes} == {(1, 0, outcomes[0].timestamp)}
    assert sum(not one.replayed for one in outcomes) == 1
    history = await replicas[0].history.commits(ORDERS, None, None, "asc", 100, None, 0)
    assert [one.commit_id for one in history.commits].count(made) == 1


async def test_ids_of_every_age(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    now, rng = warehouse.world.now_ms(), warehouse.world.rng
    day = 24 * 3_600_000
    for at, slug in (
        (now - day - 1, "commit-id-expired"),
        (0, "commit-id-expired"),
        (now + 15 * 60_000 + 1, "clock-skew"),
    ):
        with refused(slug):
            await send(replica, add_line("x"), commitId=str(uuid7(at, rng)))
    for at in (now - day, now, now + 15 * 60_000):
        await commit(replica, add_line(f"f{at}"), commitId=str(uuid7(at, rng)))
    with refused("commit-invalid"):
        await send(replica, add_line("x"), commitId="00000000-0000-4000-8000-000000000000")
    with refused("commit-id-out-of-window"):
        await replica.commits.status(ORDERS, str(uuid7(now - day - 1, rng)))


async def test_the_window_is_a_property_of_the_table(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, properties={"commit.dedupe.duration": "1h"})
    known, unknown = str(warehouse.world.uuid7()), str(warehouse.world.uuid7())
    done = await commit(replica, add_line("x"), commitId=known)
    warehouse.world.advance(3601)
    with refused("commit-id-expired"):
        await send(replica, add_line("x"), commitId=unknown)
    # What is in the log is answered from the log, however old the id is.
    assert (await commit(replica, add_line("x"), commitId=known)).version == done.version
    assert await files(replica) == ["x"]


async def test_a_commit_that_is_not_in_the_log_is_never_final(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    made = str(warehouse.world.uuid7())
    with refused("commit-not-found") as caught:
        await replica.commits.status(ORDERS, made)
    assert (caught.value.fields["fromVersion"], caught.value.fields["asOfVersion"]) == (0, 0)
    assert "never final" in caught.value.detail
    await commit(replica, add_line("x"), commitId=made)
    assert isinstance(await warehouse.replica().commits.status(ORDERS, made), Committed)


async def test_without_an_id_the_service_makes_one(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    one, other = await together(replica, "a", "b")
    assert one.commit_id != other.commit_id
    assert isinstance(await replica.commits.status(ORDERS, one.commit_id), Committed)


# several in one version ---------------------------------------------------------------------------------------------
async def test_commits_that_wait_together_share_a_version(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    view = await create(replica)
    done = await together(replica, *(f"f{n}" for n in range(50)))
    assert {one.version for one in done} == {1}
    assert [one.seq for one in done] == list(range(50))
    assert len(warehouse.store.keys(warehouse.log(view))) == 2
    assert (await warehouse.replica().tables.describe(ORDERS)).num_files == 50


async def test_a_version_each_where_that_is_asked_for(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    alone = await asyncio.gather(*(commit(replica, add_line(f"a{n}"), coalesce=False) for n in range(3)))
    assert sorted(one.version for one in alone) == [1, 2, 3]
    await replica.tables.alter(ORDERS, set_properties(commit__coalesce="false"))
    assert sorted(one.version for one in await together(replica, "b", "c")) == [5, 6]


async def test_replicas_that_fight_for_slots_lose_nothing(warehouse: Warehouse) -> None:
    replicas = [warehouse.replica() for _ in range(3)]
    await create(replicas[0])
    outcomes = await asyncio.gather(
        *(commit(replica, add_line(f"f{n}.{at}")) for at in range(10) for n, replica in enumerate(replicas))
    )
    places = [(one.version, one.seq) for one in outcomes]
    assert len(set(places)) == 30
    assert sorted(await files(warehouse.replica())) == sorted(f"f{n}.{at}" for n in range(3) for at in range(10))
    history = await replicas[0].history.commits(ORDERS, None, None, "asc", 100, None, 0)
    assert {(one.commit_id, (one.version, one.seq)) for one in history.commits if one.version} == set(
        zip((one.commit_id for one in outcomes), places, strict=True)
    )


async def test_a_conflict_is_told_with_its_winner_also_from_another_replica(warehouse: Warehouse) -> None:
    one, other = warehouse.replica(), warehouse.replica(settings=FORGETFUL)
    await create(one)
    await commit(one, add_line("a"), add_line("b"))
    winner = await commit(one, remove_line("a"), readVersion=1)
    for number in range(5):
        await commit(one, add_line(f"later{number}"))
    outcome = await send(other, remove_line("a"), readVersion=1)
    assert isinstance(outcome, Conflicted)
    assert (outcome.rule, outcome.paths) == ("delete-delete", ("a",))
    assert [(w.version, w.commit_id) for w in outcome.winners] == [(winner.version, winner.commit_id)]
    done = await commit(other, remove_line("b"), readVersion=1)
    assert done.rebased_over == tuple(range(2, 8))


async def test_a_read_version_above_the_head_is_looked_for_then_refused(warehouse: Warehouse) -> None:
    one, behind = warehouse.replica(), warehouse.replica()
    await create(one)
    await files(behind)
    await commit(one, add_line("a"))
    assert isinstance(await send(behind, remove_line("a"), readVersion=1), Committed), "it looks before it refuses"
    outcome = await send(behind, add_line("b"), readVersion=9, reads={"wholeTable": True})
    assert isinstance(outcome, Rejected)
    assert outcome.problem["errors"][0]["pointer"] == "/readVersion"


# limits -------------------------------------------------------------------------------------------------------------
async def test_a_commit_above_max_bytes_is_refused(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, properties={"commit.maxBytes": "2000"})
    with refused("commit-too-large"):
        await send(replica, *(add_line(f"f{n}") for n in range(50)))
    assert isinstance(await send(replica, add_line("x")), Committed)


async def test_the_queue_is_bounded_and_loses_nothing(warehouse: Warehouse) -> None:
    settings = dataclasses.replace(CommitterSettings(), max_waiting=10)
    replica = warehouse.replica(settings=settings)
    await create(replica)
    results = await asyncio.gather(*(send(replica, add_line(f"f{n}")) for n in range(50)), return_exceptions=True)
    done = {f"f{n}" for n, one in enumerate(results) if isinstance(one, Committed)}
    turned_away = [one for one in results if isinstance(one, ProblemError)]
    assert len(done) + len(turned_away) == 50
    assert turned_away
    for problem in turned_away:
        assert (problem.slug, problem.code.status) == ("too-many-waiting", 429)
        assert problem.retry_after is not None
    assert set(await files(replica)) == done
    assert isinstance(await send(replica, add_line("after")), Committed), "and it goes on afterwards"


async def test_every_answer_is_counted(warehouse: Warehouse) -> None:
    class Counting(Telemetry):
        def __init__(self) -> None:
            self.outcomes: list[str] = []

        def commit_answered(self, table: str, outcome: str, seconds: float) -> None:
            self.outcomes.append(outcome)

    telemetry = Counting()
    replica = warehouse.replica(telemetry=telemetry, settings=CommitterSettings(max_waiting=1))
    await create(replica)
    commit_id = str(warehouse.world.uuid7())
    await commit(replica, add_line("a"), commitId=commit_id)
    await commit(replica, add_line("a"), commitId=commit_id)
    await send(replica, add_line("z"), readVersion=0, reads={"wholeTable": True}, isolation="serializable")
    with refused("commit-invalid"):
        await send(replica, add_line("../out"))
    with refused("commit-id-expired"):
        await send(replica, add_line("b"), commitId=str(uuid7(1, warehouse.world.rng)))
    both = await asyncio.gather(*(send(replica, add_line(name)) for name in "bc"), return_exceptions=True)
    assert sorted(type(one).__name__ for one in both) == ["Committed", "ProblemError"]
    expected = ["committed", "replayed", "conflict", "rejected", "rejected"]
    assert telemetry.outcomes[:5] == expected
    assert sorted(telemetry.outcomes[5:]) == ["committed", "not-now"]


async def test_closing_answers_everyone(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await files(replica)
    waiting = [asyncio.create_task(send(replica, add_line(f"f{n}"))) for n in range(5)]
    await asyncio.sleep(0)
    await replica.open_tables.close(1)
    outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    landed = set(await files(warehouse.replica()))
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Committed | NotNow | Unknown | ProblemError), outcome
        if isinstance(outcome, Committed):
            assert f"f{number}" in landed
        if isinstance(outcome, NotNow | ProblemError):
            assert f"f{number}" not in landed
