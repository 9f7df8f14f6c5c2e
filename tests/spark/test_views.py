"""Tables in SQL by temporary views, and what Spark's catalog cannot do with the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tarnlog import Client, InvalidRequest
from tarnlog_spark import Table, refresh
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("plain", "allowed", "loaded", "other"):
        spark.catalog.dropTempView(name)
    spark.sql("DROP TABLE IF EXISTS catalogued")


def refused(statement: Callable[[], object]) -> str:
    with pytest.raises(AnalysisException) as caught:
        statement()
    return str(caught.value)


@pytest.mark.usefixtures("dropped")
def test_an_insert_shows_after_refresh_and_an_overwrite_needs_the_option(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str
) -> None:
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.range(3))
    options = f"OPTIONS (table '{name}', url '{tarnlog_service.url}'"
    spark.sql(f"CREATE TEMPORARY VIEW plain USING tarnlog {options})")
    spark.sql(f"CREATE TEMPORARY VIEW allowed USING tarnlog {options}, allowOverwrite 'true')")
    spark.read.format("tarnlog").option("url", tarnlog_service.url).load(name).createOrReplaceTempView("loaded")

    spark.sql("INSERT INTO plain VALUES (7)")
    for view in ("plain", "loaded"):
        assert spark.table(view).count() == 3  # planned when it was made
        refresh(spark, view)
        assert spark.table(view).count() == 4

    text = refused(lambda: spark.sql("INSERT OVERWRITE plain VALUES (9)"))
    assert f"This would replace every row of {name}; nothing was written." in text
    assert table.read().count() == 4
    spark.sql("INSERT OVERWRITE allowed VALUES (9)")
    assert [row.id for row in table.read().collect()] == [9]

    spark.table("plain").where("id > 1").createOrReplaceTempView("other")
    with pytest.raises(InvalidRequest, match="other is not a temporary view of the format tarnlog itself"):
        refresh(spark, "other")


@pytest.mark.usefixtures("dropped")
def test_a_table_of_sparks_catalog_says_what_to_do(spark: SparkSession, client: Client) -> None:
    def run(statement: str) -> None:
        spark.sql(statement).collect()

    before = {entry.name for entry in client.list_tables()}
    text = refused(lambda: spark.sql("CREATE TABLE catalogued USING tarnlog OPTIONS (table 's.t')"))
    assert "CREATE TABLE ... USING tarnlog is not supported." in text
    assert "Table.create(spark, 'namespace.name', schema)" in text
    spark.sql("CREATE TABLE catalogued (id long) USING tarnlog")  # Spark does not ask the format
    for statement in ("SELECT * FROM catalogued", "INSERT INTO catalogued VALUES (1)"):
        text = refused(partial(run, statement))
        assert "nothing was created in tarnlog: DROP TABLE it" in text
    assert {entry.name for entry in client.list_tables()} == before


def test_errors_of_the_format_are_a_sentence_without_a_traceback(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str
) -> None:
    reader = spark.read.format("tarnlog").option("url", tarnlog_service.url)
    text = refused(lambda: reader.load(name))
    assert "Traceback" not in text
    assert f"instance: tarnlog.NotFound: there is no table {name} at {tarnlog_service.url}: check the name" in text
    assert "A write creates the table, and so does tarnlog_spark.Table.create" in text
    text = refused(lambda: reader.option("versionasoff", "1").load(name))
    assert "Traceback" not in text
    rows = spark.sql("SELECT 1L AS id, null AS nothing")
    text = refused(lambda: rows.write.format("tarnlog").mode("append").option("url", tarnlog_service.url).save(name))
    assert "Traceback" not in text
    assert f"tarnlog.InvalidRequest: {name} cannot be created: no write can fill these columns: nothing: void" in text
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    for ddl in ("c char(5)", "a array<varchar(3)>", "v variant"):
        with pytest.raises(InvalidRequest, match="no write can fill these columns"):
            Table.create(spark, name, ddl, url=tarnlog_service.url)
    assert not table.exists


def test_maintenance_of_the_log_goes_through_the_table(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.range(3).coalesce(1))
    path = next(iter(client.files(name))).path
    assert table.checkpoint().checkpoint_version == table.version
    assert table.checkpoint("json").status == "success"
    assert table.compact().status == "success"
    assert table.skips().collect() == []
    assert table.cooldowns().collect() == []
    client.record_skip(name, path, reason="broken", operation="OPTIMIZE")
    skip = table.skips().collect()[0]
    assert (skip.path, skip.reason, skip.skipCount) == (path, "broken", 1)
    assert [tuple(row) for row in table.cooldowns().collect()] == [(path, skip.retryAfter)]
    table.write(spark.range(1), "overwrite")
    assert table.cleanup().status == "dry-run"
    assert table.erase().dry_run
    assert table.read(version=1).count() == 3  # both were dry runs
    assert table.erase(dry_run=False).files_deleted == 1
    assert table.cleanup(dry_run=False).status != "dry-run"
    assert table.read().count() == 1


def test_chars_of_another_writer_are_read_as_strings(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    """The service takes such a table; the connector reads it and creates none."""
    fields = [{"name": "c", "type": "char(5)", "nullable": True, "metadata": {}}]
    location = client.create_table(name, {"type": "struct", "fields": fields}).location
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = f"{location.removeprefix('file://')}/a.parquet"
    pq.write_table(pa.table({"c": ["ab   "]}), place)
    with client.transaction(name) as tx:
        tx.add("a.parquet", size=pq.read_metadata(place).serialized_size)
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    assert [row.c for row in table.read().collect()] == ["ab   "]
    rows = spark.read.format("tarnlog").option("url", tarnlog_service.url).load(name)
    assert [row.c for row in rows.collect()] == ["ab   "]
