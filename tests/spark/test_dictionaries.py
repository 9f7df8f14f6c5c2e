"""Dictionaries that never pay are not tried again: what is learned, what is forgotten, and what Spark makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Client
from tarnlog_spark import Table, _dictionaries, _staging
from tarnlog_spark._dictionaries import PAGE_ROWS, SETTING, Dictionaries, Paid
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "Eine Spalte#ü"


SCHEMA = (
    '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}},'
    '{"name":"a.b","type":"long","nullable":true,"metadata":{}},'
    '{"name":"x ","type":"long","nullable":true,"metadata":{}},'
    '{"name":"t","type":"boolean","nullable":true,"metadata":{}}]}'
)


def task_at(place: str, schema: str = SCHEMA) -> WriteTask:
    return WriteTask(storage=storage_at(f"/{place}"), schema_string=schema)


def futile(known: Dictionaries, place: str = "t", schema: str = SCHEMA) -> set[str] | None:
    """As a plain set."""
    found = known.futile(task_at(place, schema))
    return None if found is None else set(found)


def test_what_failed_is_not_tried_and_what_paid_is_tried_on() -> None:
    known = Dictionaries()
    assert futile(known) is None, "a table that nothing is known of tries all"
    known.learn(task_at("t"), {"a": False, "b": True})
    assert futile(known) == {"a"}
    assert futile(known, "other") is None
    assert futile(known, schema="other columns") is None
    known.learn(task_at("t"), {"b": False})
    assert futile(known) == {"a", "b"}
    known.learn(task_at("t"), {"a": True})
    assert futile(known) == {"b"}
    known.learn(task_at("t"), {})
    assert futile(known) == {"b"}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.booleans(), min_size=1), min_size=1, max_size=8))
def test_the_last_that_was_seen_of_a_column_counts(rounds: list[dict[str, bool]]) -> None:
    known, last = Dictionaries(), dict[str, bool]()
    for seen in rounds:
        known.learn(task_at("t"), seen)
        last |= seen
    assert futile(known) == {name for name, has_paid in last.items() if not has_paid}


def test_everything_is_tried_again_once_in_a_while_until_something_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionaries, "TRIED_EVERY", 3)
    known = Dictionaries()
    known.learn(task_at("t"), {"a": False})
    assert [futile(known) is None for _ in range(5)] == [False, False, True, True, True]
    known.learn(task_at("t"), {})
    assert futile(known) is None, "of a small write nothing is seen"
    known.learn(task_at("t"), {"a": False})
    assert [futile(known) is None for _ in range(3)] == [False, False, True]


def test_tables_that_were_not_written_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionaries, "MOST_TABLES", 2)
    known = Dictionaries()
    for table in ("one", "two"):
        known.learn(task_at(table), {"a": False})
    futile(known, "one")
    known.learn(task_at("three"), {"a": False})
    assert [futile(known, table) for table in ("one", "two", "three")] == [{"a"}, None, {"a"}]


def footer(folder: Path, values: list[int | None], *, has_dictionary: bool) -> pq.FileMetaData:
    numbers = pa.array(values, pa.int64())
    rows = pa.table({"x": numbers, "a.b": numbers, "x ": numbers, "t": pa.array([True] * len(values))})
    pq.write_table(rows, folder / "f.parquet", use_dictionary=has_dictionary)
    return pq.read_metadata(folder / "f.parquet")


@pytest.mark.parametrize(
    "values, has_dictionary, wanted",
    [
        pytest.param(list(range(PAGE_ROWS)), False, {"x": False}, id="no dictionary"),
        pytest.param(list(range(PAGE_ROWS)), True, {"x": True}, id="a dictionary"),
        pytest.param([1, 2, 3], True, {"x": True}, id="a dictionary of few"),
        pytest.param(list(range(PAGE_ROWS - 1)), False, {}, id="few rows say nothing"),
        pytest.param([None, *range(PAGE_ROWS - 1)], False, {}, id="few values say nothing"),
        pytest.param([None, *range(PAGE_ROWS)], False, {"x": False}, id="nulls beside enough values"),
    ],
)
def test_what_a_footer_tells(
    tmp_path: Path, values: list[int | None], has_dictionary: bool, wanted: dict[str, bool]
) -> None:
    paid = Paid(task_at("t").schema())
    paid.look(footer(tmp_path, values, has_dictionary=has_dictionary))
    assert paid.found == wanted


@pytest.mark.parametrize("turn", [1, -1])
def test_one_file_with_a_dictionary_is_enough(tmp_path: Path, turn: int) -> None:
    paid, other = Paid(task_at("t").schema()), Paid(task_at("t").schema())
    for has_dictionary in (True, False)[::turn]:
        seen = footer(tmp_path, list(range(PAGE_ROWS)), has_dictionary=has_dictionary)
        paid.look(seen)
        one = Paid(task_at("t").schema())
        one.look(seen)
        other.take(one.found)
    assert paid.found == other.found == {"x": True}


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.create(spark, name, f"`{ODD}` BIGINT, s STRING, p INT", partition_by=["p"], url=tarnlog_service.url)


def dictionaries_of(client: Client, table: Table, version: int | None) -> list[dict[str, bool]]:
    """By file of a write, in the order of their partitions, and by column, whether there is a dictionary."""
    assert version is not None
    root = Path(client.get_table(table.name).location.removeprefix("file://"))
    before = {file.path for file in client.files(table.name, version=version - 1)} if version > 0 else set()
    new = [file for file in client.files(table.name, version=version) if file.path not in before]
    found = []
    for file in sorted(new, key=lambda file: int(file.partition_values["p"] or 0)):
        group = pq.ParquetFile(root / file.path).metadata.row_group(0)
        columns = [group.column(index) for index in range(group.num_columns)]
        found.append({one.path_in_schema: "PLAIN_DICTIONARY" in one.encodings for one in columns})
    return found


def has_dictionary(client: Client, table: Table, version: int | None) -> dict[str, bool]:
    """The same where it is so in all files."""
    first, *others = dictionaries_of(client, table, version)
    assert all(other == first for other in others)
    return first


def test_spark_does_not_try_what_failed(spark: SparkSession, client: Client, table: Table) -> None:
    count = 2 * PAGE_ROWS
    base = spark.range(0, count, 1, 1)
    unique = base.selectExpr(f"id AS `{ODD}`", "CAST(id % 7 AS STRING) AS s", "CAST(id % 2 AS INT) AS p")
    same = base.selectExpr(f"id % 3 AS `{ODD}`", "CAST(id % 7 AS STRING) AS s", "CAST(id % 2 AS INT) AS p")
    tried, not_tried = {ODD: True, "s": True, "p": True}, {ODD: False, "s": True, "p": True}

    assert has_dictionary(client, table, table.write(unique, writer="native").version) == not_tried
    sizes = sorted(file.size for file in client.files(table.name))
    assert has_dictionary(client, table, table.write(unique, writer="native").version) == not_tried
    assert sorted(file.size for file in client.files(table.name)) == sorted(2 * sizes), "the same bytes without trying"

    # Values that repeat now: only the setting keeps them out of a dictionary, and the user's own setting wins.
    assert has_dictionary(client, table, table.write(same, writer="native").version) == not_tried
    spark.conf.set(f"{SETTING}#{ODD}", "true")
    try:
        assert has_dictionary(client, table, table.write(same, writer="native").version) == tried
    finally:
        spark.conf.unset(f"{SETTING}#{ODD}")
    assert has_dictionary(client, table, table.write(same, writer="native").version) == not_tried
    assert table.read().count() == 5 * count


def test_it_is_tried_again(spark: SparkSession, client: Client, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionaries, "TRIED_EVERY", 2)
    base = spark.range(0, PAGE_ROWS, 1, 1)
    unique, same = (base.selectExpr(f"{text} AS `{ODD}`", "'' AS s", "0 AS p") for text in ("id", "id % 3"))
    seen = [
        has_dictionary(client, table, table.write(rows, writer="native").version)[ODD]
        for rows in (unique, same, same, same)
    ]
    assert seen == [False, False, True, True]


def test_what_the_user_decided_is_not_learned(spark: SparkSession, client: Client, table: Table) -> None:
    same = spark.range(0, PAGE_ROWS, 1, 1).selectExpr(f"id % 3 AS `{ODD}`", "'' AS s", "0 AS p")
    spark.conf.set(SETTING, "false")
    try:
        assert not any(has_dictionary(client, table, table.write(same, writer="native").version).values())
    finally:
        spark.conf.unset(SETTING)
    assert all(has_dictionary(client, table, table.write(same, writer="native").version).values())


@pytest.mark.parametrize("by_job", [False, True])
def test_few_files_that_profit_are_enough(
    spark: SparkSession, client: Client, table: Table, monkeypatch: pytest.MonkeyPatch, by_job: bool
) -> None:
    if by_job:
        monkeypatch.setattr(_staging, "MANY_FILES", 2)
    text = f"CASE WHEN id % 4 = 3 THEN id % 3 ELSE id END AS `{ODD}`"
    rows = spark.range(0, 4 * PAGE_ROWS, 1, 1).selectExpr(text, "'' AS s", "CAST(id % 4 AS INT) AS p")
    for _ in range(2):
        version = table.write(rows, writer="native").version
        assert [one[ODD] for one in dictionaries_of(client, table, version)] == [False, False, False, True]
