"""Conditions under the settings of a session: files are chosen by the meaning that Spark gives them, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import Client, InvalidRequest
from tarnlog.protocol.actions import Format, MetaData
from tarnlog_spark import Table
from tarnlog_spark._conditions import _by_text, ambiguity, resolve
from tests.service_process import ServiceProcess
from tests.spark.test_table import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUOTES = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
ESCAPED = {"spark.sql.parser.escapedStringLiterals": "true"}
JOINED = {"spark.sql.legacy.consecutiveStringLiterals.enabled": "true"}
NOT_ANSI = {"spark.sql.ansi.enabled": "false"}
NEW_YORK = {"spark.sql.session.timeZone": "America/New_York"}
NTZ = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
AS_TEXT = {**NOT_ANSI, "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true"}
CASE = {"spark.sql.caseSensitive": "true"}

NAMES = ["a", "b", "name", "a\\tb", "a\tb", "it's", "its", "ab"]
CASES: list[tuple[dict[str, str], str]] = [
    ({}, "name = 'a'"),
    ({}, 'NAME = "a"'),
    ({}, r"name = 'a\tb'"),
    ({}, "name = r'a\\tb'"),
    ({}, "name = 'it''s'"),
    ({}, "name = 'a' 'b'"),
    (QUOTES, "\"name\" = 'a'"),
    (QUOTES, "\"name\" IN ('a', 'its')"),
    (QUOTES, "name = 'a' OR \"id\" = 2"),
    (ESCAPED, r"name = 'a\tb'"),
    (ESCAPED, r"name LIKE 'a\\%'"),
    (JOINED, "name = 'it''s'"),
    (JOINED, "name = 'a' 'b'"),
    (NOT_ANSI, "name = 'a' AND id = '0'"),
    (NOT_ANSI, "id = 'x'"),
    (NEW_YORK, "at >= '2024-03-10' AND at < timestamp'2024-03-10 01:00:00'"),
    (NEW_YORK, "CAST(at AS DATE) = '2024-03-09'"),
    (NTZ, "at < timestamp'2024-03-10 02:00:00'"),
    ({**NTZ, **NEW_YORK}, "at < timestamp'2024-03-09 22:00:00'"),
    (AS_TEXT, "day < '2024-1'"),
    (AS_TEXT, "day > '2024-03-0'"),
    (CASE, "name = 'a'"),
]


@pytest.fixture
def sessions(spark: SparkSession) -> Callable[[dict[str, str]], SparkSession]:
    """Sessions of the same Spark with settings of their own."""

    def made(settings: dict[str, str]) -> SparkSession:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        for key, value in settings.items():
            session.conf.set(key, value)
        return session

    return made


def named_rows(session: SparkSession) -> DataFrame:
    """A row for each name, an hour after one another."""
    rows = session.createDataFrame(list(enumerate(NAMES)), "id int, name string")
    at = F.timestamp_seconds(F.lit(1_710_028_800) + 3600 * F.col("id"))  # from 2024-03-10 in UTC on
    day = F.date_add(F.lit("2024-03-06").cast("date"), F.col("id"))
    return rows.select("id", "name", at.alias("at"), day.alias("day"))


def test_reads_changes_and_replacements_follow_the_settings(
    spark: SparkSession,
    sessions: Callable[[dict[str, str]], SparkSession],
    tarnlog_service: ServiceProcess,
    name: str,
) -> None:
    """Each name in a file of its own, so that a condition that is taken for another one loses rows."""
    Table.for_name(spark, name, url=tarnlog_service.url).write(named_rows(spark), partition_by=["name"])
    for settings, condition in CASES:
        session = sessions(settings)
        table, plain = Table.for_name(session, name, url=tarnlog_service.url), named_rows(session)
        assert rows_of(table.read(condition)) == rows_of(plain.where(condition)), (settings, condition)
    session, condition = sessions(QUOTES), "\"name\" = 'a'"
    table, plain = Table.for_name(session, name, url=tarnlog_service.url), named_rows(session)
    changed = plain.where(condition).withColumn("id", F.col("id") + 100)
    others = plain.where(f"NOT ({condition})")
    assert table.update({"id": "id + 100"}, condition).num_rows == 1
    assert rows_of(table.read()) == rows_of(others.union(changed))
    table.write(plain.where(condition), "overwrite", replace_where=condition)
    assert rows_of(table.read()) == rows_of(plain)
    assert table.delete(condition).num_rows == 1
    assert rows_of(table.read()) == rows_of(others)
    for settings, condition, gone in [(ESCAPED, r"name = 'a\tb'", "a\\tb"), (JOINED, "name = 'it''s'", "its")]:
        assert Table.for_name(sessions(settings), name, url=tarnlog_service.url).delete(condition).num_rows == 1
        others = others.where(F.col("name") != gone)
        assert rows_of(table.read()) == rows_of(others), (settings, condition)


def test_optimize_chooses_by_the_settings(
    sessions: Callable[[dict[str, str]], SparkSession], tarnlog_service: ServiceProcess, name: str
) -> None:
    table = Table.for_name(sessions(QUOTES), name, url=tarnlog_service.url)
    for number in range(2):
        rows = [(number, "a"), (number, "b")]
        table.write(table._target.spark.createDataFrame(rows, "id int, name string"), partition_by=["name"])
    assert table.optimize().where("\"name\" = 'a'").execute_compaction().num_removed_files == 2
    assert table.optimize().where(F.col("name") == "b").execute_compaction().num_removed_files == 2


COLUMNS = (
    "i int, l long, s string, f float, d double, m decimal(10,2), day date, at timestamp, n timestamp_ntz, b boolean"
)
ROWS = "id AS l, concat('k', id) AS s, float(id) AS f, double(id) AS d, CAST(id AS DECIMAL(10,2)) AS m"
TIMES = (
    "date_add(DATE'2024-01-01', CAST(id AS INT)) AS day, timestamp_seconds(1704067200 + id * 86400) AS at,"
    " CAST(date_add(DATE'2024-01-01', CAST(id AS INT)) AS TIMESTAMP_NTZ) AS n, id > 3 AS b"
)
PRUNED = {
    "i = 2": 1,
    "2 = i": 1,
    "i IN (1, 3)": 2,
    "i IN (1, 3, NULL)": 2,
    f"l IN ({', '.join(map(str, range(6, 60)))})": 2,
    "l > 5": 2,
    "i BETWEEN 2 AND 4": 3,
    "NOT (i < 6)": 2,
    "i = 1 OR s = 'k2'": 2,
    "i = 1 AND length(s) = 2": 1,
    "s LIKE 'k7%'": 1,
    "startswith(s, 'k7')": 1,
    "s < 'k2'": 2,
    "f <= float(0.5)": 1,
    "d < 0.5": 1,
    "m = 2": 1,
    "m < 1.5": 2,
    "day = '2024-01-03'": 1,
    "day >= DATE'2024-01-07'": 2,
    "at < '2024-01-02 00:00:00'": 1,
    "CAST(at AS DATE) = '2024-01-03'": 1,
    "n >= timestamp_ntz'2024-01-08 00:00:00'": 1,
    "b AND i > 6": 1,
    "NOT b": 4,
    "i = 1 AND i = 2": 0,
    "false": 0,
    "i = 3000000000": 0,
    "true": 8,
    "i + 1 = 2": 8,
    "i = 1 OR length(s) = 9": 8,
    "i = (SELECT 1)": 8,
    "day = current_date()": 8,
    "day < 'today'": 8,
    "at < now()": 8,
    "i = 1 AND rand() < 2": 8,
}


def test_ordinary_conditions_leave_files_out(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    meta = MetaData(
        id="t",
        format=Format(),
        schema_string=spark.createDataFrame([], COLUMNS).schema.json(),
        partition_columns=(),
        configuration={},
    )
    rows = spark.sql(f"SELECT CAST(id AS INT) AS i, {ROWS}, {TIMES} FROM range(8)")
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(rows.repartitionByRange(8, "l"))
    assert len(list(client.files(name))) == 8
    for condition, files in PRUNED.items():
        found = resolve(spark, condition, meta).filter
        chosen = client.plan(name, None if found is None else found.filter).files
        assert len(chosen) == files, (condition, found)
    udf = F.udf(lambda value: value > 0, "boolean")
    columns: list[tuple[Any, int, bool]] = [
        (F.col("i") == 2, 1, True),
        (F.col("day") == F.lit("2024-01-03"), 1, True),
        ((F.col("i") == 2) & udf("l"), 1, False),
        (udf("l"), 8, False),
    ]
    for column, files, exact in columns:
        resolved = resolve(spark, column, meta)
        assert resolved.exact is exact
        wanted = resolved.filter
        assert len(client.plan(name, None if wanted is None else wanted.filter).files) == files
    kept = table.read((F.col("i") == 2) & udf("l"))
    assert len(kept.inputFiles()) == 1
    assert rows_of(kept.select("l")) == {(2,): 1}


def test_columns_prune_in_delete_and_reads_state_what_was_read(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete by a Column rests on the files that may match: an append elsewhere is no conflict."""
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string"), partition_by=["name"])
    pinned = table._target.pin(filter=F.col("name") == "a")
    assert [file.partition_values for file in pinned.files] == [{"name": "a"}]
    assert not pinned.plan.reads.whole_table
    assert table._target.pin(filter="length(name) = 1 OR id = 1").plan.reads.whole_table
    assert table.delete(F.col("name") == "a").num_rows == 1
    assert rows_of(table.read()) == {(2, "b"): 1}


@pytest.fixture
def two(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Iterator[Table]:
    """A table of two rows, which is as it was afterwards."""
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string"), partition_by=["name"])
    yield table
    assert table.version == 1
    assert rows_of(table.read()) == {(1, "a"): 1, (2, "b"): 1}


def test_conditions_that_are_not_deterministic_are_refused(spark: SparkSession, two: Table) -> None:
    source = spark.createDataFrame([(1, "x")], "id int, name string")
    chance = F.udf(lambda: True, "boolean").asNondeterministic()
    on = "target.id = source.id"
    attempts: list[Callable[[], Any]] = [
        lambda: two.delete("rand() < 2"),
        lambda: two.delete("id = 1 AND uuid() > ''"),
        lambda: two.delete(chance()),
        lambda: two.delete("id IN (SELECT CAST(rand() AS INT) + 1)"),
        lambda: two.update({"id": "id + 1"}, "rand() < 2"),
        lambda: two.write(source, "overwrite", replace_where="rand() < 2"),
        lambda: two.merge(source, f"{on} AND rand() < 2").when_matched_delete().execute(),
        lambda: two.merge(source, on).when_matched_update_all("rand() < 2").execute(),
        lambda: two.merge(source, on).when_not_matched_insert_all("name = uuid()").execute(),
        lambda: two.merge(source, on).when_not_matched_by_source_delete(F.rand() < 2).execute(),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(InvalidRequest, match="not deterministic") as error:
            attempt()
        assert error.value.slug == "option-invalid", number


def test_conditions_that_are_no_truth_values_are_refused(spark: SparkSession, two: Table) -> None:
    """As `where` refuses them: text is not taken for true or false."""
    source = spark.createDataFrame([(1, "true")], "id int, name string")
    on = "target.id = source.id"
    attempts: list[Callable[[], Any]] = [
        lambda: two.delete("'true'"),
        lambda: two.delete(F.col("name")),
        lambda: two.update({"id": "id + 1"}, "'true'"),
        lambda: two.write(source, "overwrite", replace_where="'true'"),
        lambda: two.merge(source, on).when_matched_delete("source.name").execute(),
        lambda: two.merge(source, on).when_not_matched_insert_all("name").execute(),
        lambda: two.merge(source, on).when_not_matched_by_source_delete("'true'").execute(),
    ]
    for attempt in attempts:
        with pytest.raises(AnalysisException, match="FILTER_NOT_BOOLEAN"):
            attempt()


def test_padded_text_chooses_no_files(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, names: Callable[[], str]
) -> None:
    """Spark compares a char with its blanks; the files, and so their bounds, may hold it without."""
    kinds: dict[str, dict[str, Any]] = {
        "of a DataFrame": {"type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}},
        "of another writer": {"type": "char(5)", "metadata": {}},
    }
    for kind, field in kinds.items():
        name = names()
        location = client.create_table(name, {"type": "struct", "fields": [{"name": "c", "nullable": True, **field}]})
        place = f"{location.location.removeprefix('file://')}/a.parquet"
        pq.write_table(pa.table({"c": ["ab"]}), place)
        with client.transaction(name) as tx:
            size = pq.read_metadata(place).serialized_size
            tx.add("a.parquet", size=size, min_values={"c": "ab"}, max_values={"c": "ab"}, num_records=1)
        table = Table.for_name(spark, name, url=tarnlog_service.url)
        assert table.read().where("c = 'ab'").count() == table.read("c = 'ab'").count() == 1, kind


def test_values_and_sources_may_be_random(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.createDataFrame([(1, 0.0), (2, 0.0)], "id int, v double"))
    assert table.update({"v": "1 + rand()"}, "id = 1").num_rows == 1
    source = spark.range(2, 4).select(F.col("id").cast("int"), (F.rand() + 3).alias("v"))
    merge = table.merge(source, "target.id = source.id").when_matched_update({"v": "source.v + rand()"})
    merge.when_not_matched_insert_all().execute()
    assert [row.id for row in table.read("v >= 1").orderBy("id").collect()] == [1, 2, 3]


def test_a_random_value_is_computed_once(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    """Also where it is converted: members go together, and a null is not taken for a number that does not fit."""
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    table.write(spark.range(0, 40, 1, 1).selectExpr("0 n", "named_struct('a', 0, 'b', 0) st"))
    pairs = "element_at(array(named_struct('b', 1L, 'a', 1L), named_struct('b', 2L, 'a', 2L)), 1 + int(2 * rand()))"
    table.update({"n": "if(rand() < 0.5, null, 1L)", "st": pairs})
    found = table.read().collect()
    assert {row.n for row in found} == {None, 1}
    assert {(row.st.a, row.st.b) for row in found} == {(1, 1), (2, 2)}


def test_text_in_a_list_is_not_for_the_service_without_ansi_mode(
    sessions: Callable[[dict[str, str]], SparkSession],
) -> None:
    """There Spark compares `i IN ('01')` as text, which 1 is not; a Connect client sends text to the service."""
    schema = '{"type":"struct","fields":[{"name":"i","type":"integer","nullable":true,"metadata":{}}]}'
    meta_data = MetaData(id="t", format=Format(), schema_string=schema, partition_columns=(), configuration={})
    for settings, text, sent in (
        ({}, "i NOT IN ('01')", True),
        (NOT_ANSI, "i NOT IN ('01')", False),
        (NOT_ANSI, "i IN (1, 2) OR i = '01'", False),
        (NOT_ANSI, "i IN (1, 2)", True),
        (NOT_ANSI, "i = '01'", True),
    ):
        assert (_by_text(sessions(settings), text, meta_data).filter is not None) == sent, (settings, text)


@pytest.mark.parametrize(
    "text, named",
    [
        ("name = 'a' AND id IN (1, 2)", None),
        ("name = '' OR `odd name` = 'b'", None),
        ("name IN ('', ' ', 'a--b') AND `it's` = '/*'", None),
        ('name = "a"', "double quote"),
        (r"name = 'a\tb'", "backslash"),
        ("name = 'it''s'", "adjacent"),
        ("name = '''s'", "adjacent"),
        ("name = 'a' 'b'", "adjacent"),
        ("name = 'a' r'b'", "adjacent"),
        ("name = 'a' -- b", "comment"),
        ("name = /* b */ 'a'", "comment"),
        ("name = '${spark.app.name}'", "variable"),
    ],
)
def test_what_a_session_may_read_in_another_way(text: str, named: str | None) -> None:
    found = ambiguity(text)
    assert (found is None) if named is None else (found is not None and named in found)


def test_the_format_refuses_what_depends_on_settings(
    spark: SparkSession, two: Table, tarnlog_service: ServiceProcess
) -> None:
    options = {"url": tarnlog_service.url}
    rows = spark.createDataFrame([(3, "a")], "id int, name string")
    with pytest.raises(Exception, match=r"replaceWhere .* has a double quote") as error:
        rows.write.format("tarnlog").mode("overwrite").options(replaceWhere='name = "a"', **options).save(two.name)
    assert "replace_where" in str(error.value)
    with pytest.raises(Exception, match=r"filter .* has adjacent string literals"):
        spark.read.format("tarnlog").options(filter="name = 'it''s'", **options).load(two.name).collect()
