"""The Table API on one Spark: every mode and option, judged by what plain Spark would have."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarnlog import Client, Conflict, Expired, InvalidRequest, NotFound
from tarnlog_spark import ConstraintError, SchemaMismatch, Table
from tests.service_process import ServiceProcess
from tests.spark.oracle_steps import configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    """A table that does not exist yet."""
    return Table.for_name(spark, name, url=tarnlog_service.url)


def rows_of(rows: DataFrame) -> Counter[Any]:
    return Counter(tuple(row) for row in rows.collect())


def live_paths(client: Client, table: Table) -> set[str]:
    return {file.path for file in client.files(table.name)}


def numbers(spark: SparkSession, *ids: int) -> DataFrame:
    """Rows (id, p, v): p is the id's last digit's parity."""
    return spark.createDataFrame([(n, n % 2, f"v{n}") for n in ids], "id long, p int, v string")


def expected(*ids: int) -> Counter[Any]:
    return Counter((n, n % 2, f"v{n}") for n in ids)


def test_a_write_creates_the_table_and_appends(spark: SparkSession, table: Table) -> None:
    assert not table.exists
    first = table.write(numbers(spark, 1, 2, 3), partition_by=["p"])
    assert (first.version, first.num_rows, table.exists) == (1, 3, True)
    assert table.write(numbers(spark, 4)).version == 2
    assert rows_of(table.read()) == expected(1, 2, 3, 4)
    assert rows_of(table.read(version=1)) == expected(1, 2, 3)
    assert rows_of(table.read("p = 1 AND id > 1", columns=["v"])) == Counter([("v3",)])
    detail = table.detail().collect()[0]
    assert (detail.version, detail.partitionColumns, detail.numRecords) == (2, ["p"], 4)
    history = table.history().collect()
    assert [(row.version, row.operation, row.isBlindAppend) for row in history] == [
        (2, "WRITE", True),
        (1, "WRITE", True),
        (0, "CREATE TABLE", False),
    ]
    assert history[0].operationMetrics["numOutputRows"] == "1"
    assert rows_of(table.read(timestamp=history[1].timestamp.replace(tzinfo=dt.UTC))) == expected(1, 2, 3)


def test_modes(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1), "error")
    with pytest.raises(Conflict, match="exists already"):
        table.write(numbers(spark, 2), "error")
    assert table.write(numbers(spark, 2), "ignore").skipped == "the table exists"
    assert table.write(numbers(spark), "append").version == 1
    replaced = table.write(numbers(spark, 3, 4), "overwrite")
    assert replaced.num_removed_files == 1
    assert rows_of(table.read()) == expected(3, 4)
    assert rows_of(table.read(version=1)) == expected(1)
    table.write(numbers(spark), "overwrite")
    assert rows_of(table.read()) == Counter()
    assert table.version == 3


def test_options_that_do_not_fit_are_refused_before_anything_happens(spark: SparkSession, table: Table) -> None:
    rows = numbers(spark, 1)
    refused: list[dict[str, Any]] = [
        {"mode": "upsert"},
        {"mode": "append", "replace_where": "id = 1"},
        {"mode": "append", "overwrite_schema": True},
        {"mode": "overwrite", "replace_where": "id = 1", "overwrite_schema": True},
        {"mode": "overwrite", "partition_overwrite_mode": "sometimes"},
        {"txn_app_id": "a"},
        {"txn_version": 1},
    ]
    for options in refused:
        with pytest.raises(InvalidRequest):
            table.write(rows, **options)
    assert not table.exists
    table.write(rows, partition_by=["p"])
    with pytest.raises(InvalidRequest, match="partitioned by"):
        table.write(rows, partition_by=["id"])
    with pytest.raises(InvalidRequest, match="namespace"):
        Table.for_name(spark, "no-namespace")


@pytest.mark.parametrize(
    "key, sentence",
    [
        ("s3.acessKey", r"no option 's3.acessKey': did you mean s3\.accessKey\?"),
        ("quux", r"no option 'quux'; it takes s3\.accessKey, s3\.endpoint"),
        ("versionAsOf", "no option 'versionAsOf'"),
    ],
)
def test_an_option_of_the_storage_that_is_misspelled_is_refused(spark: SparkSession, key: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Table.for_name(spark, "a.t", options={key: "x"})
    assert Table.for_name(spark, "a.t", options={"S3.accesskey": "x"})._target.place.s3 == {"s3.accesskey": "x"}


def test_dynamic_overwrite_replaces_only_the_partitions_it_writes(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1, 2, 3, 4), partition_by=["p"])
    table.write(numbers(spark, 7), "overwrite", partition_overwrite_mode="dynamic")
    assert rows_of(table.read()) == expected(2, 4, 7)
    table.write(numbers(spark), "overwrite", partition_overwrite_mode="dynamic")
    assert rows_of(table.read()) == expected(2, 4, 7)


def test_a_session_does_not_decide_what_an_overwrite_replaces(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1, 2), partition_by=["p"])
    with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        table.write(numbers(spark, 7), "overwrite")
    assert rows_of(table.read()) == expected(7)


def test_replace_where(spark: SparkSession, table: Table, client: Client) -> None:
    table.write(numbers(spark, *range(10)).repartition(1), partition_by=["p"])
    before = live_paths(client, table)
    table.write(numbers(spark, 4, 8), "overwrite", replace_where="p = 0 AND id >= 4")
    assert rows_of(table.read()) == expected(0, 2, 4, 8, 1, 3, 5, 7, 9)
    kept = [add for add in client.files(table.name) if add.path in before]
    assert [add.partition_values["p"] for add in kept] == ["1"]
    with pytest.raises(ConstraintError, match="replaceWhere"):
        table.write(numbers(spark, 4, 5), "overwrite", replace_where="p = 0")
    # A condition that the service does not understand is Spark's alone.
    table.write(numbers(spark), "overwrite", replace_where="length(v) = 2 AND id % 3 = 0")
    assert rows_of(table.read()) == expected(2, 4, 8, 1, 5, 7)


def test_columns_go_by_name_and_absent_ones_are_null(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1))
    table.write(spark.createDataFrame([("x", 2)], "V string, ID int"))
    assert rows_of(table.read()) == expected(1) + Counter([(2, None, "x")])


def test_a_mismatch_names_its_columns(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1))
    with pytest.raises(SchemaMismatch) as error:
        table.write(spark.createDataFrame([(1, "x", 2.0)], "id long, p string, more double"))
    assert set(error.value.columns) == {"p", "more"}
    with pytest.raises(SchemaMismatch) as error:
        table.write(spark.sql("select 1L id, 2L p"))
    assert error.value.columns == {"p": "the DataFrame has bigint, the table int"}
    assert table.version == 1


def test_nulls_where_none_are_allowed(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    schema = StructType([StructField("id", LongType(), False), StructField("v", StringType())])
    table = Table.create(spark, name, schema, url=tarnlog_service.url)
    with pytest.raises(SchemaMismatch) as error:
        table.write(spark.createDataFrame([(1, "a"), (None, "b")], "id long, v string"))
    assert list(error.value.columns) == ["id"]
    with pytest.raises(SchemaMismatch):
        table.write(spark.createDataFrame([("a",)], "v string"))
    assert table.version == 0


def test_schemas_grow_when_they_may(spark: SparkSession, table: Table) -> None:
    table.write(spark.sql("select 1 id, struct(1 as x) s"))
    table.write(spark.sql("select 2L id, struct(2 as x, 'y' as y) s, array(1) more"), merge_schema=True)
    assert table.schema.simpleString() == "struct<id:bigint,s:struct<x:int,y:string>,more:array<int>>"
    found = {row.id: (row.s.x, row.s.y, row.more) for row in table.read().collect()}
    assert found == {1: (1, None, None), 2: (2, "y", [1])}
    with pytest.raises(SchemaMismatch) as error:
        table.write(spark.sql("select 'x' id"), merge_schema=True)
    assert list(error.value.columns) == ["id"]
    assert rows_of(table.read(version=1).select("id")) == Counter([(1,)])


def test_an_overwrite_may_bring_its_own_schema(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1, 2), partition_by=["p"])
    table.write(spark.sql("select 'x' id, 7 p, date'2024-01-01' other"), "overwrite", overwrite_schema=True)
    assert table.schema.simpleString() == "struct<id:string,p:int,other:date>"
    assert rows_of(table.read()) == Counter([("x", 7, dt.date(2024, 1, 1))])
    assert rows_of(table.read(version=1)) == expected(1, 2)
    with pytest.raises(InvalidRequest, match="partitioned by it"):
        table.write(spark.sql("select 1 id, 'text' p"), "overwrite", overwrite_schema=True)


def test_a_write_with_a_txn_happens_once(spark: SparkSession, table: Table) -> None:
    table.write(numbers(spark, 1), txn_app_id="job", txn_version=7)
    again = table.write(numbers(spark, 1), txn_app_id="job", txn_version=7)
    assert again.version is None
    assert "already" in (again.skipped or "")
    table.write(numbers(spark, 2), txn_app_id="job", txn_version=8)
    assert rows_of(table.read()) == expected(1, 2)


@pytest.mark.parametrize(
    "mode, how",
    [
        ("append", {}),
        ("overwrite", {"partition_overwrite_mode": "dynamic"}),
        ("overwrite", {"replace_where": "id = 9"}),
    ],
)
def test_a_txn_without_rows_is_recorded_too(spark: SparkSession, table: Table, mode: Any, how: dict[str, Any]) -> None:
    table.write(numbers(spark, 1), partition_by=["p"])
    assert table.write(numbers(spark), mode, txn_app_id="job", txn_version=7, **how).version == 2
    again = table.write(numbers(spark, 9), mode, txn_app_id="job", txn_version=7, **how)
    assert "already" in (again.skipped or "")
    assert table.write(numbers(spark), mode, **how).skipped is not None
    assert (rows_of(table.read()), table.version) == (expected(1), 2)


def test_delete(spark: SparkSession, table: Table, client: Client) -> None:
    from pyspark.sql.functions import col

    table.write(numbers(spark, *range(10)).repartition(1), partition_by=["p"])
    before = live_paths(client, table)
    result = table.delete("id = 4 OR id = 6")
    assert (result.num_rows, result.num_removed_files, result.num_added_files) == (2, 1, 1)
    assert rows_of(table.read()) == expected(0, 1, 2, 3, 5, 7, 8, 9)
    assert newest_metrics(client, table)["numDeletedRows"] == "2"
    whole = table.delete("p = 1")
    assert newest_metrics(client, table)["numDeletedRows"] == "5"
    assert (whole.num_removed_files, whole.num_added_files) == (1, 0)
    assert table.delete("id = 77").changed is False
    table.delete(col("v") == "v0")
    assert rows_of(table.read()) == expected(2, 8)
    table.write(spark.createDataFrame([(None, 0, "null")], "id long, p int, v string"))
    table.delete("id > 0")
    assert rows_of(table.read()) == Counter([(None, 0, "null")])
    table.delete()
    assert table.read().count() == 0
    assert not before & live_paths(client, table)


def newest_metrics(client: Client, table: Table) -> dict[str, Any]:
    """What history tells of the newest commit."""
    return dict(next(iter(client.history(table.name))).operation_metrics)


def test_update(spark: SparkSession, table: Table, client: Client) -> None:
    table.write(numbers(spark, *range(6)), partition_by=["p"])
    result = table.update({"v": "concat(v, '!')", "P": "p + 10"}, "id >= 4")
    assert result.num_rows == 2
    assert newest_metrics(client, table)["numUpdatedRows"] == "2"
    assert rows_of(table.read()) == expected(0, 1, 2, 3) + Counter([(4, 10, "v4!"), (5, 11, "v5!")])
    # Rows moved to the partition that they now belong to.
    assert rows_of(table.read("p = 10")) == Counter([(4, 10, "v4!")])
    table.update({"v": "null"})
    assert set(rows_of(table.read().select("v"))) == {(None,)}
    with pytest.raises(InvalidRequest, match="no column 'w'"):
        table.update({"w": "1"})


def test_restore_and_changes(spark: SparkSession, table: Table, client: Client) -> None:
    table.write(numbers(spark, 1, 2).repartition(1), partition_by=["p"])
    table.write(numbers(spark, 3), "overwrite", partition_overwrite_mode="dynamic")
    back = table.restore(1)
    assert (back.num_restored_files, back.num_removed_files) == (1, 1)
    assert rows_of(table.read()) == expected(1, 2)
    assert table.restore(1).version == back.version
    feed = rows_of(table.changes(1, 2).select("id", "_change_type", "_commit_version"))
    assert feed == Counter([(1, "insert", 1), (2, "insert", 1), (1, "delete", 2), (3, "insert", 2)])
    assert rows_of(table.changes(3).select("id", "_change_type")) == Counter([(3, "delete"), (1, "insert")])
    with pytest.raises(InvalidRequest):
        table.restore()
    (lost,) = (file for file in client.files(table.name, version=2) if file.path not in live_paths(client, table))
    folder = Path(client.get_table(table.name).location.removeprefix("file://"))
    (folder / lost.path).unlink()
    with pytest.raises(Expired, match="1 of its data files are gone"):
        table.restore(2)


def test_for_path_and_what_is_not_there(spark: SparkSession, table: Table, client: Client, names: Any) -> None:
    url = client.url
    table.write(numbers(spark, 1))
    location = client.get_table(table.name).location
    assert Table.for_path(spark, location, url=url).name == table.name
    assert Table.for_path(spark, location.removeprefix("file://") + "/", url=url).name == table.name
    with pytest.raises(NotFound, match="No table"):
        Table.for_path(spark, "/nowhere", url=url)
    missing = Table.for_name(spark, names(), url=url)
    for call in (missing.read, missing.delete, missing.detail, missing.optimize().execute_compaction):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(Conflict):
        Table.create(spark, table.name, "id long", url=url)
    assert Table.create(spark, table.name, "id long", url=url, if_not_exists=True).version == 1


def test_a_table_that_is_made_again_is_another_table(spark: SparkSession, table: Table, client: Client) -> None:
    """A handle that outlives a drop writes to where the new table lies."""
    table.write(numbers(spark, 1))
    client.drop_table(table.name)
    with pytest.raises(NotFound):
        table.read()
    Table.create(spark, table.name, "id long, p int, v string", partition_by=["p"], url=client.url)
    table.write(numbers(spark, 2))
    assert rows_of(table.read()) == expected(2)
    folder = Path(client.get_table(table.name).location.removeprefix("file://"))
    assert [path.parent.name for path in folder.rglob("part-*.parquet")] == ["by_p=0"]


def test_vacuum_is_a_dry_run_unless_told(spark: SparkSession, table: Table, client: Client) -> None:
    table.write(numbers(spark, 1))
    folder = Path(client.get_table(table.name).location.removeprefix("file://"))
    (folder / "part-orphan.parquet").write_bytes(b"x")
    found = table.vacuum(retention_hours=0, override_minimum=True)
    assert (found.dry_run, found.orphaned_files_found, found.orphaned_files_deleted) == (True, 1, 0)
    assert table.vacuum(dry_run=False, retention_hours=0, override_minimum=True).orphaned_files_deleted == 1
    assert rows_of(table.read()) == expected(1)
