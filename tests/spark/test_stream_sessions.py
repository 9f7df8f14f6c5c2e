"""A batch of a stream between its files and its commit: a vacuum leaves them alone, and a kill costs no row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess
from tests.spark.hand_made import SCHEMA, HandMade
from tests.spark.held_batch import start
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


class Held:
    """A source with two files, and an empty sink."""

    def __init__(self, client: Client, source: str, sink: str) -> None:
        self.client = client
        self.source, self.sink = source, sink
        HandMade(client, source).add([1], [2])
        client.create_table(sink, SCHEMA)
        self.folder = Path(client.get_table(sink).location.removeprefix("file://"))

    def files(self) -> list[Path]:
        """Data files of the sink, committed or not."""
        return sorted(self.folder.glob("part-*.parquet"))

    def until_written(self, alive: Callable[[], bool]) -> None:
        """Until one task has written its file, while the other one waits."""
        give_up = time.monotonic() + 120
        while not any(file.stat().st_size for file in self.files()):
            assert alive(), "it ended"
            assert time.monotonic() < give_up
            time.sleep(0.05)
        time.sleep(0.5)  # the file is whole
        assert self.client.get_table(self.sink).version == 0, "nothing is committed"


@pytest.fixture
def held(client: Client, names: Callable[[], str]) -> Held:
    return Held(client, names(), names())


def ids(spark: SparkSession, url: str, table: str) -> list[int]:
    return sorted(row.id for row in spark.read.format("tarnlog").option("url", url).load(table).collect())


def test_a_vacuum_leaves_the_files_of_a_batch_alone(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, held: Held, tmp_path: Path
) -> None:
    query = start(spark, tarnlog_service.url, held.source, held.sink, tmp_path)
    try:
        held.until_written(lambda: query.isActive)
        (file,) = held.files()
        assert len(client.sessions(held.sink)) == 1
        done = client.vacuum(held.sink, dry_run=False, retention_hours=0, override_minimum=True)
        assert (done.orphaned_files_deleted, file.exists()) == (0, True)
        (tmp_path / "go").touch()
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert ids(spark, tarnlog_service.url, held.sink) == [1, 2]
    assert client.sessions(held.sink) == ()


def test_a_kill_between_the_files_and_the_commit(
    spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, held: Held, tmp_path: Path
) -> None:
    """What the dead batch wrote is nobody's; the batch that comes again writes each row once."""
    url = tarnlog_service.url
    command = [sys.executable, "-m", "tests.spark.held_batch", url, held.source, held.sink, str(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        held.until_written(lambda: process.poll() is None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Spark and its Python processes with it
        process.wait(30)
    dead = held.files()
    (tmp_path / "go").touch()
    for _ in range(2):
        finished(lambda: start(spark, url, held.source, held.sink, tmp_path))
    assert ids(spark, url, held.sink) == [1, 2]
    assert client.get_table(held.sink).version == 1
    live = {file.path for file in client.files(held.sink)}
    assert {file.name for file in held.files()} == live | {file.name for file in dead}
    assert live.isdisjoint(file.name for file in dead)
    assert len(client.sessions(held.sink)) == 1, "that of the dead batch, until it expires"
