"""The first write to a table that does not exist: beside another first write, and after one that failed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tarnlog import Client, Conflict, InvalidRequest, TableInfo
from tarnlog_spark import SchemaMismatch, Table, _landing, _writes
from tarnlog_spark._writes import Mode
from tests.service_process import ServiceProcess
from tests.spark.test_table import expected, numbers, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewHandle = Callable[[], Table]


@pytest.fixture
def handle(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> NewHandle:
    """The same table, which does not exist yet, for one writer after the other."""
    return lambda: Table.for_name(spark, name, url=tarnlog_service.url)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers find that there is no table before either of them creates it."""
    barrier, real = threading.Barrier(2, timeout=60), Table._create

    def create(table: Table, *args: Any, **more: Any) -> TableInfo:
        barrier.wait()
        return real(table, *args, **more)

    monkeypatch.setattr(Table, "_create", create)


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Lets a rival write when the files of the first writer are there, and nothing of it is committed."""

    def by(rival: Callable[[], Any]) -> None:
        coming = [rival]

        def late(*args: Any) -> Any:
            if coming:
                coming.pop()()
            return _landing.land(*args)

        monkeypatch.setattr(_writes, "land", late)

    return by


def failing(spark: SparkSession) -> DataFrame:
    """Rows as `numbers` has them, whose tasks die."""
    return numbers(spark, 1, 2).selectExpr("if(id = 2, cast(raise_error('lost') as long), id) id", "p", "v")


def files_on_disk(client: Client, table: Table) -> set[str]:
    folder = Path(client.get_table(table.name).location.removeprefix("file://"))
    return {path.relative_to(folder).as_posix() for path in folder.rglob("part-*.parquet")}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_two_first_writes_at_once(spark: SparkSession, handle: NewHandle, together: None, mode: Mode) -> None:
    with ThreadPoolExecutor(2) as threads:
        written = [threads.submit(handle().write, numbers(spark, n), mode, partition_by=["p"]) for n in (1, 2)]
        versions = sorted(one.result().version or 0 for one in written)
        assert versions == [1, 2] or (mode == "append" and versions == [1, 1])  # appends may share a version
    if mode == "append":
        assert rows_of(handle().read()) == expected(1, 2)
    else:
        assert sum(rows_of(handle().read()).values()) == 1


def test_of_two_that_must_be_first_one_is(spark: SparkSession, handle: NewHandle, together: None) -> None:
    def write(number: int) -> str:
        try:
            handle().write(numbers(spark, number), "error")
        except Conflict as error:
            return error.slug or ""
        return "written"

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(write, (1, 2))) == ["table-exists", "written"]
    assert handle().read().count() == 1
    assert handle().version == 1


def test_the_loser_hears_of_columns_that_do_not_fit(
    spark: SparkSession, handle: NewHandle, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, mine = Table._create, handle()

    def after_a_rival(table: Table, *args: Any, **more: Any) -> TableInfo:
        monkeypatch.setattr(Table, "_create", real)
        handle().write(numbers(spark, 1), partition_by=["p"])
        return real(table, *args, **more)

    monkeypatch.setattr(Table, "_create", after_a_rival)
    with pytest.raises(SchemaMismatch) as error:
        mine.write(spark.sql("select 'x' id"))
    assert list(error.value.columns) == ["id"]
    assert rows_of(mine.read()) == expected(1)


@pytest.mark.parametrize("mode", ["error", "ignore"])
@pytest.mark.parametrize("writer", ["native", "arrow"])
def test_a_write_that_must_be_first_gives_way(
    spark: SparkSession,
    handle: NewHandle,
    client: Client,
    overtaken: Callable[[Callable[[], Any]], None],
    mode: Mode,
    writer: Any,
) -> None:
    """An append lands while its files are written: it does not become the second write, and leaves nothing behind."""
    mine = handle()
    overtaken(lambda: handle().write(numbers(spark, 7)))
    if mode == "error":
        with pytest.raises(Conflict, match="exists already"):
            mine.write(numbers(spark, 1), mode, writer=writer)
    else:
        assert mine.write(numbers(spark, 1), mode, writer=writer).skipped == "the table exists"
    assert rows_of(mine.read()) == expected(7)
    assert files_on_disk(client, mine) == {file.path for file in client.files(mine.name)}


@pytest.mark.parametrize("mode", ["error", "ignore", "append"])
def test_a_first_write_that_failed_can_be_repeated(spark: SparkSession, handle: NewHandle, mode: Mode) -> None:
    with pytest.raises(PySparkException):
        handle().write(failing(spark), mode)
    assert handle().version == 0
    assert handle().write(numbers(spark, 1, 2), mode).version == 1
    assert rows_of(handle().read()) == expected(1, 2)
    if mode == "ignore":
        assert handle().write(numbers(spark, 3), mode).skipped == "the table exists"
        handle().delete()
        assert handle().write(numbers(spark, 3), mode).skipped == "the table exists"


def test_partition_columns_go_by_name_whatever_their_case(spark: SparkSession, handle: NewHandle) -> None:
    rows = spark.sql("select 1 id, 'a' Day")
    handle().write(rows, partition_by=["day"])
    assert handle().detail().collect()[0].partitionColumns == ["Day"]
    handle().write(rows, partition_by=["DAY"])
    assert rows_of(handle().read("day = 'a'")) == Counter({(1, "a"): 2})
    with pytest.raises(InvalidRequest, match="partitioned by"):
        handle().write(rows, partition_by=["id"])
