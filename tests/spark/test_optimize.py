"""Optimize: which files go together, what becomes of broken ones, and that rows never change."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Client, Committed, InvalidRequest, Remove
from tarnlog.protocol.actions import Add
from tarnlog_spark import Table, _optimizing
from tarnlog_spark._optimizing import Optimize, group_small, merge_group
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask, write_batches
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def file(number: int, size: int, p: str = "a") -> Add:
    return Add(path=f"{number}", partition_values={"p": p}, size=size, modification_time=0, data_change=True)


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from("ab")), max_size=30))
def test_groups_are_small_files_of_one_partition(sizes: list[tuple[int, str]]) -> None:
    files = [file(number, size, p) for number, (size, p) in enumerate(sizes)]
    groups = group_small(files, 100)
    grouped = [member.path for group in groups for member in group.files]
    assert len(grouped) == len(set(grouped))
    for group in groups:
        assert len(group.files) > 1
        assert len({member.partition_values["p"] for member in group.files}) == 1
        assert all(member.size < 75 for member in group.files)
        assert sum(member.size for member in group.files) <= 100
    # Nobody is left behind who could have gone with another: two small ones that fit together.
    left = [one for one in files if one.path not in grouped and one.size < 75]
    for one in left:
        assert all(
            one.size + other.size > 100
            for other in left
            if other is not one and other.partition_values == one.partition_values
        )


def damaged(folder: Path, how: str, path: str) -> None:
    place = folder / path
    data = bytearray(place.read_bytes())
    if how == "gone":
        place.unlink()
        return
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "garbage":
        data = bytearray(b"not parquet at all")
    else:  # one byte of the pages, which only a checksum notices
        data[40] ^= 0xFF
    place.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["gone", "cut", "empty", "garbage", "flipped"])
def test_a_broken_file_is_left_out_and_named(tmp_path: Path, how: str) -> None:
    task = WriteTask(storage=storage_at(tmp_path.as_uri()), schema_string=SCHEMA, data_change=False)
    adds = [
        add
        for start in (0, 1000, 2000)
        for add in write_batches(task, [pa.RecordBatch.from_pydict({"id": list(range(start, start + 1000))})])
    ]
    damaged(tmp_path, how, adds[1].path)
    merged = merge_group(task, adds)
    assert merged.used == (adds[0].path, adds[2].path)
    assert list(merged.skipped) == [adds[1].path]
    assert merged.added[0].num_records == 2000
    assert not merged.added[0].data_change
    # With only one readable file left there is nothing to merge, and nothing is left lying about.
    before = set(tmp_path.iterdir())
    alone = merge_group(task, adds[:2])
    assert (alone.used, alone.added) == ((), ())
    assert set(tmp_path.iterdir()) == before


def test_a_file_that_lost_rows_is_left_out(tmp_path: Path) -> None:
    task = WriteTask(storage=storage_at(tmp_path.as_uri()), schema_string=SCHEMA, data_change=False)
    adds = [add for _ in range(3) for add in write_batches(task, [pa.RecordBatch.from_pydict({"id": [1, 2]})])]
    (tmp_path / adds[0].path).write_bytes(
        (tmp_path / next(write_batches(task, [pa.RecordBatch.from_pydict({"id": [1]})])).path).read_bytes()
    )
    assert merge_group(task, adds).skipped == {adds[0].path: "it holds 1 rows, and the log says 2"}


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    """Two partitions of four small files each; the files of each hold ids n, n + 10 and so on."""
    made = Table.create(spark, name, "id long, p string", partition_by=["p"], url=tarnlog_service.url)
    for start in range(0, 40, 10):
        made.write(spark.createDataFrame([(start, "a"), (start + 1, "b")], "id long, p string").repartition(1))
    return made


def ids(table: Table, **at: Any) -> Counter[int]:
    return Counter(row.id for row in table.read(**at).collect())


def folder_of(client: Client, table: Table) -> Path:
    return Path(client.get_table(table.name).location.removeprefix("file://"))


def test_small_files_become_one_a_partition_and_no_row_changes(
    spark: SparkSession, table: Table, client: Client
) -> None:
    before = ids(table)
    only = table.optimize().where("p = 'a'").execute_compaction()
    assert (only.num_removed_files, only.num_added_files) == (4, 1)
    rest = table.optimize().execute_compaction()
    assert (rest.num_removed_files, rest.num_added_files, rest.version) == (4, 1, 6)
    assert ids(table) == before == ids(table, version=4)
    assert len(list(client.files(table.name))) == 2
    assert table.changes(5).count() == 0
    assert table.optimize().execute_compaction().version is None


def test_a_condition_that_is_not_understood_rewrites_nothing(table: Table, client: Client) -> None:
    """A misspelled column would choose every file."""
    before = {file.path for file in client.files(table.name)}
    for condition, told in {
        "pp = 'a'": "name `pp` cannot be resolved",
        "upper(p) = 'A'": "only whole columns that are compared with constants",
        "p = 'a' AND id + 1 = 2": "only whole columns that are compared with constants",
        "p = 'a' AND rand() < 0.5": "not deterministic",
        "": "PARSE_EMPTY_STATEMENT",
    }.items():
        for execute in (Optimize.execute_compaction, lambda one: one.execute_zorder_by("id")):
            with pytest.raises(InvalidRequest, match=told) as error:
                execute(table.optimize().where(condition))
            assert error.value.slug == "filter-invalid"
    assert {file.path for file in client.files(table.name)} == before
    assert table.version == 4


def test_a_corrupt_file_cools_down_and_is_tried_again(spark: SparkSession, table: Table, client: Client) -> None:
    """Skipped once, not touched before its time, tried after it, listed all along, and merged when it is whole."""
    bad = next(file for file in client.files(table.name) if file.partition_values == {"p": "a"})
    place = folder_of(client, table) / bad.path
    whole = place.read_bytes()
    place.write_bytes(b"broken")
    first = table.optimize(cooldown_hours=1).execute_compaction()
    assert list(first.skipped) == [bad.path]
    assert (first.num_removed_files, first.num_added_files) == (3 + 4, 2)
    assert list(client.cooldowns(table.name)) == [bad.path]
    assert bad.path in {file.path for file in client.files(table.name)}
    # One more small file beside it: in its cooldown nobody touches it, though there is something to merge it with.
    table.write(spark.createDataFrame([(50, "a")], "id long, p string"))
    second = table.optimize(cooldown_hours=0).execute_compaction()
    assert (second.skipped, second.cooling) == ({}, 1)
    (skip,) = client.skips(table.name)
    assert skip.skip_count == 1
    # A shorter skip does not end the cooldown. Removed and added again it has none; still broken, it is counted again.
    client.record_skip(table.name, bad.path, reason="test", operation="OPTIMIZE", cooldown_hours=0)
    assert list(client.cooldowns(table.name)) == [bad.path]
    removed = client.commit(
        table.name, [Remove(path=bad.path, data_change=True)], read_version=client.get_table(table.name).version
    )
    assert isinstance(removed, Committed)
    assert isinstance(client.commit(table.name, [bad]), Committed)
    client.record_skip(table.name, bad.path, reason="test", operation="OPTIMIZE", cooldown_hours=0)
    table.write(spark.createDataFrame([(60, "a")], "id long, p string"))
    third = table.optimize(cooldown_hours=0).execute_compaction()
    assert list(third.skipped) == [bad.path]
    (skip,) = client.skips(table.name)
    assert skip.skip_count == 2
    while client.cooldowns(table.name):  # a cooldown of nothing ends within the millisecond
        time.sleep(0.01)
    # Mended, it goes the way of the others, and its rows are there.
    place.write_bytes(whole)
    fourth = table.optimize().execute_compaction()
    assert bad.path not in {file.path for file in client.files(table.name)}
    assert (fourth.skipped, list(client.skips(table.name))) == ({}, [])
    assert ids(table) == Counter([0, 10, 20, 30, 1, 11, 21, 31, 50, 60])


def test_only_the_group_whose_file_went_is_given_up(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _optimizing._run

    def interrupted(*args: Any) -> Any:
        merged = run(*args)
        table.delete("id = 0")
        table.write(spark.createDataFrame([(99, "b")], "id long, p string"))
        return merged

    monkeypatch.setattr(_optimizing, "_run", interrupted)
    result = table.optimize().execute_compaction()
    assert (result.num_groups_given_up, result.num_removed_files, result.num_added_files) == (1, 4, 1)
    assert ids(table) == Counter([10, 20, 30, 1, 11, 21, 31, 99])
    # What the lost group wrote is gone from the disk.
    root = folder_of(client, table)
    on_disk = {path.relative_to(root).as_posix() for path in root.rglob("part-*.parquet")}
    known = {add.path for version in range(1, 8) for add in client.files(table.name, version=version)}
    assert on_disk == known
