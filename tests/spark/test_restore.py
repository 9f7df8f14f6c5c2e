"""Restore across changes of the schema: what comes back can be read, and nothing of it is lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tarnlog import Client, Committed
from tarnlog_spark import SchemaMismatch, Table, _committing, _restoring
from tarnlog_spark._restored_schema import reads, restored_schema
from tests.service_process import ServiceProcess
from tests.spark.test_table import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.for_name(spark, name, url=tarnlog_service.url)


def replace(table: Table, rows: DataFrame) -> None:
    table.write(rows, "overwrite", overwrite_schema=True)


def test_a_column_of_another_type_comes_back(spark: SparkSession, table: Table) -> None:
    table.write(spark.sql("select 1L id"))
    replace(table, spark.sql("select 'x' id"))
    assert table.restore(1).version == 3
    assert table.schema.simpleString() == "struct<id:bigint>"
    assert rows_of(table.read()) == Counter([(1,)])
    assert rows_of(table.read("id = 1")) == Counter([(1,)])
    assert rows_of(table.read(version=2)) == Counter([("x",)])
    table.write(spark.sql("select 2L id"))
    table.restore(2)
    assert rows_of(table.read()) == Counter([("x",)])
    assert table.restore(2).version == 5


def test_a_column_that_went_comes_back(spark: SparkSession, table: Table) -> None:
    table.write(spark.sql("select 1L id, 'a' v"), partition_by=["id"])
    replace(table, spark.sql("select 2L id, 3 other"))
    table.restore(1)
    assert table.schema.simpleString() == "struct<id:bigint,v:string>"
    assert rows_of(table.read()) == Counter([(1, "a")])
    # A version without any files has a schema too.
    replace(table, spark.sql("select 2L id, 3 other"))
    table.restore(0)
    assert table.schema.simpleString() == "struct<id:bigint,v:string>"
    assert table.read().count() == 0


def test_columns_that_were_only_added_stay(spark: SparkSession, table: Table) -> None:
    table.write(spark.sql("select 1 id"))
    table.write(spark.sql("select 2L id, 'b' v"), merge_schema=True)
    table.restore(1)
    assert table.schema.simpleString() == "struct<id:bigint,v:string>"
    assert rows_of(table.read()) == Counter([(1, None)])


def test_files_that_are_live_at_both_versions_keep_what_both_have(spark: SparkSession, table: Table) -> None:
    """The service takes a schema of one's own only when every file goes: here the first one stays."""
    table.write(spark.sql("select 1L id"))
    table.write(spark.sql("select 2L id, 'b' v"), merge_schema=True)
    replace(table, spark.sql("select 'x' other"))
    table.restore(1)
    table.write(spark.sql("select 3L id, 'c' w"), merge_schema=True)
    table.restore(2)
    assert table.schema.simpleString() == "struct<id:bigint,w:string,v:string>"
    assert rows_of(table.read()) == Counter([(1, None, None), (2, None, "b")])


def test_what_the_service_would_not_take_is_refused_by_name(spark: SparkSession, table: Table) -> None:
    table.write(spark.sql("select 1L id"))
    table.write(spark.sql("select 2L id, 'b' v"), merge_schema=True)
    replace(table, spark.sql("select 'x' other"))
    table.restore(1)
    table.write(spark.sql("select 3L id, 7 v"), merge_schema=True)
    with pytest.raises(SchemaMismatch, match="overwrite_schema=True") as error:
        table.restore(2)
    assert error.value.columns == {"v": "it was string then and is int now"}
    assert rows_of(table.read()) == Counter([(1, None), (3, 7)])
    # What the message says works.
    table.write(table.read(version=2), "overwrite", overwrite_schema=True)
    assert rows_of(table.read()) == Counter([(1, None), (2, "b")])
    replace(table, spark.sql("select 1 v"))
    table.delete()
    table.restore(2)  # an empty table takes any schema
    assert rows_of(table.read()) == Counter([(1, None), (2, "b")])


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[str]]:
    """Lets a rival commit right before the first commit of a restore is sent; tells what was sent."""

    def by(rival: Callable[[], Any]) -> list[str]:
        sent, coming = list[str](), [rival]

        def late(client: Client, job: Any, actions: Any) -> Committed:
            if coming:
                coming.pop()()
            sent.append(job.operation)
            return _committing.commit_job(client, job, actions)

        monkeypatch.setattr(_restoring, "commit_job", late)
        return sent

    return by


def test_an_append_in_between_has_files_of_the_schema_that_goes(
    spark: SparkSession, table: Table, interrupt: Callable[[Callable[[], Any]], list[str]]
) -> None:
    table.write(spark.sql("select 1L id"))
    replace(table, spark.sql("select 'x' id"))
    sent = interrupt(lambda: table.write(spark.sql("select 'y' id")))
    assert table.restore(1).num_removed_files == 2
    assert sent == ["RESTORE"] * 2
    assert rows_of(table.read()) == Counter([(1,)])


def test_a_schema_that_comes_in_between_is_seen(
    spark: SparkSession, table: Table, interrupt: Callable[[Callable[[], Any]], list[str]]
) -> None:
    table.write(spark.sql("select 1L id"))
    table.write(spark.sql("select 2L id"), "overwrite")
    sent = interrupt(lambda: replace(table, spark.sql("select 'y' id")))
    table.restore(1)
    assert sent == ["RESTORE"] * 2
    assert rows_of(table.read()) == Counter([(1,)])


@pytest.mark.parametrize(
    "now, then, fits",
    [
        ("id long, v string", "id int", True),
        ("id int", "id long", False),
        ("id long not null", "id long", False),
        ("id long", "id long not null", True),
        ("id long, v string not null", "id long", False),
        ("ID long", "id long", False),
        ("s struct<a:long,b:int>", "s struct<a:int>", True),
        ("s struct<a:long>", "s struct<a:int,b:int>", False),
        ("a array<long>", "a array<int>", True),
        ("a array<int>", "a array<string>", False),
        ("m map<string,double>", "m map<string,float>", True),
        ("m map<long,int>", "m map<int,int>", False),
        ("s struct<a:int>", "s int", False),
    ],
)
def test_which_files_a_schema_reads(spark: SparkSession, now: str, then: str, fits: bool) -> None:
    one, other = (spark.createDataFrame([], ddl).schema for ddl in (now, then))
    assert reads(one, other) is fits
    chosen = restored_schema(other, one, replaces_all=True, table="t", advice="")
    assert chosen == (one if fits else other)
