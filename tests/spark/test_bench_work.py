"""What the Spark benchmark asks of every system, done by tarnlog's Spark for real. No timing is asserted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.peers.spark_tables import PLANNED, Work
from bench.plan_layout import expected, filters
from bench.plan_runs import build
from bench.spark_child import Race, Tarnlog
from bench.spark_data import Sizes
from tarnlog_spark import Table
from tarnlog_spark._writing import STORED
from tests.service_process import running_service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 2_000


class Flaky(Tarnlog):
    """Fails every third append."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        super().__init__(spark, url)
        self._calls = itertools.count(1)

    def append(self, table: str, frame: DataFrame) -> None:
        if next(self._calls) % 3 == 0:
            raise OSError("no answer")
        super().append(table, frame)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the table that is planned, made as the benchmark makes it."""
    folder: Path = tmp_path_factory.mktemp("bench") / "warehouse"
    folder.mkdir()
    asyncio.run(build(folder, FILES, dict(STORED)))
    with running_service(folder) as service:
        yield service.url


def test_a_new_version_has_a_file_more_under_every_filter(spark: SparkSession, url: str) -> None:
    work = Work(Tarnlog(spark, url))
    for commits in range(3):
        for name, where in filters(FILES).items():
            assert work.plan(PLANNED, where, keep=True) > 0
            assert work.kept_files() == expected(FILES, name) + commits, name
        work.grow()


def test_what_is_kept_is_of_the_version_that_was_planned(spark: SparkSession, url: str) -> None:
    work = Work(Tarnlog(spark, url))
    where = filters(FILES)["partition"]
    work.plan(PLANNED, where, keep=True)
    before = work.kept_files()
    work.grow()
    work.plan(PLANNED, where)
    assert work.kept_files() == before


def test_appends_are_timed_one_by_one_and_counted(spark: SparkSession, url: str) -> None:
    work = Work(Tarnlog(spark, url))
    work.create("small")
    assert len(work.append("small", 2, 10)) == 2
    assert len(work.append("small", 1, 10)) == 1
    work.check("small", 30)
    with pytest.raises(RuntimeError, match="30 rows where 20 were appended"):
        work.check("small", 20)


def test_only_appends_that_landed_count(spark: SparkSession, url: str) -> None:
    peer = Flaky(spark, url)
    work = Work(peer)
    work.create("shared")
    assert [work.append_together("shared", 2, 3, 10)[1] for _ in range(2)] == [2, 2]
    work.check_together("shared", 10)
    Tarnlog(spark, url).append("shared", spark.range(1).selectExpr("id", "CAST(id AS DOUBLE) AS x"))
    with pytest.raises(RuntimeError, match="81 rows where 80 were appended"):
        work.check_together("shared", 10)


def test_writes_are_raced_into_new_tables_and_into_ones_that_grow(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    sizes = Sizes(rounds=1, write_rounds=2, rows=1, files=1, small_files=1, written=1_000)
    found = Race(spark, url, tmp_path, sizes).writes()
    assert list(found) == ["write", "append", "partitioned write", "partitioned append"]
    assert all(len(one[side]) == 2 for one in found.values() for side in ("own", "native"))
    assert list(tmp_path.iterdir()) == []


def test_a_raced_append_that_loses_rows_is_noticed(
    spark: SparkSession, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Table.write

    def lossy(self: Table, rows: DataFrame, **options: Any) -> Any:
        return write(self, rows.limit(999) if self.exists else rows, **options)

    monkeypatch.setattr(Table, "write", lossy)
    sizes = Sizes(rounds=1, write_rounds=1, rows=1, files=1, small_files=1, written=1_000)
    with pytest.raises(RuntimeError, match=r"hold \(1999, 2000\) rows where 2000 were written"):
        Race(spark, url, tmp_path, sizes).writes()
