"""What goes wrong between the first byte and the answer: nothing is committed twice, lost, or deleted by mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from tarnlog import Client, CommitUnknown, InvalidRequest
from tarnlog.protocol.actions import Add
from tarnlog.protocol.commits import Winner
from tarnlog_spark import ConflictError, Table, _changing, _committing, _landing
from tarnlog_spark._options import Place
from tarnlog_spark._target import Target
from tarnlog_spark._writing import WriteTask
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Wire(httpx.BaseTransport):
    """A network between client and service that loses the answers to commits, or to the first few of them."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.sent = 0
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if request.method == "POST" and request.url.path.endswith("/commits"):
            self.sent += 1
            if self.sent <= self.lost:
                response.read()
                raise httpx.ReadError("the answer was lost", request=request)
        return response


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    return Table.create(spark, name, "id long, p int", partition_by=["p"], url=tarnlog_service.url)


def over(wire: Wire, spark: SparkSession, table: Table, deadline: float = 60.0) -> Table:
    place = table._target.place
    return Table(Target(spark, Place(table=place.table), Client(place.url, transport=wire, deadline=deadline)))


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("id", "cast(id % 2 as int) p")


def ids(table: Table) -> Counter[int]:
    return Counter(row.id for row in table.read().collect())


def folder_of(client: Client, table: Table) -> Path:
    return Path(client.get_table(table.name).location.removeprefix("file://"))


def files_on_disk(client: Client, table: Table) -> set[str]:
    root = folder_of(client, table)
    found = {path.relative_to(root).as_posix() for path in root.rglob("part-*.parquet")}
    return {path for path in found if not path.startswith("_")}


def files_in_log(client: Client, table: Table) -> set[str]:
    return {file.path for file in client.files(table.name)}


def test_a_task_that_runs_twice_commits_once(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt of a task writes all its files and then fails: they are valid, and nobody's."""
    from tarnlog_spark import _target

    def fails_once(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> Iterator[Add]:
        from pyspark import TaskContext

        from tarnlog_spark._writing import write_batches

        adds = list(write_batches(task, batches))
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("lost on purpose")
        yield from adds

    monkeypatch.setattr(_target, "write_batches", fails_once)
    result = table.write(numbers(spark, 1000), writer="arrow")
    assert result.num_rows == 1000
    assert ids(table) == Counter(range(1000))
    orphans = files_on_disk(client, table) - files_in_log(client, table)
    assert len(orphans) == 2, "the failed attempt wrote a file for each partition"
    assert len(files_in_log(client, table)) == result.num_files == 4


def test_a_commit_whose_answer_is_lost_lands_once(spark: SparkSession, table: Table, client: Client) -> None:
    wire = Wire(lost=2)
    result = over(wire, spark, table).write(numbers(spark, 10))
    assert wire.sent == 3
    assert (result.version, client.snapshot(table.name).version) == (1, 1)
    assert ids(table) == Counter(range(10))
    assert client.sessions(table.name) == ()


def test_an_outcome_that_stays_unknown_deletes_nothing(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_committing, "PATIENCE_SECONDS", 0.0)
    wire = Wire(lost=10**9)
    with pytest.raises(CommitUnknown) as error:
        over(wire, spark, table, deadline=0.3).write(numbers(spark, 10))
    # It had landed all along, and its files are there to be read.
    assert client.commit_status(table.name, error.value.commit_id).version == 1  # type: ignore[union-attr]
    assert ids(table) == Counter(range(10))
    # The session is left to expire: until then vacuum stays away.
    assert len(client.sessions(table.name)) == 1


def test_a_conflict_names_its_winner_and_cleans_up(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(numbers(spark, 4, 1))
    real = _landing._replaced
    rivals: list[int] = []

    def with_a_rival(*args: Any) -> Any:
        planned = real(*args)
        rivals.append(table._target.client.snapshot(table.name).version)
        Table(table._target).delete(f"id = {len(rivals)}")
        return planned

    monkeypatch.setattr(_landing, "_replaced", with_a_rival)
    monkeypatch.setattr("tarnlog_spark._committing.REBASES", 2)
    before = files_on_disk(client, table)
    with pytest.raises(ConflictError) as error:
        table.write(numbers(spark, 50), "overwrite")
    assert error.value.rule == "append"
    (winner,) = error.value.winners
    assert isinstance(winner, Winner)
    assert (winner.operation, winner.version) == ("DELETE", 3)
    assert f"version {winner.version}" in str(error.value)
    # The overwrite's files are gone; those of the rivals are not.
    assert ids(table) == Counter([0, 3])
    assert files_on_disk(client, table) - before <= files_in_log(client, table) | files_at(client, table, 2)


def test_changes_of_other_rows_do_not_conflict(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a delete of some rows is on its way, others are deleted, appended and optimized: it lands at once."""
    for start in (0, 10):
        table.write(spark.range(start, start + 10, 1, 1).selectExpr("id", "cast(id % 2 as int) p"))
    real, sent = _committing.commit_job, list[str]()

    def with_rivals(client: Client, job: Any, actions: Any) -> Any:
        sent.append(job.operation)
        if len(sent) == 1:
            table.delete("p = 1 AND id = 1")
            table.write(spark.range(100, 110, 1, 1).selectExpr("id", "0 p"))
            table.optimize().where("p = 1").execute_compaction()
        return real(client, job, actions)

    monkeypatch.setattr(_changing, "commit_job", with_rivals)
    result = table.delete("p = 0 AND id < 5")
    assert sent == ["DELETE", "DELETE"], "one each: nobody tried again"
    assert result.version == 6
    gone = {0, 2, 4, 1}
    assert ids(table) == Counter({*range(20), *range(100, 110)} - gone)


def files_at(client: Client, table: Table, version: int) -> set[str]:
    return {file.path for file in client.files(table.name, version=version)}


def test_an_overwrite_rebases_without_writing_its_rows_again(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(numbers(spark, 4, 1))
    real = _landing._replaced
    wrote: list[int] = []

    def with_one_rival(*args: Any) -> Any:
        planned = real(*args)
        if not wrote:
            wrote.append(table.delete("id = 1").version)
        return planned

    monkeypatch.setattr(_landing, "_replaced", with_one_rival)
    result = table.write(numbers(spark, 50), "overwrite")
    assert ids(table) == Counter(range(50))
    assert files_on_disk(client, table) >= files_in_log(client, table)
    assert result.version == 3


def test_a_refusal_that_settles_nothing_deletes_nothing(
    spark: SparkSession, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any, **fields: Any) -> None:
        raise InvalidRequest("too large", slug="commit-too-large", status=413)

    monkeypatch.setattr(_landing, "commit_job", refused)
    with pytest.raises(InvalidRequest):
        table.write(numbers(spark, 4))
    assert files_on_disk(client, table)


DRIVER = """
import os, signal, sys
import tarnlog_spark
from tarnlog_spark import _landing

def killed(*args, **fields):
    print("written", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

_landing.commit_job = killed
spark = tarnlog_spark.session(master="local[1]")
table = tarnlog_spark.Table.for_name(spark, sys.argv[1])
table.write(spark.range(100).selectExpr("id", "cast(id % 2 as int) p"))
"""


def test_a_driver_killed_before_its_commit_leaves_orphans_for_vacuum(
    spark: SparkSession, table: Table, client: Client
) -> None:
    env = {**os.environ, "TARNLOG_URL": client.url}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, table.name], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = driver.communicate(timeout=240)
    assert driver.returncode == -signal.SIGKILL, err.decode()[-3000:]
    assert b"written" in out
    assert table.version == 0
    assert table.read().count() == 0
    orphans = files_on_disk(client, table)
    assert orphans
    # Its session outlives it: vacuum leaves the files alone until it has expired.
    (session,) = client.sessions(table.name)
    covered = client.vacuum(table.name, retention_hours=0, override_minimum=True)
    assert (covered.orphaned_files_found, covered.kept.in_session) == (0, len(orphans))
    client.end_session(table.name, session.id)
    done = client.vacuum(table.name, dry_run=False, retention_hours=0, override_minimum=True)
    assert done.orphaned_files_deleted == len(orphans)
    table.write(numbers(spark, 3))
    assert ids(table) == Counter(range(3))
