"""Named stories of the commit protocol, each small enough to read: what happens, and what everyone must be told."""

from __future__ import annotations

import asyncio

from tarnlog.protocol.ids import TableName
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tests.simulation.plan import KEPT
from tests.simulation.stage import TABLE, Stage, play
from tests.simulation.storage import Faults

DAY = 24 * 3600.0


def test_an_idle_replica_that_wakes_after_cleanup_goes_on_behind_the_head() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.two)
        for _ in range(5):
            await stage.commit(stage.one)
        await asyncio.sleep(DAY)
        await stage.sim.cleanup(stage.one, TABLE)
        await asyncio.sleep(DAY)
        await stage.sim.cleanup(stage.one, TABLE)
        assert stage.slots() == [f"{6:020d}.json"]
        # It knows version 1. The slot after that is free, and writing there would be a commit that nobody ever sees.
        sent = await stage.commit(stage.two)
        assert (sent.outcome, sent.answer["version"]) == ("committed", 7)
        assert stage.slots() == [f"{version:020d}.json" for version in (6, 7)]
        planned = stage.append(readVersion=1, reads={"wholeTable": True})
        assert (await stage.commit(stage.two, planned)).answer["rule"] == "expired"

    play(story, properties=KEPT)


def test_a_table_dropped_and_created_again_under_a_stale_replica() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.two)
        old = stage.log()
        await stage.sim.drop(stage.one, TABLE, purge=False)
        await stage.sim.create(stage.one, TABLE)
        assert stage.log().id != old.id
        # The stale replica still has the old table open. A blind append belongs to whatever has the name now.
        appended = await stage.commit(stage.two)
        assert (appended.outcome, appended.answer["version"]) == ("committed", 1)
        assert appended.commit_id in stage.log().by_id
        # What was planned on the old table must not be applied to the new one.
        planned = stage.bodies.body("DELETE", [stage.bodies.remove("p=a/gone.parquet")], readVersion=1)
        refused = await stage.commit(stage.two, planned)
        assert (refused.outcome, refused.slug) == ("problem", "commit-invalid")

    play(story)


def test_a_stale_replica_does_not_write_into_a_purged_log() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.two)
        for _ in range(3):
            await stage.commit(stage.one)
        await stage.sim.drop(stage.one, TABLE, purge=True)
        assert (await stage.commit(stage.two)).slug == "table-not-found"

    play(story)


def test_a_resend_after_fail_over_with_another_read_version() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.one)
        commit_id, body = stage.new_id(), stage.bodies.body("MERGE", [stage.bodies.add()], readVersion=1)
        body["reads"] = {"wholeTable": True}
        stage.one.link.script.append("lost")
        first = asyncio.create_task(stage.commit(stage.one, body, commit_id))
        await asyncio.sleep(0.5)  # the PUT has landed, its answer is lost
        stage.one.crash()
        assert (await first).outcome == "lost"
        await stage.commit(stage.two)
        again = await stage.commit(stage.two, {**body, "readVersion": 3}, commit_id)
        assert (again.outcome, again.answer["replayed"], again.answer["version"]) == ("committed", True, 2)
        other = await stage.commit(stage.two, stage.append(), commit_id)
        assert (other.slug, other.answer["version"]) == ("commit-id-reused", 2)

    play(story)


def test_two_patches_of_different_keys_at_once_both_hold() -> None:
    async def story(stage: Stage) -> None:
        changes = [(stage.one, "owner"), (stage.two, "team"), (stage.one, "color"), (stage.two, "size")]
        sent = await asyncio.gather(
            *(
                stage.sim.patch(replica, TABLE, stage.new_id(), {"properties": {"set": {key: "x"}}})
                for replica, key in changes
            )
        )
        assert [send.outcome for send in sent] == ["committed"] * 4
        log = stage.log()
        assert len(log.versions) == 5  # each is alone in its version
        metadata = log.versions[-1].after.metadata
        assert metadata is not None
        assert metadata["configuration"] == {key: "x" for _, key in changes}

    play(story)


def test_a_full_queue_really_rejects_and_loses_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.one)
        commits = [(stage.new_id(), stage.append(coalesce=False)) for _ in range(10)]
        sent = await asyncio.gather(*(stage.commit(stage.one, body, commit_id) for commit_id, body in commits))
        accepted = [send for send in sent if send.outcome == "committed"]
        rejected = [send for send in sent if send.slug == "too-many-waiting"]
        assert len(accepted) == 3
        assert len(rejected) == 7
        assert not any(send.commit_id in stage.log().by_id for send in rejected)
        for send in rejected:
            assert send.commit_id is not None
            assert (await stage.commit(stage.one, send.body, send.commit_id)).outcome == "committed"
        assert all(commit_id in stage.log().by_id for commit_id, _ in commits)

    play(story, committer=CommitterSettings(max_waiting=3))


def test_a_late_put_that_lands_after_its_replica_died() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.one)
        await stage.sim.snapshot(stage.two, TABLE, 0)
        commit_id, body = stage.new_id(), stage.append()
        stage.one.link.script.append("late")
        first = asyncio.create_task(stage.commit(stage.one, body, commit_id))
        await asyncio.sleep(0.05)
        stage.one.crash()
        assert (await first).outcome == "lost"
        assert commit_id not in stage.log().by_id
        await asyncio.sleep(6)  # now it has landed, though nobody is left who sent it
        assert stage.log().by_id[commit_id].version == 2
        # The other replica believes the slot to be free, loses it, and finds the commit there.
        again = await stage.commit(stage.two, body, commit_id)
        assert (again.answer["replayed"], again.answer["version"]) == (True, 2)

    play(story, faults=Faults(late_seconds=5.0))


def test_a_late_put_that_finds_its_slot_taken() -> None:
    async def story(stage: Stage) -> None:
        await stage.commit(stage.one)
        await stage.sim.snapshot(stage.two, TABLE, 0)
        commit_id, body = stage.new_id(), stage.append()
        stage.one.link.script.append("late")
        first = asyncio.create_task(stage.commit(stage.one, body, commit_id))
        await asyncio.sleep(0.05)
        stage.one.crash()
        await first
        # Before the late PUT lands, the resend takes the same slot through the other replica.
        again = await stage.commit(stage.two, body, commit_id)
        assert (again.answer["replayed"], again.answer["version"]) == (False, 2)
        await asyncio.sleep(6)
        assert len(stage.log().versions) == 3

    play(story, faults=Faults(late_seconds=5.0))


def test_a_lost_reply_is_committed_once() -> None:
    async def story(stage: Stage) -> None:
        stage.one.link.script.extend(["lost", "conflict", "never"])
        sent = await stage.commit(stage.one)
        assert (sent.outcome, sent.answer["version"], sent.answer["attempts"]) == ("committed", 1, 1)
        assert len(stage.log().versions) == 2

    play(story)


def test_a_commit_past_its_deadline_is_unknown_and_then_found_by_its_id() -> None:
    async def story(stage: Stage) -> None:
        stage.one.link.script.extend(["never"] * 4)
        sent = await stage.commit(stage.one)
        assert sent.outcome == "unknown"
        assert sent.commit_id is not None
        # Its replica goes on; asking it says that nothing is settled, asking the other one promises nothing either.
        status = await stage.sim.status(stage.one, TABLE, sent.commit_id)
        assert status is not None
        assert status["outcome"] == "unknown"
        elsewhere = await stage.sim.status(stage.two, TABLE, sent.commit_id)
        assert elsewhere is not None
        assert elsewhere["outcome"] == "not-found"
        await asyncio.sleep(30)
        for replica in (stage.one, stage.two):
            found = await stage.sim.status(replica, TABLE, sent.commit_id)
            assert found is not None
            assert (found["outcome"], found["version"]) == ("committed", 1)

    play(story, committer=CommitterSettings(deadline_seconds=1.5))


def test_timestamps_grow_although_the_clocks_disagree() -> None:
    async def story(stage: Stage) -> None:
        for replica in (stage.one, stage.two) * 4:
            assert (await stage.commit(replica)).outcome == "committed"
        times = [version.timestamp for version in stage.log().versions]
        assert times == sorted(set(times))

    play(story, skews_ms=(4000, -4000))


def test_a_refused_write_is_told_and_leaves_nothing() -> None:
    async def story(stage: Stage) -> None:
        commit_id, body = stage.new_id(), stage.append()
        stage.one.link.script.append("refused")
        assert (await stage.commit(stage.one, body, commit_id)).slug == "storage-refused"
        assert len(stage.log().versions) == 1
        assert (await stage.commit(stage.one, body, commit_id)).answer["version"] == 1

    play(story)


def test_a_feed_goes_on_after_fail_over_to_a_replica_that_is_behind() -> None:
    async def story(stage: Stage) -> None:
        await stage.sim.snapshot(stage.two, TABLE, None)  # it knows version 0 and will believe in it for a minute
        for _ in range(3):
            await stage.commit(stage.one)
        seen: list[int] = []

        async def follow(coordinator: Coordinator) -> None:
            async for change in await coordinator.history.follow(TableName.parse(TABLE), 2):
                seen.extend([change.version] if change is not None else [])

        following = asyncio.create_task(stage.two.call(follow, 1000.0))
        await asyncio.sleep(10)
        await stage.commit(stage.one)
        await asyncio.sleep(10)
        following.cancel()
        assert seen == [3, 4]

    play(story)
