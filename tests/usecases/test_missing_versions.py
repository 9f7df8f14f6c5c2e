"""A version file that is missing is corruption, never the head; and a file in a wrong slot, or a fork, is noticed."""

from __future__ import annotations

import asyncio
import builtins
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tarnlog.protocol.commits import Committed, Rejected
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.ports.object_store import ObjectInfo
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.live_table import QUARANTINE_SECONDS
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.cleaning import HookedStore, replica_on
from tests.usecases.field_writers import field_table
from tests.usecases.replicas import (
    ORDERS,
    FakeWorld,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    register,
    send,
    version_key,
)
from tests.usecases.test_states import FORMATS

OTHER = TableName("other", "table")


async def long_log(warehouse: Warehouse, states: tuple[int, ...] = (16,), last: int = 31, form: str = "avro") -> str:
    """A table with a state at some versions and a log up to `last`; the key prefix of that log."""
    writer = warehouse.replica()
    view = await create(writer, properties={"checkpoint.enabled": "false"})
    for version in range(1, last + 1):
        await commit(writer, add_line(f"f{version}"))
        if version in states:
            await writer.checkpoints.checkpoint(ORDERS, form)
    await create(writer, "other.table")
    return warehouse.log(view)


async def lose(warehouse: Warehouse, log: str, version: int) -> bytes:
    key = version_key(log, version)
    data = warehouse.store.raw(key)
    await warehouse.store.delete(key)
    return data


async def refusal(replica: Coordinator) -> dict[str, Any]:
    """The problem that a commit is answered with."""
    try:
        outcome = await send(replica, add_line("refused"))
    except ProblemError as problem:
        return problem.document()
    assert isinstance(outcome, Rejected), outcome
    return outcome.problem


async def assert_closed(warehouse: Warehouse, replica: Coordinator, key: str) -> None:
    """Reads and writes of the table stop, and name the object; the other table goes on; nothing is written."""
    before = warehouse.store.keys(key.rsplit("/", 1)[0])
    for _ in range(2):
        with refused("log-corrupt", "missing") as caught:
            await files(replica)
        assert caught.value.fields["object"] == key
        assert (await refusal(replica))["object"] == key
    assert isinstance(await send(replica, add_line(f"x{warehouse.world.uuid7()}"), to=OTHER), Committed)
    assert warehouse.store.keys(key.rsplit("/", 1)[0]) == before


@pytest.mark.parametrize("missing", [17, 18, 29, 30])
@pytest.mark.parametrize("form", FORMATS)
async def test_a_hole_behind_the_state_closes_the_table(warehouse: Warehouse, form: str, missing: int) -> None:
    log = await long_log(warehouse, form=form)
    data = await lose(warehouse, log, missing)
    replica = warehouse.replica()
    await assert_closed(warehouse, replica, version_key(log, missing))
    warehouse.store.overwrite(version_key(log, missing), data)
    warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert len(await files(replica)) == 31
    assert (await commit(replica, add_line("next"))).version == 32


@pytest.mark.parametrize("missing", [0, 1, 30])
async def test_a_hole_without_any_state_closes_the_table(warehouse: Warehouse, missing: int) -> None:
    log = await long_log(warehouse, states=())
    await lose(warehouse, log, missing)
    await assert_closed(warehouse, warehouse.replica(), version_key(log, missing))


async def test_several_holes_are_named_one_after_the_other(warehouse: Warehouse) -> None:
    log = await long_log(warehouse)
    lost = {version: await lose(warehouse, log, version) for version in (18, 20, 21, 29)}
    replica = warehouse.replica()
    for version, data in lost.items():
        with refused("log-corrupt") as caught:
            await files(replica)
        assert caught.value.fields["object"] == version_key(log, version)
        warehouse.store.overwrite(version_key(log, version), data)
        warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert len(await files(replica)) == 31


@pytest.mark.parametrize("form", FORMATS)
async def test_a_lost_newest_version_that_has_a_state_is_not_forgotten(warehouse: Warehouse, form: str) -> None:
    log = await long_log(warehouse, states=(16, 31), form=form)
    await lose(warehouse, log, 31)
    await assert_closed(warehouse, warehouse.replica(), version_key(log, 31))


async def test_a_hole_that_a_newer_state_covers_belongs_to_reads_of_the_past(warehouse: Warehouse) -> None:
    log = await long_log(warehouse, states=(16, 26))
    hint = f"{log}_last_checkpoint"
    newest = warehouse.store.raw(hint)
    await lose(warehouse, log, 20)
    for old in (newest, newest.replace(b"26", b"16")):
        warehouse.store.overwrite(hint, old)
        replica = warehouse.replica()
        assert len(await files(replica)) == 31 + (await _commits(replica, log) - 31)
        with refused("log-corrupt") as caught:
            await files(replica, version=21)
        assert caught.value.fields["object"] == version_key(log, 20)
        assert isinstance(await send(replica, add_line(f"next-{len(old)}-{old is newest}")), Committed)


async def _commits(replica: Coordinator, log: str) -> int:
    return (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version


async def test_an_open_replica_that_is_behind_does_not_serve_or_fill_a_hole(warehouse: Warehouse) -> None:
    log = await long_log(warehouse, last=20)
    behind = warehouse.replica()
    assert len(await files(behind)) == 20
    ahead = warehouse.replica()
    for number in range(21, 26):
        await commit(ahead, add_line(f"f{number}"))
    await lose(warehouse, log, 22)
    await assert_closed(warehouse, behind, version_key(log, 22))


@pytest.mark.parametrize("seconds", [6.0, 61.0])
async def test_a_writer_that_is_behind_acknowledges_nothing_in_a_hole(warehouse: Warehouse, seconds: float) -> None:
    log = await long_log(warehouse, last=20)
    behind, ahead = warehouse.replica(), warehouse.replica()
    assert len(await files(behind)) == 20
    for number in range(21, 26):
        await commit(ahead, add_line(f"f{number}"))
    await lose(warehouse, log, 21)
    warehouse.world.advance(seconds)
    assert (await refusal(behind))["type"].endswith("log-corrupt")
    with refused("log-corrupt"):
        await files(behind)
    with refused("log-corrupt"):
        await files(warehouse.replica())


async def test_a_version_written_into_a_hole_is_noticed_by_every_reader(warehouse: Warehouse) -> None:
    """The writer was behind for less than a replica may be: what follows names another predecessor."""
    log = await long_log(warehouse, last=20)
    behind, ahead = warehouse.replica(), warehouse.replica()
    assert len(await files(behind)) == 20
    for number in range(21, 26):
        await commit(ahead, add_line(f"f{number}"))
    await lose(warehouse, log, 21)
    filled = await send(behind, add_line("into-the-hole"))
    assert isinstance(filled, Committed), "nothing was looked at in the first seconds"
    for replica in (behind, warehouse.replica()):
        with refused("log-corrupt", "written to follow") as caught:
            await files(replica)
        assert caught.value.fields["object"] == version_key(log, 22)
        with refused("log-corrupt"):
            await files(replica)
    assert (await refusal(behind))["type"].endswith("log-corrupt")


async def test_a_writer_that_loses_its_slot_sees_the_hole_behind_it(warehouse: Warehouse) -> None:
    log = await long_log(warehouse, last=20)
    behind, ahead = warehouse.replica(), warehouse.replica()
    assert len(await files(behind)) == 20
    for number in range(21, 26):
        await commit(ahead, add_line(f"f{number}"))
    await lose(warehouse, log, 23)
    assert (await refusal(behind))["object"] == version_key(log, 23)
    assert version_key(log, 23) not in warehouse.store.keys(log)


async def test_a_log_that_lost_its_newest_versions_is_noticed_by_whoever_read_them(warehouse: Warehouse) -> None:
    log = await long_log(warehouse)
    replica = warehouse.replica()
    assert len(await files(replica)) == 31
    lost = {version: await lose(warehouse, log, version) for version in range(25, 32)}
    for _ in range(2):
        with refused("log-corrupt", "missing"):
            await files(replica)
        warehouse.world.advance(QUARANTINE_SECONDS + 1)
    with refused("log-corrupt", "restart"):
        await send(replica, add_line("fork"))
    for version, data in lost.items():
        warehouse.store.overwrite(version_key(log, version), data)
    warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert (await commit(replica, add_line("next"))).version == 32


async def test_a_log_that_was_put_back_and_went_on_is_noticed_by_whoever_read_the_other_one(
    warehouse: Warehouse,
) -> None:
    log = await long_log(warehouse)
    replica = warehouse.replica()
    assert len(await files(replica)) == 31
    for version in range(25, 32):
        await lose(warehouse, log, version)
    restarted = warehouse.replica()
    for number in range(9):
        await commit(restarted, add_line(f"other-{number}"))
    for _ in range(2):
        with refused("log-corrupt") as caught:
            await files(replica)
        assert caught.value.fields["object"] in {version_key(log, 31), version_key(log, 32)}
        warehouse.world.advance(QUARANTINE_SECONDS + 1)
    assert len(await files(restarted)) == 33


class ListsLate(HookedStore):
    """A listing that is not a snapshot: it shows later versions of a writer and not yet an earlier one."""

    def __init__(self, inner: Any, hidden: str, times: int) -> None:
        super().__init__(inner)
        self._hidden = hidden
        self._times = times

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        page = await super().list(prefix, start_after, limit)
        if self._times and any(info.key == self._hidden for info in page):
            self._times -= 1
            page = [info for info in page if info.key != self._hidden]
        return page


@pytest.mark.parametrize("times", [1, 2, 100])
@pytest.mark.parametrize("states", [(), (16,)])
async def test_a_version_that_only_a_listing_lacks_is_no_hole(
    warehouse: Warehouse, times: int, states: tuple[int, ...]
) -> None:
    log = await long_log(warehouse, states=states)
    replica = replica_on(warehouse, ListsLate(warehouse.store, version_key(log, 29), times))
    found = await files(replica)
    assert len(found) in ((31,) if times < 3 else (28, 29, 30, 31))
    assert found == [f"f{number}" for number in range(1, len(found) + 1)]


async def test_a_hole_in_a_log_that_was_taken_over_is_named_and_what_is_before_it_is_not(warehouse: Warehouse) -> None:
    field = await field_table(warehouse.store, "lake/t", "B")
    writer = warehouse.replica()
    await create(writer, "other.table")
    view = await register(writer, "sales.orders", "memory://w/lake/t", stopped=True)
    first = view.version
    for number in range(5):
        await commit(writer, add_line(f"n{number}"))
    log = "lake/t/_transaction_log/"
    replica = warehouse.replica()
    assert len(await files(replica)) == len(await files(writer))
    for key in [one for one in warehouse.store.keys(log) if "state-v" in one or one.endswith("_last_checkpoint")]:
        if f"state-v{first - 1:020d}" not in key:
            await warehouse.store.delete(key)
    missing = first + 2
    await lose(warehouse, log, missing)
    await assert_closed(warehouse, warehouse.replica(), version_key(log, missing))
    assert field is not None


def _info(data: bytes) -> dict[str, Any]:
    text = gzip.decompress(data[2:]) if data[:2] == b"\x01\x01" else data
    info: dict[str, Any] = json.loads(text.split(b"\n", 1)[0])["commitInfo"]
    return info


async def test_each_version_names_itself_and_the_one_before(warehouse: Warehouse) -> None:
    log = await long_log(warehouse, states=(3,), last=6)
    before = None
    for version in range(7):
        info = _info(warehouse.store.raw(version_key(log, version)))
        assert info["version"] == version
        assert info.get("previousPutId") == before
        before = info["putId"]
    await commit(warehouse.replica(), add_line("from a state"))
    info = _info(warehouse.store.raw(version_key(log, 7)))
    assert info["previousPutId"] == before
    outside = json.dumps(add_line("outside")).encode()
    await warehouse.store.put_if_absent(version_key(log, 8), outside)
    await commit(warehouse.replica(), add_line("after another writer"))
    info = _info(warehouse.store.raw(version_key(log, 9)))
    assert (info["version"], "previousPutId" in info) == (9, False)


@pytest.mark.parametrize("states", [(), (16,)])
@pytest.mark.parametrize("source,target", [(20, 25), (25, 20), (31, 18), (5, 30)])
async def test_a_file_copied_into_another_slot_is_named(
    warehouse: Warehouse, states: tuple[int, ...], source: int, target: int
) -> None:
    log = await long_log(warehouse, states=states)
    warehouse.store.overwrite(version_key(log, target), warehouse.store.raw(version_key(log, source)))
    with refused("log-corrupt", f"it is the file of version {source}") as caught:
        await files(warehouse.replica())
    assert caught.value.fields["object"] == version_key(log, target)


async def test_a_copy_behind_the_newest_version_is_no_new_version(warehouse: Warehouse) -> None:
    log = await long_log(warehouse)
    replica = warehouse.replica()
    await files(replica)
    await warehouse.store.put_if_absent(version_key(log, 32), warehouse.store.raw(version_key(log, 31)))
    for one in (replica, warehouse.replica()):
        with refused("log-corrupt", "it is the file of version 31"):
            await files(one)


@pytest.mark.parametrize("states", [(), (16,)])
async def test_two_logs_that_were_mixed_are_noticed(warehouse: Warehouse, states: tuple[int, ...]) -> None:
    """Restored from two backups: up to 24 from one fork of the log, from 25 on from the other."""
    log = await long_log(warehouse, states=states)
    old = {version: await lose(warehouse, log, version) for version in range(22, 32)}
    fork = warehouse.replica()
    for number in range(6):
        await commit(fork, add_line(f"fork-{number}"))
    for version in range(25, 32):
        warehouse.store.overwrite(version_key(log, version), old[version])
    replica = warehouse.replica()
    with refused("log-corrupt", "written to follow") as caught:
        await files(replica)
    assert caught.value.fields["object"] == version_key(log, 25)
    with refused("log-corrupt"):
        await send(replica, add_line("more"))
    audited = await warehouse.replica().verifying.verify(ORDERS)
    assert "version-chain" in {check.name for check in audited.checks if not check.ok}


async def test_versions_without_the_new_members_are_accepted(warehouse: Warehouse) -> None:
    """Logs of older releases, and one that an older replica writes beside a new one."""
    log = await long_log(warehouse, states=(4,), last=8)
    for version in (0, 3, 4, 5, 6, 8):
        key = version_key(log, version)
        data = warehouse.store.raw(key)
        lines = data.split(b"\n")
        info = json.loads(lines[0])
        for member in ("version", "previousPutId", "crc32"):
            info["commitInfo"].pop(member, None)
        warehouse.store.overwrite(key, b"\n".join([json.dumps(info).encode(), *lines[1:]]))
    for state in warehouse.store.keys(f"{log}state-v"):
        await warehouse.store.delete(state)
    replica = warehouse.replica()
    assert len(await files(replica)) == 8
    assert (await commit(replica, add_line("next"))).version == 9
    assert len(await files(warehouse.replica())) == 9


@pytest.mark.parametrize("start", [3, 5])
async def test_concurrent_openings_beside_a_writer_never_see_a_hole(warehouse: Warehouse, start: int) -> None:
    log = await long_log(warehouse, states=(start,), last=6)
    writer = warehouse.replica()

    async def write() -> None:
        for number in range(20):
            await commit(writer, add_line(f"w{number}"))

    async def read() -> None:
        for _ in range(10):
            assert len(await files(warehouse.replica())) >= 6

    await asyncio.gather(write(), read(), read())
    assert version_key(log, 26) in warehouse.store.keys(log)


async def test_a_writer_on_a_local_disk_that_is_behind_acknowledges_nothing_in_a_hole(tmp_path: Path) -> None:
    world, store = FakeWorld(), LocalStore(str(tmp_path))
    ahead, behind = (Coordinator(Roots(Root(store.uri, store)), world) for _ in range(2))
    view = await create(ahead)
    assert await files(behind) == []
    for number in range(3):
        await commit(ahead, add_line(f"f{number}"))
    log = Path(view.location.removeprefix("file://")) / "_transaction_log"
    (log / f"{1:020d}.json").unlink()
    world.advance(6)
    assert (await refusal(behind))["type"].endswith("log-corrupt")
    for replica in (ahead, behind):
        await replica.close(0)
    await store.close()
