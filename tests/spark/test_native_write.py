"""Writing by Spark's own Parquet writer: the files that pyarrow's tasks write, up to their names, of winners alone."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarnlog import Client, Corrupt, InvalidRequest
from tarnlog.protocol.actions import Add
from tarnlog_spark import SchemaMismatch, Table, _staging
from tarnlog_spark._scanning import SCAN_CONF
from tarnlog_spark._staged_files import adds_of, staged_files
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = """
    b boolean, i1 tinyint, i8 bigint, d double, s string, bin binary, small decimal(7,2), dec decimal(16,4),
    big decimal(38,10), day date, ts timestamp, ntz timestamp_ntz, arr array<struct<x: int, y: array<string>>>,
    m map<string, decimal(5,2)>, st struct<`a b`: string>, `ein Name.mit ``allem`` ü%/=,;{}` string, part string,
    `P 2` double
"""
PARTS = [
    None,
    "",
    "null",
    "a",
    "A",
    "~",
    "~41",
    "ü/=%",
    "__HIVE_DEFAULT_PARTITION__",
    "x" * 300,
    "x" * 5000,
    "..",
    "😀",
]


def folder_of(client: Client, table: Table) -> Path:
    return Path(client.get_table(table.name).location.removeprefix("file://"))


def on_disk(client: Client, table: Table) -> set[str]:
    """Everything in the table's folder but its log."""
    root = folder_of(client, table)
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in found if not path.startswith("_")}


def nameless(add: Add) -> tuple[Any, ...]:
    """What an add says, without its name. Of partition columns only their values: footers hide what is very long."""
    stats = json.loads(add.stats or "")
    told: list[Any] = [stats["nullCount"], add.min_values or {}, add.max_values or {}]
    bounds = [sorted((key, value) for key, value in one.items() if key not in add.partition_values) for one in told]
    return (sorted(add.partition_values.items(), key=str), add.num_records, stats["numRecords"], add.tags, bounds)


def is_staged(add: Add) -> bool:
    return add.path.startswith("write-")


def row(n: int) -> tuple[Any, ...]:
    """A row of DDL; every third is null where it may be."""
    part, zero = PARTS[n % len(PARTS)], [None, 0.0, -0.0, math.nan, 1.5][n % 5]
    if n % 3 == 0:
        return (*[None] * 16, part, zero)
    moment = dt.datetime(1960 + n, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001
    money = Decimal(n) / 4
    nested = ([(n, ["y", None])], {"k": money}, ("a",))
    numbers = (n % 2 == 0, -n, n * 10**12, n + 0.5, "tü" * n, b"\xff", money, money, money)
    return (*numbers, dt.date(1900 + n, 1, 1), moment, moment, *nested, "odd", part, zero)


def test_both_writers_write_the_same(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, names: Any
) -> None:
    rows = spark.createDataFrame([row(n) for n in range(1, 40)], DDL).coalesce(1)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    tables = {}
    for writer in ("native", "arrow"):
        made = Table.create(spark, names(), DDL, partition_by=["part", "P 2"], url=tarnlog_service.url)
        made.write(rows, writer=writer)
        tables[writer] = made
    native, arrow = (list(client.files(tables[writer].name)) for writer in ("native", "arrow"))
    assert all(map(is_staged, native))
    assert not any(map(is_staged, arrow))
    assert sorted(map(repr, map(nameless, native))) == sorted(map(repr, map(nameless, arrow)))
    shown = [Counter(map(repr, tables[writer].read().collect())) for writer in ("native", "arrow")]
    assert shown[0] == shown[1] == Counter(map(repr, rows.collect()))
    assert {add.path for add in native} == {path.replace("%", "%25") for path in on_disk(client, tables["native"])}
    kinds = [
        {
            field.name: str(field.type)
            for field in pq.read_schema(folder_of(client, made) / sorted(on_disk(client, made))[0])
        }
        for made in tables.values()
    ]
    assert kinds[0] == kinds[1]
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


def test_whole_numbers_days_and_truths_name_folders_as_they_are(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    """Spark sorts by what names the folders: a text in their place costs a tenth of a write."""
    ddl, columns = "id int, n bigint, day date, b boolean", ("n", "day", "b")
    parts: list[Any] = [
        (-(2**63), dt.date(1, 1, 1), True),
        (0, None, False),
        (None, dt.date(9999, 12, 31), None),
        (None, None, None),
    ]
    rows = spark.createDataFrame([(number, *parts[number % 4]) for number in range(12)], ddl).coalesce(1)
    made = Table.for_name(spark, name, url=tarnlog_service.url)
    made.write(rows, partition_by=list(columns), writer="native")
    texts = [("-9223372036854775808", "0001-01-01", "true"), ("0", None, "false"), (None, "9999-12-31", None)]
    told = Counter(tuple(add.partition_values[column] for column in columns) for add in client.files(name))
    assert told == Counter([*texts, (None, None, None)])
    assert {add.path for add in client.files(name)} == on_disk(client, made)
    assert Counter(map(repr, made.read().collect())) == Counter(map(repr, rows.collect()))
    assert [found.id for found in made.read("n = 0 AND day IS NULL").orderBy("id").collect()] == [1, 5, 9]


def test_nan_hides_no_number(spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str) -> None:
    made = Table.for_name(spark, name, url=tarnlog_service.url)
    made.write(spark.createDataFrame([(1, math.nan), (2, 5.0)], "id int, d double").coalesce(1), writer="native")
    (add,) = client.files(name)
    assert "d" not in {**(add.min_values or {}), **(add.max_values or {})}
    assert [found.id for found in made.read("d = 5.0").collect()] == [2]
    assert [found.id for found in made.read("d > 7").collect()] == [1]


def test_a_task_that_fails_after_whole_files_leaves_none(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    """The first attempt has closed several valid files when it dies."""

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number in range(10):
            if number == 6 and context.partitionId() == 1 and context.attemptNumber() == 0:
                raise RuntimeError("lost on purpose")
            first = context.partitionId() * 1000 + number * 10
            yield pa.RecordBatch.from_pydict({"id": list(range(first, first + 10))})
        for _ in batches:
            pass

    made = Table.for_name(spark, name, url=tarnlog_service.url)
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "10")
    try:
        result = made.write(spark.range(0, 2, 1, 2).mapInArrow(fails_once, "id long"), writer="native")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert (result.num_rows, result.num_files) == (200, 20)
    expected = Counter([*range(100), *range(1000, 1100)])
    assert Counter(found.id for found in made.read().collect()) == expected
    assert on_disk(client, made) == {add.path for add in client.files(name)}


@pytest.mark.parametrize("columns", [(), ("p",)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_that_are_missing_on_disk_are_noticed(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    shuffled: bool,
    columns: tuple[str, ...],
) -> None:
    """A shuffle makes the query adaptive, and its plan another one: the count must be found there too."""
    made = Table.create(spark, name, "id long, p long", partition_by=columns, url=tarnlog_service.url)
    monkeypatch.setattr(_staging, "staged_files", lambda task, folder: staged_files(task, folder)[1:])
    rows = spark.range(0, 10, 1, 2).selectExpr("id", "id % 3 AS p")
    with pytest.raises(Corrupt, match="10 rows"):
        made.write(rows.repartition(2) if shuffled else rows, writer="native")
    assert made.version == 0


def test_many_footers_are_read_by_a_job(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_staging, "MANY_FILES", 2)
    made = Table.for_name(spark, name, url=tarnlog_service.url)
    assert made.write(spark.range(0, 9, 1, 3), writer="native").num_files == 3
    assert made.read().count() == 9


def test_the_copy_of_a_session_serves_until_its_confs_change(spark: SparkSession) -> None:
    own_session, zone = _staging._own_session, "spark.sql.session.timeZone"
    before = {key: spark.conf.get(key, None) for key in (zone, *_staging._CONFS)}
    first = own_session(spark)
    assert own_session(spark) is first
    job = cast(Any, first)._jsparkSession.sessionState().newHadoopConf()  # what tasks and committers are set up with
    assert {key: job.get(key) for key in _staging._CONFS} == _staging._CONFS
    spark.conf.set(zone, "Asia/Tokyo")
    try:
        second = own_session(spark)
        assert second is not first
        assert second.conf.get(zone) == "Asia/Tokyo"
    finally:
        spark.conf.set(zone, str(before[zone]))
    assert own_session(spark).conf.get(zone) == before[zone]
    assert {key: spark.conf.get(key, None) for key in before} == before


def test_no_rows_leave_no_file(spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str) -> None:
    made = Table.create(spark, name, "id long, p int", partition_by=["p"], url=tarnlog_service.url)
    for rows in (spark.createDataFrame([], "id long, p int"), spark.range(5).selectExpr("id", "1 p").where("id > 9")):
        assert made.write(rows, writer="native").skipped == "there were no rows to append"
    assert on_disk(client, made) == set()


def test_required_columns(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    made = Table.create(spark, name, "id long not null, v string", url=tarnlog_service.url)
    with pytest.raises(SchemaMismatch) as error:
        made.write(spark.sql("SELECT if(id = 3, null, id) id, 'x' v FROM range(5)"), writer="native")
    assert list(error.value.columns) == ["id"]
    assert made.write(spark.sql("SELECT id, 'x' v FROM range(5)"), writer="native").num_rows == 5


def test_what_only_tasks_of_our_own_can_do_is_left_to_them(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, names: Any
) -> None:
    rows = spark.range(3)
    sized = Table.create(spark, names(), "id long", properties={"targetFileSize": "1000"}, url=tarnlog_service.url)
    with pytest.raises(InvalidRequest, match="targetFileSize"):
        sized.write(rows, writer="native")
    with pytest.raises(InvalidRequest, match="writer is one of"):
        sized.write(rows, writer="fast")  # type: ignore[arg-type]
    sized.write(rows)
    assert not any(map(is_staged, client.files(sized.name)))
    plain = Table.for_name(spark, names(), url=tarnlog_service.url)
    plain.write(rows)
    assert all(map(is_staged, client.files(plain.name)))
    spark.conf.set(_staging.WRITE_CONF, "arrow")
    try:
        plain.write(rows, "overwrite")
    finally:
        spark.conf.unset(_staging.WRITE_CONF)
    assert not any(map(is_staged, client.files(plain.name)))


def test_names_that_hadoop_would_replace(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str
) -> None:
    rows = spark.range(3).withColumnRenamed("id", "a ${user.home}")
    table = Table.for_name(spark, name, url=tarnlog_service.url)
    with pytest.raises(InvalidRequest, match="name with"):
        table.write(rows, writer="native")
    table.write(rows)
    assert not any(map(is_staged, client.files(name)))
    assert Counter(row[0] for row in table.read().collect()) == Counter(range(3))
    spark.conf.set(SCAN_CONF, "native")
    try:
        with pytest.raises(InvalidRequest, match=r"\{\.\.\.\}"):
            table.read()
    finally:
        spark.conf.unset(SCAN_CONF)


def staged(folder: Path, *names: str) -> WriteTask:
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    for name in names:
        (folder / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), folder / "w" / name)
    return WriteTask(storage=storage_at(folder.as_uri()), schema_string=json.dumps(schema))


def test_a_folder_is_trusted_only_whole(tmp_path: Path) -> None:
    task = staged(tmp_path, "part-0.parquet")
    with pytest.raises(Corrupt, match="done"):
        staged_files(task, "w")
    staged(tmp_path, "_SUCCESS")
    assert [file.path for file in staged_files(task, "w")] == ["w/part-0.parquet"]
    staged(tmp_path, "attempt_1/part-0.parquet")
    with pytest.raises(Corrupt, match="attempt_1"):
        staged_files(task, "w")


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    task = staged(tmp_path, "part-0.parquet", "_SUCCESS")
    pq.write_table(pa.table({"id": pa.array([1], pa.timestamp("ns"))}), tmp_path / "w/part-0.parquet")
    with pytest.raises(Corrupt, match="other columns"):
        adds_of(task, staged_files(task, "w"))
