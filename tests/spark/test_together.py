"""Writers, streams, an optimize and deletes on one table at the same time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow.parquet as pq
import pytest

from tarnlog import Client, CommitOutcome, Conflicted, NotFound
from tarnlog_spark import Table
from tarnlog_spark._optimizing import OptimizeResult
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade
from tests.spark.queries import Running

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
OPTIMIZES = DELETES + 1
"""One delete gets in the way of at most one optimize: the one that runs when it is committed."""
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


class Conflicts:
    """Every conflict that a commit of this process met, its retries too, and how many the service counted for all."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.met: list[tuple[str, Conflicted]] = []
        self._url = url
        self._before = self._counted()
        commit = Client.commit

        def noted(*args: Any, **told: Any) -> CommitOutcome:
            outcome = commit(*args, **told)
            if isinstance(outcome, Conflicted):
                self.met.append((told["operation"], outcome))
            return outcome

        monkeypatch.setattr(Client, "commit", noted)

    @property
    def of_all(self) -> int:
        """Also those that the streams met, which commit in processes of their own."""
        return self._counted() - self._before

    def _counted(self) -> int:
        lines = httpx.get(f"{self._url}/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("tarnlog_conflicts_total"))


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.create(spark, name, "id long, p int", partition_by=["p"], url=tarnlog_service.url)


def test_writers_streams_an_optimize_and_deletes_at_the_same_time(
    spark: SparkSession,
    table: Table,
    client: Client,
    names: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every version holds exactly the rows that the commits up to it say, and nobody hears of a conflict. Within, only
    a delete and an optimize meet, for both take out files: never an append or a stream.

    One stream writes into the table, a file of its feed a batch; another reads what happens to the table. Both run when
    the writers begin and after they have ended, and the writers do their last round only when both have had a part in
    it. Deletes, optimizes and the feed wait for appends, so that they fall between them.
    """
    feed, copy = HandMade(client, names()), names()
    book, appended = Book(), threading.Semaphore(0)
    conflicts, optimized = Conflicts(client.url, monkeypatch), list[OptimizeResult]()

    def query(source: str, sink: str, *columns: str, **options: str) -> StreamingQuery:
        rows = spark.readStream.format("tarnlog").options(url=client.url, **options).load(source).selectExpr(*columns)
        writer = rows.writeStream.format("tarnlog").options(url=client.url, checkpointLocation=str(tmp_path / sink))
        return writer.trigger(processingTime="0 seconds").start(sink)

    def write(first: int) -> None:
        for number in range(ROUNDS):
            if number == ROUNDS - 1:
                into.until(lambda: len(batches_of(client, table)) >= 2)
                out_of.until(lambda: total_rows(client, copy) > 10)
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
        for _ in range(OPTIMIZES):
            appended.acquire()
            optimized.append(table.optimize().execute_compaction())

    def fill() -> None:
        for number in range(1, BATCHES):
            appended.acquire()
            feed.add(batch(number))

    table.write(spark.range(FIRST, FIRST + 10, 1, 1).selectExpr("id", "cast(id % 2 as int) p"))
    book.note(1, "append", frozenset(range(FIRST, FIRST + 10)))
    feed.add(batch(0))
    into = Running(lambda: query(feed.name, table.name, "id", "cast(id % 2 as int) p", maxFilesPerTrigger="1"))
    changes = ("id", "_change_type what", "_commit_version version")
    out_of = Running(lambda: query(table.name, copy, *changes, readChangeFeed="true", startingVersion="1"))
    try:
        into.until(lambda: len(batches_of(client, table)) == 1)
        out_of.until(lambda: total_rows(client, copy) >= 10)
        all_at_once((write, 10_000), (write, 20_000), (delete,), (optimize,), (fill,))
        into.until(lambda: len(batches_of(client, table)) == BATCHES)
        expected = total_changes(client, table)
        out_of.until(lambda: total_rows(client, copy) >= expected)
        into.check()
        out_of.check()
    finally:
        into.stop()
        out_of.stop()

    for number, version in enumerate(batches_of(client, table)):
        book.note(version, "append", frozenset(batch(number)))
    told = changes_in(client, copy)
    rows: frozenset[int] = frozenset()
    for version in range(1, client.snapshot(table.name).version + 1):
        before, rows = rows, book.rows_after(version, rows)
        assert rows_at(client, table, version) == Counter(rows), f"version {version}"
        inserts, deletes = told.pop((version, "insert"), Counter()), told.pop((version, "delete"), Counter())
        assert inserts - deletes == Counter(rows - before), f"what the stream read of version {version}"
        assert deletes - inserts == Counter(before - rows), f"what the stream read of version {version}"
    assert told == {}
    assert total_rows(client, copy) == expected, "each change once"
    assert len(rows) == (2 * ROUNDS + BATCHES) * WIDTH + 10 - DELETES * 3
    operations = Counter(commit.operation for commit in client.history(table.name))
    assert (operations["WRITE"], operations["DELETE"]) == (2 * ROUNDS + 1, DELETES)
    assert operations["STREAMING UPDATE"] == BATCHES
    assert operations["OPTIMIZE"] == sum(result.version is not None for result in optimized) > 0
    assert sum(result.num_removed_files for result in optimized) > sum(result.num_added_files for result in optimized)
    assert sum(result.num_groups_given_up > 0 for result in optimized) <= DELETES
    assert [result.skipped for result in optimized] == [{}] * OPTIMIZES
    rivals = {"DELETE": {"OPTIMIZE"}, "OPTIMIZE": {"DELETE"}}
    for operation, conflict in conflicts.met:
        winners = {winner.operation for winner in conflict.winners}
        assert winners, conflict
        assert winners <= rivals.get(operation, set()), f"{operation} met {conflict}"
    assert conflicts.of_all == len(conflicts.met), "no stream met a conflict"


def total_rows(client: Client, name: str) -> int:
    """The rows of a table, which a stream may still be about to make."""
    try:
        return sum(file.num_records or 0 for file in client.files(name))
    except NotFound:
        return 0


def total_changes(client: Client, table: Table) -> int:
    """The rows of all files that commits added and removed, as a change feed tells them."""
    known: dict[str, int] = {}
    total = 0
    for change in client.changes(table.name, 1):
        known.update((add.path, add.num_records or 0) for add in change.adds)
        total += sum(known[add.path] for add in change.adds if add.data_change)
        total += sum(known[remove.path] for remove in change.removes if remove.data_change)
    return total


def changes_in(client: Client, name: str) -> dict[tuple[int, str], Counter[int]]:
    """The ids that the reading stream wrote down, by version and kind of change."""
    folder = Path(client.get_table(name).location.removeprefix("file://"))
    found: dict[tuple[int, str], Counter[int]] = {}
    for file in client.files(name):
        for row in pq.ParquetFile(folder / file.path).read().to_pylist():
            found.setdefault((row["version"], row["what"]), Counter())[row["id"]] += 1
    return found


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
