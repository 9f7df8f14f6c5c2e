"""Writers, a stream, an optimize and deletes on one table at the same time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tarnlog import Client
from tarnlog_spark import Table
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROUNDS = 5
"""Appends of each writer."""
WIDTH = 20
"""Rows of each append."""
BATCHES = 4
"""Of the stream."""
DELETES = 3
FIRST, STREAMED = 1000, 30_000


class Book:
    """What each commit did to the rows, by the version that it was told."""

    def __init__(self) -> None:
        self._done: dict[int, list[tuple[str, frozenset[int]]]] = {}
        self._lock = threading.Lock()

    def note(self, version: int | None, what: str, which: frozenset[int]) -> None:
        assert version is not None
        with self._lock:
            self._done.setdefault(version, []).append((what, which))

    def rows_after(self, version: int, before: frozenset[int]) -> frozenset[int]:
        """The rows at a version, given those at the one before it."""
        for what, which in self._done.get(version, []):
            before = before | which if what == "append" else before - which
        return before


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.create(spark, name, "id long, p int", partition_by=["p"], url=tarnlog_service.url)


def test_writers_a_stream_an_optimize_and_deletes_at_the_same_time(
    spark: SparkSession, table: Table, client: Client, names: Callable[[], str], tmp_path: Path
) -> None:
    """Every version holds exactly the rows that the commits up to it say, and nobody hears of a conflict.

    The stream copies a table, a file a batch; the others begin when its first batch is there, and it has more to do.
    Deletes and optimizes wait for appends, so that they fall between them.
    """
    feed = HandMade(client, names())
    book, appended = Book(), threading.Semaphore(0)

    def start() -> StreamingQuery:
        source = spark.readStream.format("tarnlog").options(url=client.url, maxFilesPerTrigger="1")
        rows = source.load(feed.name).selectExpr("id", "cast(id % 2 as int) p")
        writer = rows.writeStream.format("tarnlog").options(url=client.url, checkpointLocation=str(tmp_path))
        return writer.trigger(availableNow=True).start(table.name)

    def write(first: int) -> None:
        for number in range(ROUNDS):
            low = first + number * WIDTH
            rows = spark.range(low, low + WIDTH, 1, 1).selectExpr("id", "cast(id % 2 as int) p")
            book.note(table.write(rows).version, "append", frozenset(range(low, low + WIDTH)))
            appended.release()

    def delete() -> None:
        for number in range(DELETES):
            appended.acquire()
            low = FIRST + number * 3
            result = table.delete(f"id >= {low} AND id <= {low + 2}")
            book.note(result.version, "delete", frozenset(range(low, low + 3)))

    def optimize() -> None:
        for _ in range(3):
            appended.acquire()
            table.optimize().execute_compaction()

    table.write(spark.range(FIRST, FIRST + 10, 1, 1).selectExpr("id", "cast(id % 2 as int) p"))
    book.note(1, "append", frozenset(range(FIRST, FIRST + 10)))
    for number in range(BATCHES):
        feed.add(batch(number))
    stream = start()
    while stream.isActive and not batches_of(client, table):
        time.sleep(0.1)
    all_at_once((write, 10_000), (write, 20_000), (delete,), (optimize,))
    started = [stream]
    finished(lambda: started.pop() if started else start())

    history = list(client.history(table.name))
    batches = batches_of(client, table)
    for number, version in enumerate(batches):
        book.note(version, "append", frozenset(batch(number)))
    rows: frozenset[int] = frozenset()
    for version in range(1, client.snapshot(table.name).version + 1):
        rows = book.rows_after(version, rows)
        assert rows_at(client, table, version) == Counter(rows), f"version {version}"
    assert len(rows) == (2 * ROUNDS + BATCHES) * WIDTH + 10 - DELETES * 3
    operations = Counter(commit.operation for commit in history)
    assert (operations["WRITE"], operations["DELETE"], len(batches)) == (2 * ROUNDS + 1, DELETES, BATCHES)


def batches_of(client: Client, table: Table) -> list[int]:
    """The versions that the stream's batches got, in order."""
    return sorted(one.version for one in client.history(table.name) if one.operation == "STREAMING UPDATE")


def batch(number: int) -> range:
    """The ids of a file that the stream copies."""
    return range(STREAMED + number * WIDTH, STREAMED + (number + 1) * WIDTH)


def all_at_once(*workers: tuple[Any, ...]) -> None:
    """Run them in threads that begin together; what one of them raises fails the test."""
    start, failures = threading.Barrier(len(workers)), []

    def guarded(work: Callable[..., None], *args: Any) -> None:
        try:
            start.wait(120)
            work(*args)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=work) for work in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(280)
        assert not thread.is_alive() or failures
    assert failures == []


def rows_at(client: Client, table: Table, version: int) -> Counter[int]:
    """The ids at a version, read without Spark: there are many versions."""
    folder = Path(client.get_table(table.name).location.removeprefix("file://"))
    found: Counter[int] = Counter()
    for file in client.files(table.name, version=version):
        found.update(pq.ParquetFile(folder / file.path).read(columns=["id"]).column("id").to_pylist())
    return found
