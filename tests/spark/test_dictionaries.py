"""Dictionaries that never pay are not tried again: what is learned, what is forgotten, and what Spark makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Client
from tarnlog.protocol.actions import Add
from tarnlog_spark import Table, _dictionaries
from tarnlog_spark._dictionaries import PAGE_ROWS, SETTING, Dictionaries, learn
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "Eine Spalte#ü"


def futile(known: Dictionaries, table: str) -> set[str] | None:
    """As a plain set."""
    found = known.futile(table)
    return None if found is None else set(found)


def test_what_failed_is_not_tried_and_what_paid_is_tried_on() -> None:
    known = Dictionaries()
    assert futile(known, "t") is None, "a table that nothing is known of tries all"
    known.learn("t", [("a", False), ("b", True), ("c", False), ("c", True)])
    assert futile(known, "t") == {"a"}
    assert futile(known, "other") is None
    known.learn("t", [("b", False)])
    assert futile(known, "t") == {"a", "b"}
    known.learn("t", [("a", True)])
    assert futile(known, "t") == {"b"}
    known.learn("t", [])
    assert futile(known, "t") == {"b"}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.booleans(), min_size=1), min_size=1, max_size=8))
def test_the_last_that_was_seen_of_a_column_counts(rounds: list[dict[str, bool]]) -> None:
    known, last = Dictionaries(), dict[str, bool]()
    for seen in rounds:
        known.learn("t", seen.items())
        last |= seen
    assert futile(known, "t") == {name for name, has_paid in last.items() if not has_paid}


def test_everything_is_tried_again_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionaries, "TRIED_EVERY", 3)
    known = Dictionaries()
    known.learn("t", [("a", False)])
    assert [futile(known, "t") is None for _ in range(7)] == [False, False, True, False, False, True, False]


def test_tables_that_were_not_written_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionaries, "MOST_TABLES", 2)
    known = Dictionaries()
    for table in ("one", "two"):
        known.learn(table, [("a", False)])
    known.futile("one")
    known.learn("three", [("a", False)])
    assert [futile(known, table) for table in ("one", "two", "three")] == [{"a"}, None, {"a"}]


SCHEMA = (
    '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}},'
    '{"name":"a.b","type":"long","nullable":true,"metadata":{}},'
    '{"name":"t","type":"boolean","nullable":true,"metadata":{}}]}'
)


def learned(folder: Path, values: list[int | None], *, has_dictionary: bool) -> set[str] | None:
    """What is known after one file was looked at."""
    numbers = pa.array(values, pa.int64())
    rows = pa.table({"x": numbers, "a.b": numbers, "t": pa.array([True] * len(values))})
    pq.write_table(rows, folder / "f.parquet", use_dictionary=has_dictionary)
    add = Add(
        path="f.parquet",
        partition_values={},
        size=(folder / "f.parquet").stat().st_size,
        modification_time=0,
        data_change=True,
        num_records=len(values),
    )
    known = Dictionaries()
    gone = msgspec.structs.replace(add, path="gone.parquet")
    learn(known, WriteTask(storage=storage_at(str(folder)), schema_string=SCHEMA), [gone, add])
    return futile(known, storage_at(str(folder)).location)


@pytest.mark.parametrize(
    "values, has_dictionary, wanted",
    [
        pytest.param(list(range(PAGE_ROWS)), False, {"x"}, id="no dictionary"),
        pytest.param(list(range(PAGE_ROWS)), True, set(), id="a dictionary"),
        pytest.param(list(range(PAGE_ROWS - 1)), False, None, id="few rows say nothing"),
        pytest.param([None, *range(PAGE_ROWS - 1)], False, None, id="few values say nothing"),
        pytest.param([None, *range(PAGE_ROWS)], False, {"x"}, id="nulls beside enough values"),
    ],
)
def test_what_a_footer_tells(
    tmp_path: Path, values: list[int | None], has_dictionary: bool, wanted: set[str] | None
) -> None:
    assert learned(tmp_path, values, has_dictionary=has_dictionary) == wanted


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.create(spark, name, f"`{ODD}` BIGINT, s STRING, p INT", partition_by=["p"], url=tarnlog_service.url)


def has_dictionary(client: Client, table: Table, version: int | None) -> dict[str, bool]:
    """By column, whether the files of the newest write have a dictionary; the same for all of them."""
    assert version is not None
    root = Path(client.get_table(table.name).location.removeprefix("file://"))
    before = {file.path for file in client.files(table.name, version=version - 1)} if version > 0 else set()
    new = [file for file in client.files(table.name, version=version) if file.path not in before]
    assert new
    found = set()
    for file in new:
        group = pq.ParquetFile(root / file.path).metadata.row_group(0)
        columns = [group.column(index) for index in range(group.num_columns)]
        found.add(tuple((one.path_in_schema, "PLAIN_DICTIONARY" in one.encodings) for one in columns))
    (only,) = found
    return dict(only)


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
