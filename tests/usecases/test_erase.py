"""Erasing what was removed: nothing of it is left in storage, and nothing else is lost."""

from __future__ import annotations

import asyncio
import io
import random
from typing import Any

import fastavro
import pytest

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import uuid7
from tarnlog_server.codec.sealed_lines import inflate
from tarnlog_server.codec.version_file import CorruptObject, ErasedVersion, decode, encode_erased, put_id_of
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.erase import EraseView
from tarnlog_server.usecases.erase_run import EraseRun
from tests.conftest import LONG
from tests.usecases.cleaning import DawdlingStore, HookedStore, Stopped, StoppingStore, replica_on
from tests.usecases.replicas import ORDERS, add_line, commit, create, files, refused, remove_line, request
from tests.usecases.test_vacuum import DAY, HOUR, Place

SECRET = "geheim"


@pytest.fixture(params=["avro", "json", "parquet"])
async def place(request: pytest.FixtureRequest) -> Any:
    made = await Place().start(**{"state.format": request.param, "state.compaction.tombstoneThreshold": "0.99"})
    yield made
    await made.warehouse.close()


async def deleted_rows(place: Place, replica: Coordinator | None = None) -> list[Any]:
    """Files with a secret in name, bounds and bytes that a later version removed; states of both; what was sent."""
    replica = replica or place.replica
    sent = []
    for number in range(3):
        path = f"who={SECRET}/{number}"
        await place.store.put(place.folder + path, f"row of {SECRET}".encode())
        line = add_line(path)
        line["add"] |= {"minValues": {"note": SECRET}, "maxValues": {"note": SECRET}}
        wanted = request(line, commitId=str(uuid7(place.world.now_ms(), random.Random(number))))
        assert isinstance(await replica.commits.commit(ORDERS, wanted), Committed)
        sent.append(wanted)
        await place.write(f"kept{number}")
        await commit(replica, add_line(f"kept{number}", size=4))
        if number == 1:
            await replica.checkpoints.checkpoint(ORDERS)
    await replica.checkpoints.checkpoint(ORDERS, "avro")
    head = (await replica.open_tables.get(ORDERS, 0)).live.head.version
    predicate = {"predicate": f"name = '{SECRET}'"}
    removes = [remove_line(f"who={SECRET}/{number}") for number in range(3)]
    await commit(replica, *removes, readVersion=head, operation="DELETE", operationParameters=predicate)
    await replica.checkpoints.checkpoint(ORDERS)
    return sent


def text_of(key: str, data: bytes) -> str:
    """Everything that an object says, uncompressed."""
    if data.startswith(b"Obj\x01"):
        return key + repr(list(fastavro.reader(io.BytesIO(data))))
    if data.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        return key + repr(pq.read_table(io.BytesIO(data)).to_pylist())
    return key + inflate(key, data).decode("latin-1")


def traces(place: Place) -> list[str]:
    """The objects in which the secret is still."""
    return [key for key in place.store.keys("") if SECRET in text_of(key, place.store.raw(key))]


async def erase(place: Place, replica: Coordinator | None = None, **how: Any) -> EraseView:
    return await (replica or place.replica).erasing.erase(ORDERS, **{"dry_run": False, "by": "officer", **how})


async def test_nothing_of_the_removed_rows_is_left(place: Place) -> None:
    sent = await deleted_rows(place)
    assert len(traces(place)) > 6
    before = await files(place.replica)
    done = await erase(place)
    assert traces(place) == []
    assert (done.status, done.files_found, done.files_deleted) == ("success", 3, 3), done
    assert (done.versions_erased, done.floor) == (8, done.version)
    assert done.states_deleted >= 1
    other = place.warehouse.replica()
    for replica in (place.replica, other):
        assert await files(replica) == before == ["kept0", "kept1", "kept2"]
        with refused("version-expired"):
            await replica.snapshots.snapshot(ORDERS, 3, None, 0)
        for wanted in sent:
            again = await replica.commits.commit(ORDERS, wanted)
            assert isinstance(again, Committed)
            assert again.replayed, "an id of an erased version is still known"
    history = await other.history.commits(ORDERS, None, None, "desc", 10, None)
    [entry] = [one for one in history.commits if one.operation == "ERASE"]
    assert (entry.version, entry.committed_by) == (done.version, "officer")
    assert entry.operation_parameters == {"versions": 8, "files": 3, "bytes": 3 * len(f"row of {SECRET}")}
    found = await other.verifying.verify(ORDERS)
    assert (found.status, [one for one in found.checks if not one.ok]) == ("success", [])


async def test_later_states_do_not_bring_it_back(place: Place) -> None:
    """Not those of another replica either, which remembers the removed files and has older states to build on."""
    other = place.warehouse.replica()
    await other.tables.describe(ORDERS, 0)
    await deleted_rows(place)
    await other.checkpoints.checkpoint(ORDERS)
    await erase(place)
    for replica in (other, place.replica):
        for number in range(3):
            await commit(replica, add_line(f"later{number}-{id(replica)}"))
            await replica.checkpoints.checkpoint(ORDERS, ("avro", "json", "parquet")[number])
    assert traces(place) == []
    for replica in (other, place.warehouse.replica()):
        assert len(await files(replica)) == 9


async def test_a_dry_run_changes_nothing(place: Place) -> None:
    await deleted_rows(place)
    before = {key: place.store.raw(key) for key in place.store.keys("")}
    would = await erase(place, dry_run=True)
    assert {key: place.store.raw(key) for key in place.store.keys("")} == before
    assert (would.status, would.files_found, would.files_deleted, would.version) == ("dry-run", 3, 0, None)
    assert [one.path for one in would.examples] == [f"who={SECRET}/{number}" for number in range(3)]
    assert would.versions_erased == 8
    did = await erase(place)
    assert (did.files_deleted, did.versions_erased) == (would.files_found, would.versions_erased)


async def test_other_files_stay(place: Place) -> None:
    """Young files that were never committed, files of a session, files that were there before the table."""
    await deleted_rows(place)
    await place.write("young-and-not-committed")
    await place.write("removed/in-session")
    await commit(place.replica, add_line("removed/in-session"))
    await place.remove("removed/in-session")
    session = await place.replica.sessions.begin(ORDERS, "removed/", HOUR)
    older = place.folder + "older"
    await place.store.put(older, b"theirs")
    place.store._objects[older] = (b"theirs", place.world.now_ms() - 400 * DAY * 1000)
    await commit(place.replica, add_line("older"))
    await place.remove("older")
    done = await erase(place)
    assert place.data() == {"kept0", "kept1", "kept2", "young-and-not-committed", "removed/in-session", "older"}
    assert (done.status, done.withheld.in_session, done.withheld.older_than_table) == ("partial", 1, 1)
    assert "erase again" in done.message
    await place.replica.sessions.end(ORDERS, session.id)
    again = await erase(place)
    assert (again.status, again.files_deleted, again.withheld.in_session) == ("success", 1, 0)
    assert "removed/in-session" not in place.data()


async def test_a_file_that_was_written_again_stays_until_it_is_committed(place: Place) -> None:
    """Its writer reads the table, writes under the old name, and commits after the erase."""
    await deleted_rows(place)
    path = f"who={SECRET}/1"
    place.world.advance(5)
    await place.write(path)
    would = await erase(place, dry_run=True)
    assert would.withheld.written_again == 1
    done = await erase(place)
    assert (done.status, done.withheld.written_again) == ("partial", 1)
    assert "written again" in done.message
    assert path in place.data()
    await commit(place.replica, add_line(path))
    again = await erase(place)
    assert (again.status, again.withheld.written_again) == ("success", 0)
    assert path in place.data()


async def test_a_file_that_was_added_again_stays(place: Place) -> None:
    await deleted_rows(place)
    path = f"who={SECRET}/1"
    await commit(place.replica, add_line(path))
    assert (await erase(place)).files_deleted == 2
    assert path in await files(place.warehouse.replica())
    assert path in place.data()


async def test_a_replica_that_is_behind_loses_no_commit(place: Place) -> None:
    """It writes into the slot after its head, which an erase has emptied: the slot must be taken."""
    behind = place.warehouse.replica()
    await create_and_follow(place, behind)
    await deleted_rows(place)
    known = (await behind.open_tables.get(ORDERS)).live.head.version
    done = await erase(place)
    assert known < done.floor
    after = await commit(behind, add_line("from-behind"))
    assert after.version == done.floor + 1
    for replica in (place.replica, behind, place.warehouse.replica()):
        live = (await replica.open_tables.get(ORDERS, 0)).live
        await live.refresh(0)
        assert "from-behind" in await files(replica)
    assert traces(place) == []


async def create_and_follow(place: Place, replica: Coordinator) -> None:
    await commit(replica, add_line("first"))
    await place.write("first")


@pytest.mark.parametrize("sleep", [30, 120, 2 * HOUR, 3 * DAY])
async def test_a_replica_that_slept_continues(sleep: int) -> None:
    place = await Place().start()
    behind = place.warehouse.replica()
    await create_and_follow(place, behind)
    await deleted_rows(place)
    await erase(place)
    place.age(sleep)
    await erase(place)
    at = (await commit(behind, add_line("late"))).version
    fresh = place.warehouse.replica()
    assert (await fresh.tables.describe(ORDERS, 0)).version == at
    assert "late" in await files(fresh)
    await place.warehouse.close()


async def test_old_versions_are_deleted_and_young_ones_keep_their_ids(place: Place) -> None:
    await deleted_rows(place)
    place.age(3 * DAY)
    await commit(place.replica, add_line("new"))
    done = await erase(place)
    versions = [key for key in place.store.keys(place.log) if key.endswith(".json") and len(key.split("/")[-1]) == 25]
    numbers = [int(key.split("/")[-1][:20]) for key in versions]
    assert done.version is not None
    assert numbers == [done.version - 1, done.version]
    with pytest.raises(ErasedVersion) as erased:
        decode(versions[0], numbers[0], place.store.raw(versions[0]))
    assert erased.value.record.actions == ()
    assert len(erased.value.record.sub_commits) == 1


@pytest.mark.parametrize("seed", range(6))
async def test_stopped_anywhere_and_run_again_it_completes(seed: int) -> None:
    rng = random.Random(seed)
    place = await Place().start()
    await deleted_rows(place)
    counting = HookedStore(place.store)
    await erase(place, replica_on(place.warehouse, counting), dry_run=True)
    for at in sorted(rng.sample(range(10, 3 * counting.calls), 5)):
        store = StoppingStore(place.store, at)
        erasing = asyncio.ensure_future(erase(place, replica_on(place.warehouse, store)))
        # A committer that ended answers nobody, so the end is awaited and not only the answer.
        stopped = asyncio.ensure_future(store.stopped.wait())
        await asyncio.wait({erasing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        assert store.stopped.is_set() or at >= counting.calls
        for task in (erasing, stopped):
            task.cancel()
        [ended, _] = await asyncio.gather(erasing, stopped, return_exceptions=True)
        assert isinstance(ended, (EraseView, Stopped, asyncio.CancelledError)), ended
        assert await files(place.warehouse.replica()) == ["kept0", "kept1", "kept2"], f"seed {seed}, stopped at {at}"
    await erase(place, place.warehouse.replica())
    assert traces(place) == [], f"seed {seed}"
    fresh = place.warehouse.replica()
    assert await files(fresh) == ["kept0", "kept1", "kept2"]
    found = await fresh.verifying.verify(ORDERS)
    assert [one for one in found.checks if not one.ok] == []
    await place.warehouse.close()


@pytest.mark.parametrize("seed", range(200 if LONG else 12))
async def test_commits_of_two_replicas_go_on_while_it_runs(seed: int) -> None:
    """Both are now and then behind; one writes states. Every acknowledged commit is in the log, once."""
    rng = random.Random(seed)
    place = await Place().start(**{"checkpoint.interval": "3"})
    await deleted_rows(place)
    replicas = [replica_on(place.warehouse, DawdlingStore(place.store, random.Random(seed + n))) for n in range(3)]
    for replica in replicas:
        await replica.tables.describe(ORDERS, 0)
    told: dict[str, int] = {}

    async def write(replica: Coordinator, name: str) -> None:
        for number in range(8):
            await place.write(f"{name}{number}")
            told[f"{name}{number}"] = (await commit(replica, add_line(f"{name}{number}", size=4))).version
            for _ in range(rng.choice((0, 5, 40))):
                await asyncio.sleep(0)
            if number % 3 == 2:
                await replica.checkpoints.checkpoint(ORDERS, rng.choice(("avro", "json")))

    async def erasing() -> None:
        for _ in range(2):
            await erase(place, replicas[2])

    await asyncio.gather(write(replicas[0], "one"), write(replicas[1], "two"), erasing())
    fresh = place.warehouse.replica()
    expected = sorted([*told, "kept0", "kept1", "kept2"])
    for replica in (*replicas, fresh):
        await (await replica.open_tables.get(ORDERS, 0)).live.refresh(0)
        assert sorted(await files(replica)) == expected, f"seed {seed}"
    assert place.data() == set(expected), f"seed {seed}"
    await erase(place, fresh)
    assert traces(place) == [], f"seed {seed}"
    found = await fresh.verifying.verify(ORDERS)
    assert [one for one in found.checks if not one.ok] == [], f"seed {seed}"
    await place.warehouse.close()


def test_what_is_left_of_a_version_keeps_its_identity_and_looks_damaged_to_others() -> None:
    from tarnlog.protocol.actions import SubCommit
    from tarnlog_server.core.version_record import VersionRecord

    sub = SubCommit(commit_id="c", seq=0, operation="WRITE", operation_parameters={"a": 1}, action_count=2)
    record = VersionRecord(7, 1000, "put", (sub,), (), None, "before")
    data = encode_erased(record, 9)
    assert put_id_of("k", data) == "put", "a writer that lost its answer recognises its own version"
    with pytest.raises(ErasedVersion) as caught:
        decode("k", 7, data)
    kept = caught.value.record
    assert (kept.put_id, kept.timestamp, kept.previous_put_id) == ("put", 1000, "before")
    assert (kept.sub_commits[0].commit_id, kept.sub_commits[0].operation_parameters) == ("c", {})
    assert isinstance(caught.value, CorruptObject)
    info = data.split(b"\n")[0] + b"\n"
    with pytest.raises(CorruptObject):
        decode("k", 7, info)


async def test_an_erase_of_a_table_without_removes_is_harmless() -> None:
    place = await Place().start()
    await create(place.replica, "sales.other")
    await place.write("a")
    await commit(place.replica, add_line("a"))
    done = await erase(place)
    assert (done.status, done.files_deleted) == ("success", 0)
    assert await files(place.warehouse.replica()) == ["a"]
    again = await erase(place)
    assert (again.version or 0) > (done.version or 0)
    assert await files(place.warehouse.replica()) == ["a"]
    await place.warehouse.close()


async def test_the_slots_of_erased_versions_must_stay_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: if young versions were deleted, a replica that is behind would commit into a hole."""

    async def delete(run: EraseRun, version: int, floor: int) -> bool:
        await run._store.delete(run._paths.version(version))
        return True

    monkeypatch.setattr(EraseRun, "_replace", delete)
    place = await Place().start()
    behind = place.warehouse.replica()
    await create_and_follow(place, behind)
    await deleted_rows(place)
    done = await erase(place)
    lost = await commit(behind, add_line("lost"))
    assert lost.version < done.floor
    assert "lost" not in await files(place.warehouse.replica())
    await place.warehouse.close()


async def test_an_erase_does_not_make_the_table_younger_than_its_files(place: Place) -> None:
    """It writes over version 0 of a young table, whose time in storage is when the table was created."""
    await place.write("first", "second", "third")
    await commit(place.replica, *map(add_line, ("first", "second", "third")))
    place.age(HOUR)
    await place.remove("first")
    await erase(place)
    assert place.data() == {"second", "third"}
    await place.remove("second")
    again = await erase(place)
    assert (again.status, again.files_deleted, again.withheld.older_than_table) == ("success", 1, 0), again
    assert place.data() == {"third"}
    await place.replica.tables.drop(ORDERS, purge_files=True)
    assert place.data() == set()
