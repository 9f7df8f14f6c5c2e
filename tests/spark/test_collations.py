"""Text under a collation: the rows of plain Spark, or a refusal that says what to do; never a decision by bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import datasource as pushed
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tarnlog import Client, InvalidRequest
from tarnlog.testing import FakeTarnlog
from tarnlog_spark import Table, _staging
from tarnlog_spark._batch_source import FilteringReader, comparable
from tarnlog_spark._fitting import evolved
from tarnlog_spark._options import Feed, Place, ReadOptions, Splits
from tarnlog_spark._sink import Wish, prepare
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DDL = (
    "id long, lc string collate UTF8_LCASE, ci string collate UNICODE_CI, plain string, "
    "st struct<x: string collate UTF8_LCASE>"
)
TEXTS = ["a", "A", "b", "B", None, "c"]
CONDITIONS = [
    "lc = 'A'",
    "NOT (ci = 'a') AND id < 9",
    "ci IN ('B', 'x')",
    "startswith(lc, 'A')",
    "lc IS NULL",
    "st.x = 'B'",
    "plain COLLATE UTF8_LCASE = 'A'",
]


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.collect())


def by_condition(frames: Iterable[tuple[int, DataFrame]]) -> dict[int, list[int]]:
    """The ids of several frames, by number, in one job."""
    parts = [rows.select(F.lit(number).alias("number"), "id") for number, rows in frames]
    found: dict[int, list[int]] = {}
    for number, id_ in sorted(tuple(row) for row in reduce(DataFrame.union, parts).collect()):
        found.setdefault(number, []).append(id_)
    return found


@contextmanager
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        spark.conf.unset(PUSHDOWN)


def test_rows_are_those_of_plain_spark(
    spark: SparkSession, client: Client, tarnlog_service: ServiceProcess, name: str
) -> None:
    """A file for each row, so that bounds by bytes would leave out rows at once."""
    schema = spark.createDataFrame([], DDL).schema
    plain = spark.createDataFrame([(at, text, text, text, (text,)) for at, text in enumerate(TEXTS)], schema).cache()
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(plain.repartitionByRange(len(TEXTS), "id"))
    assert table.read().schema == schema
    assert client.snapshot(name).num_files == len(TEXTS)
    options = {"url": tarnlog_service.url}
    whole = spark.read.format("tarnlog").options(**options).load(name)
    assert whole.schema == schema

    expected = by_condition((number, plain.where(condition)) for number, condition in enumerate(CONDITIONS))
    assert expected[0] == [0, 1], "the collation counts"
    assert by_condition((number, table.read(condition)) for number, condition in enumerate(CONDITIONS)) == expected
    with pushdown(spark):
        options["pushFilters"] = "true"
        load = spark.read.format("tarnlog").options(**options)
        assert ids(load.load(name).where(CONDITIONS[1])) == expected[1]
        # The collation is the reader's own here: the table's bounds know nothing of it.
        given = load.schema("id long, plain string collate UTF8_LCASE").load(name)
        assert ids(given.where("plain = 'A'")) == [0, 1]

    with pytest.raises(Exception, match=r"has the collation .* Read without that condition"):
        spark.read.format("tarnlog").options(**options, filter="id = 1 AND NOT (ci < 'b')").load(name).collect()
    for condition in ("lc = 'A'", "id = 1 AND NOT (ci < 'b')", "st.x IN ('b')"):
        with pytest.raises(InvalidRequest, match=r"has the collation .* Read without that condition") as refused:
            client.table(name).to_arrow(condition)
        assert refused.value.slug == "filter-invalid"
    kept = "lc IS NOT NULL AND plain = 'A'"
    assert ids(spark.read.format("tarnlog").options(**options, filter=kept).load(name)) == [1]
    assert client.table(name).to_arrow(kept, columns=["id"]).to_pylist() == [{"id": 1}]

    table.update({"id": "id + 100"}, "ci = 'B'")
    assert ids(table.read()) == [0, 1, 4, 5, 102, 103]
    # A row of the source differs in bytes only from one of the table; text without a collation is taken as it is.
    news = spark.createDataFrame([(200, "C"), (201, "Ö")], "id long, plain string")
    news = news.selectExpr("id", "plain AS lc", "plain AS ci", "plain", "named_struct('x', plain) AS st")
    merged = table.merge(news, "target.lc = source.lc COLLATE UTF8_LCASE")
    merged.when_matched_update_all().when_not_matched_insert_all().execute()
    assert ids(table.read()) == [0, 1, 4, 102, 103, 200, 201]
    table.write(plain.where("id = 1"), "overwrite", replace_where="lc = 'a'")
    assert ids(table.read()) == [1, 4, 102, 103, 200, 201], "both spellings are replaced"
    assert table.delete("ci = 'ö'").num_rows == 1
    before = table.read().collect()
    with pytest.raises(InvalidRequest, match=r"lc: it has the collation spark\.UTF8_LCASE"):
        table.optimize().execute_zorder_by("lc")
    assert table.optimize().execute_compaction().num_removed_files > 0
    assert Counter(table.read().collect()) == Counter(before)

    with pytest.raises(InvalidRequest, match="partition column 'lc' has the collation") as refused:
        Table.for_name(spark, f"{name}b", url=tarnlog_service.url).write(plain, partition_by=["lc"])
    assert refused.value.slug == "schema-invalid"


def test_a_table_that_is_partitioned_by_such_a_column(
    spark: SparkSession, client: Client, tarnlog_service: ServiceProcess, warehouse: Path, name: str
) -> None:
    """New ones are refused; one that exists is read, written and changed as Spark compares."""
    schema = spark.createDataFrame([], "id long, lc string collate UTF8_LCASE").schema
    log = warehouse / "taken" / name / "_transaction_log"
    log.mkdir(parents=True)
    meta = {
        "id": name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": ["lc"],
        "configuration": {},
    }
    actions = [{"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}}, {"metaData": meta}]
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    client.register_table(name, log.parent.as_uri(), foreign_writers_stopped=True)
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    plain = spark.createDataFrame([(0, "a"), (1, "A"), (2, "b"), (3, None), (4, "~")], schema)
    table.write(plain)
    files = client.plan(name).files
    assert sorted(str(file.partition_values["lc"]) for file in files) == ["A", "None", "a", "b", "~"]
    asked = ["lc = 'A'", "lc <> 'A'", "lc < 'B'", "lc IN ('B', 'x')", "lc IS NULL", "lc IS NOT NULL"]
    expected = by_condition((number, plain.where(condition)) for number, condition in enumerate(asked))
    assert by_condition((number, table.read(condition)) for number, condition in enumerate(asked)) == expected
    assert len(client.plan(name, "lc IS NULL").files) == 1, "whether there is a value needs no collation"

    one = plain.where("id = 0")
    with pytest.raises(InvalidRequest, match=r"several spellings are one value.*replace_where"):
        table.write(one, "overwrite", partition_overwrite_mode="dynamic")
    writer = one.write.format("tarnlog").mode("overwrite").option("url", tarnlog_service.url)
    for option, value in {"partitionOverwriteMode": "dynamic", "replaceWhere": "lc = 'a'"}.items():
        with pytest.raises(Exception, match=r"has the collation .*Table\.write\("):
            writer.option(option, value).save(name)
        writer = one.write.format("tarnlog").mode("overwrite").option("url", tarnlog_service.url)
    assert ids(table.read()) == [0, 1, 2, 3, 4]
    table.write(one, "overwrite", replace_where="lc = 'A'")
    assert table.delete("lc = 'B'").num_rows == 1
    assert ids(table.read()) == [0, 3, 4]

    # Where Spark names folders, other bytes are other folders, whatever the collation says of them.
    folder = _staging.folder_value(plain["lc"], plain.schema["lc"].dataType)
    same = _staging.folder_value(plain["lc"].cast("string"), StringType())
    named = [tuple(row) for row in plain.select(folder, same).collect()]
    assert all(one == other for one, other in named), named
    assert len({one for one, _ in named}) == 5


COLLATED = StructType([StructField("id", LongType()), StructField("day", StringType("UNICODE_CI"))])


def test_comparisons_of_such_columns_are_not_taken_from_spark() -> None:
    day, nested = ("DAY",), ("day", "x")
    taken = [pushed.EqualTo(("id",), 1), pushed.IsNull(day), pushed.IsNotNull(day), pushed.Not(pushed.IsNull(day))]
    refused = [
        pushed.EqualTo(day, "a"),
        pushed.EqualNullSafe(day, "a"),
        pushed.LessThan(day, "a"),
        pushed.In(day, ("a",)),
        pushed.StringStartsWith(day, "a"),
        pushed.Not(pushed.EqualTo(day, "a")),
        pushed.EqualTo(nested, "a"),
    ]
    assert comparable([*refused, *taken], COLLATED) == taken
    binary = StructType([StructField("id", LongType()), StructField("day", StringType("UTF8_BINARY"))])
    assert comparable([*refused, *taken], binary) == [*refused, *taken]
    reader = FilteringReader(ReadOptions(place=Place(table="a.t"), splits=Splits(), feed=Feed()), COLLATED)
    assert reader.pushFilters(refused) == refused, "Spark applies them"
    assert reader.predicate is None


@pytest.mark.parametrize("wish", [{"dynamic_partitions": True}, {"replace_where": "day = 'a'"}])
def test_whole_files_are_not_replaced_by_such_a_column(tmp_path: Path, wish: dict[str, Any]) -> None:
    class Understanding(FakeTarnlog):
        def plan(self, table: str, filter: Any = None, **at: Any) -> Any:  # noqa: A002 (the API's word)
            tree = {"op": "eq", "column": "day", "value": "a"} if isinstance(filter, str) else filter
            return super().plan(table, tree, **at)

    fake = Understanding()
    fake.create_table("a.t", COLLATED.jsonValue(), partition_by=("day",), location=tmp_path.as_uri())
    with pytest.raises(InvalidRequest, match=r"day has the collation icu\.UNICODE_CI"):
        prepare(cast(Client, fake), Wish(place=Place(table="a.t"), overwrite=True, **wish), COLLATED)


def test_a_table_keeps_its_collation_when_it_grows() -> None:
    plain = StructType([StructField("id", LongType()), StructField("day", StringType()), StructField("n", LongType())])
    assert evolved(COLLATED, plain, table="a.t") == StructType([*COLLATED.fields, plain["n"]])
