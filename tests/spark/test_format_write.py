"""Batch writes through the format: each option, what is refused, and what becomes of files when something fails."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


class Format:
    """Reads and writes tables of the test's service."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark = spark
        self.url = url

    def rows(self, table: str, **options: Any) -> list[tuple[Any, ...]]:
        """All rows, sorted."""
        found = self.spark.read.format("tarnlog").options(url=self.url, **options).load(table)
        return sorted((tuple(row) for row in found.collect()), key=repr)

    def frame(self, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema)

    def writer(self, frame: DataFrame, mode: str = "append", **options: Any) -> DataFrameWriter:
        return frame.write.format("tarnlog").mode(mode).options(url=self.url, **options)

    def fails(self, frame: DataFrame, table: str, mode: str = "append", **options: Any) -> str:
        """Why it is refused."""
        with pytest.raises(Exception) as caught:
            self.writer(frame, mode, **options).save(table)
        return str(caught.value)


@pytest.fixture
def form(spark: SparkSession, tarnlog_service: ServiceProcess) -> Format:
    return Format(spark, tarnlog_service.url)


def data_files(client: Client, table: str) -> list[Path]:
    root = Path(unquote(client.get_table(table).location.removeprefix("file://")))
    return sorted(path for path in root.rglob("*.parquet") if "_transaction_log" not in path.parts)


def test_a_partition_by_time_is_replaced(form: Format, name: str) -> None:
    """Times without a zone are UTC in the format, which knows no session."""
    times = "id long, at timestamp"
    first, second = dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    form.writer(form.frame(times, (1, first), (2, second)), partitionBy="at").save(name)
    condition = "at = timestamp'2024-01-01 00:00:00'"
    form.writer(form.frame(times, (3, first)), "overwrite", replaceWhere=condition).save(name)
    assert [row[0] for row in form.rows(name)] == [2, 3]


def test_append_overwrite_and_the_ways_between(form: Format, client: Client, name: str) -> None:
    days = "id long, day string"
    form.writer(form.frame(days, (1, "a"), (2, "b"), (3, None)), partitionBy="DAY").save(name)
    assert client.get_table(name).partition_columns == ("day",)
    form.writer(form.frame("DAY string, id int", ("b", 4))).save(name)  # by name, and widened
    assert form.rows(name) == [(1, "a"), (2, "b"), (3, None), (4, "b")]

    form.writer(form.frame(days, (5, "b"), (6, None)), "overwrite", partitionOverwriteMode="dynamic").save(name)
    assert form.rows(name) == [(1, "a"), (5, "b"), (6, None)]

    form.writer(form.frame(days, (7, "b")), "overwrite", replaceWhere="day >= 'b' AND day < 'c'").save(name)
    assert form.rows(name) == [(1, "a"), (6, None), (7, "b")]
    before = len(data_files(client, name))
    refused = form.fails(form.frame(days, (8, "a")), name, "overwrite", replaceWhere="day = 'b'")
    assert "do not match replaceWhere" in refused
    assert len(data_files(client, name)) == before, "files that are never needed are deleted at once"
    assert "Table.write" in form.fails(form.frame(days, (8, "b")), name, "overwrite", replaceWhere="id = 8")

    form.writer(form.frame(days, (9, "z")), "overwrite").save(name)
    assert form.rows(name) == [(9, "z")]
    assert [record.operation_parameters.get("mode") for record in client.history(name)][:2] == ["Overwrite"] * 2
    assert form.rows(name, versionAsOf="1") == [(1, "a"), (2, "b"), (3, None)]
    assert not client.sessions(name), "a write that is settled leaves no session behind"


def test_schemas_grow_only_when_asked(form: Format, client: Client, name: str) -> None:
    form.writer(form.frame("id int", (1,))).save(name)
    wider = form.frame("id int, x struct<a:int>", (2, (7,)))
    assert "x: the table has no such column" in form.fails(wider, name)
    assert "id: the DataFrame has bigint" in form.fails(form.frame("id long", (2**40,)), name)
    form.writer(wider, mergeSchema="true").save(name)
    form.writer(form.frame("id long, x struct<b:string,a:int>", (2**40, ("n", 8))), mergeSchema="true").save(name)
    assert [tuple(row[:1]) for row in form.rows(name)] == [(1,), (1099511627776,), (2,)]
    assert "string" in form.fails(form.frame("id string", ("z",)), name, mergeSchema="true")
    form.writer(form.frame("other string", ("o",)), "overwrite", overwriteSchema="true").save(name)
    assert form.rows(name) == [("o",)]
    assert [field["name"] for field in client.get_table(name).schema["fields"]] == ["other"]
    assert client.get_table(name).version == 4


def test_the_same_txn_writes_once(form: Format, client: Client, name: str) -> None:
    for version, expected in (("1", 1), ("1", 1), ("0", 1), ("2", 2)):
        form.writer(form.frame("id long", (int(version),)), txnAppId="job", txnVersion=version).save(name)
        assert len(form.rows(name)) == expected
    assert len(data_files(client, name)) == 2
    found = client.txn(name, "job")
    assert found is not None
    assert found.version == 2


def test_an_overwrite_replaces_what_is_there_when_it_commits(form: Format, client: Client, name: str) -> None:
    """The rival commits while the tasks run: the last row is made by a task that waits for it."""
    form.writer(form.frame("id long", (1,))).save(name)
    url = form.url

    def rival(batches: Any) -> Any:
        from tarnlog import Client, Remove

        with Client(url) as other:
            for batch in batches:
                gone = [Remove(path=file.path, data_change=True) for file in other.files(name)]
                if gone:
                    other.commit(name, gone, read_version=other.snapshot(name).version, operation="RIVAL")
                yield batch

    form.writer(form.spark.range(1).mapInArrow(rival, "id long"), "overwrite").save(name)
    assert form.rows(name) == [(0,)]
    assert [record.operation for record in client.history(name)][:2] == ["WRITE", "RIVAL"]
    assert not client.sessions(name)


def test_a_task_that_runs_twice_writes_its_rows_once(form: Format, client: Client, name: str, tmp_path: Path) -> None:
    flag = tmp_path / "failed"

    def once(batches: Any) -> Any:
        yield from batches
        if not flag.exists():
            flag.touch()
            raise RuntimeError("after the rows")

    rows = form.spark.range(80).repartition(1).mapInArrow(once, "id long")
    form.writer(rows).save(name)
    assert flag.exists()
    assert sorted(row[0] for row in form.rows(name)) == list(range(80))
    assert sum(file.num_records or 0 for file in client.files(name)) == 80


@pytest.mark.parametrize(
    "mode, options, sentence",
    [
        ("append", {"txnAppId": "x"}, "give both or neither"),
        ("append", {"mergeSchemas": "true"}, "did you mean mergeSchema"),
        ("append", {"replaceWhere": "id = 1"}, "this write appends"),
        ("errorifexists", {}, "ErrorIfExists"),
    ],
)
def test_what_is_refused_changes_nothing(
    form: Format, client: Client, name: str, mode: str, options: dict[str, str], sentence: str
) -> None:
    form.writer(form.frame("id long", (1,))).save(name)
    assert sentence.lower() in form.fails(form.frame("id long", (2,)), name, mode, **options).lower()
    assert client.get_table(name).version == 1
