"""Skipped files: counted, cooled down, cleared with their file, and never a reason to lose one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarnlog.protocol.actions import Skip
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import (
    ORDERS,
    Warehouse,
    add_line,
    commit,
    create,
    files,
    refused,
    remove_line,
    set_properties,
)

HOUR_MS = 3_600_000


async def skip(replica: Coordinator, path: str = "x", **fields: Any) -> Skip:
    request = RecordSkip(path=path, **{"reason": "out of memory", "operation": "merge", **fields})
    written, _ = await replica.skips.record(ORDERS, request)
    return written


async def cooldowns(replica: Coordinator) -> dict[str, int]:
    return await replica.skips.cooldowns(ORDERS, 0)


async def test_a_skip_is_recorded_and_the_file_stays(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("x", size=77))
    now = warehouse.world.now_ms()
    written = await skip(replica)
    assert (written.path, written.reason, written.operation, written.skip_count) == ("x", "out of memory", "merge", 1)
    assert (written.skip_timestamp, written.retry_after) == (now, now + 24 * HOUR_MS)
    assert (written.size, written.partition_values) == (77, {}), "what is known of the file is filled in"
    assert await files(replica) == ["x"]
    other = warehouse.replica()
    assert await other.skips.all(ORDERS, None) == (written,)
    assert await cooldowns(other) == {"x": now + 24 * HOUR_MS}
    view = await replica.tables.describe(ORDERS, 0)
    assert (view.num_files, view.total_bytes) == (1, 77)


async def test_the_count_grows_over_replicas_and_at_the_same_time(warehouse: Warehouse) -> None:
    one, other = warehouse.replica(), warehouse.replica()
    await create(one)
    await commit(one, add_line("x"))
    assert (await skip(one)).skip_count == 1
    assert (await skip(other)).skip_count == 2
    assert (await skip(one)).skip_count == 3
    more = await asyncio.gather(*(skip(replica) for replica in (one, other) * 3))
    assert sorted(written.skip_count for written in more) == [4, 5, 6, 7, 8, 9]
    (last,) = await one.skips.all(ORDERS, 0)
    assert last.skip_count == 9


@pytest.mark.parametrize("format_", ["avro", "json", "parquet", None])
async def test_a_later_shorter_skip_does_not_end_a_longer_cooldown(warehouse: Warehouse, format_: str | None) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("x"))
    until = warehouse.world.now_ms() + 48 * HOUR_MS
    await skip(replica, cooldown_hours=48.0)
    warehouse.world.advance(60)
    shorter = await skip(replica, reason="again", cooldown_hours=1.0)
    assert (shorter.reason, shorter.skip_count, shorter.retry_after) == ("again", 2, until)
    if format_ is not None:
        await replica.checkpoints.checkpoint(ORDERS, format_)
    warehouse.world.advance(2 * HOUR_MS / 1000)
    for one in (replica, warehouse.replica()):
        assert await cooldowns(one) == {"x": until}
    longer = await skip(replica, cooldown_hours=72.0)
    assert await cooldowns(warehouse.replica()) == {"x": longer.retry_after}
    assert longer.retry_after is not None
    assert longer.retry_after > until


async def test_removing_the_file_clears_it_and_a_new_file_starts_at_one(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("x"), add_line("y"))
    await skip(replica)
    await skip(replica)
    await skip(replica, "y")
    await commit(replica, remove_line("x"), readVersion=4)
    assert [one.path for one in await replica.skips.all(ORDERS, 0)] == ["y"]
    assert list(await cooldowns(replica)) == ["y"]
    await commit(replica, add_line("x"))
    assert list(await cooldowns(replica)) == ["y"]
    assert (await skip(replica)).skip_count == 1


async def test_cooldowns_end(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica, properties={"skip.cooldownHours": "2"})
    await commit(replica, add_line("x"), add_line("y"), add_line("z"))
    start = warehouse.world.now_ms()
    await skip(replica, "x")
    await skip(replica, "y", cooldown_hours=0.5)
    await skip(replica, "z", cooldown_hours=0)
    assert await cooldowns(replica) == {"x": start + 2 * HOUR_MS, "y": start + HOUR_MS // 2}
    warehouse.world.advance(1800 - 0.001)
    assert list(await cooldowns(replica)) == ["x", "y"]
    warehouse.world.advance(0.001)
    assert list(await cooldowns(replica)) == ["x"], "active while retryAfter > now"
    warehouse.world.advance(7200)
    assert await cooldowns(replica) == {}
    assert len(await replica.skips.all(ORDERS, 0)) == 3, "the record stays, and so does its count"
    assert (await skip(replica, "x")).skip_count == 2
    assert sorted(await files(replica)) == ["x", "y", "z"]


@pytest.mark.parametrize("path", ["nobody", "X", "x/../x", "../x", "_transaction_log/00000000000000000000.json"])
async def test_only_live_files_are_skipped(warehouse: Warehouse, path: str) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("x"))
    with refused("commit-invalid", "not a live file"):
        await skip(replica, path)
    assert await replica.skips.all(ORDERS, 0) == ()


async def test_one_file_by_any_spelling(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("a%20b"))
    assert (await skip(replica, "a%20b")).skip_count == 1
    assert (await skip(replica, "./a b")).skip_count == 2


async def test_a_skip_is_a_commit_like_others(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    await create(replica)
    await commit(replica, add_line("x"))
    await skip(replica)
    await replica.tables.alter(ORDERS, set_properties(a="1"))
    history = await replica.history.commits(ORDERS, None, None, "asc", 10, None)
    assert [one.operation for one in history.commits][2] == "SKIP FILE"
    assert (await replica.history.version(ORDERS, 2)).actions[0]["mergeskip"]["path"] == "x"


async def test_partition_values_of_a_skip_fit_the_table(warehouse: Warehouse) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("id", "long"), ("d", "date"))
    ]
    replica = warehouse.replica()
    await create(replica, schema={"type": "struct", "fields": fields}, partition_columns=("d",))
    await commit(replica, add_line("a", partitionValues={"d": "2024-01-31"}))
    cases: list[tuple[dict[str, str | None], str]] = [
        ({"d": "yesterday"}, "/partitionValues/d"),
        ({"x": "1"}, "/partitionValues"),
    ]
    for values, pointer in cases:
        wrong = RecordSkip(path="a", reason="r", operation="o", partition_values=values)
        with pytest.raises(ProblemError) as caught:
            await replica.skips.record(ORDERS, wrong)
        assert (caught.value.slug, caught.value.fields["errors"][0]["pointer"]) == ("commit-invalid", pointer)
    right = RecordSkip(path="a", reason="r", operation="o", partition_values={"d": "2024-01-31"})
    assert (await replica.skips.record(ORDERS, right))[0].partition_values == {"d": "2024-01-31"}
