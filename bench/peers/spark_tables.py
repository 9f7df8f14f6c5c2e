"""Delta Lake and Iceberg in their own Spark: small appends, appends of several writers at once, planning many files.

Run in the peer's own environment: `python -m bench.peers.spark_tables '{"system": "delta", "folder": ...}'` answers the
commands of `Work` until its stdin ends. Their jars come from Maven Central, as their users get them; where it does not
answer, the peer is not measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from bench.peers.serving import Verbs, serve
from bench.plan_layout import CHOSEN_DAY, RANGE_START, ROWS

DELTA = "io.delta:delta-spark_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
PLANNED = "plan"
"""The table of many entries, made beforehand: no file of them is there."""
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""What every system's Spark is started with; everything else is as it comes."""
CONF = {
    "delta": {
        "spark.jars.packages": DELTA,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.jars.packages": ICEBERG,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


class Peer:
    """One table format in a local Spark."""

    def __init__(self, system: str, folder: str) -> None:
        from pyspark.sql import SparkSession

        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._system = system
        self._folder = folder
        conf = {**CONF[system], **SESSION}
        if system == "iceberg":
            conf["spark.sql.catalog.lake.warehouse"] = folder
        builder = SparkSession.builder.appName("bench").master("local[*]")
        for key, value in conf.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    def create(self, table: str) -> None:
        if self._system == "delta":
            empty = self.spark.createDataFrame([], "id BIGINT, x DOUBLE")
            empty.write.format("delta").save(f"{self._folder}/{table}")
        else:
            self.spark.sql(f"CREATE TABLE lake.bench.{table} (id BIGINT, x DOUBLE) USING iceberg")

    def append(self, table: str, frame: Any) -> None:
        if self._system == "delta":
            frame.write.format("delta").mode("append").save(f"{self._folder}/{table}")
        else:
            frame.writeTo(f"lake.bench.{table}").append()

    def read(self, table: str, where: str | None = None) -> Any:
        if self._system == "delta":
            frame = self.spark.read.format("delta").load(f"{self._folder}/{table}")
        else:
            frame = self.spark.table(f"lake.bench.{table}")
        return frame if where is None else frame.where(where)

    def rows(self, table: str) -> int:
        return int(self.read(table).count())


class Work:
    """What a system can be asked for, in one session (see bench.peers.serving); every answer is JSON."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        self._landed: Counter[str] = Counter()
        self._kept: Any = None

    def verbs(self) -> Verbs:
        """By the name that a command calls them."""
        works = (self.create, self.append, self.check, self.append_together, self.check_together, self.plan, self.grow)
        return {work.__name__: work for work in (*works, self.kept_files)}

    def create(self, table: str) -> None:
        self._peer.create(table)

    def append(self, table: str, count: int, rows: int) -> list[float]:
        """Seconds of each append of a few rows, one after the other."""
        frame, spent = self._small(rows), []
        for _ in range(count):
            start = time.perf_counter()
            self._peer.append(table, frame)
            spent.append(time.perf_counter() - start)
        return spent

    def check(self, table: str, rows: int) -> None:
        """Raises where a table does not have as many rows."""
        found = self._peer.rows(table)
        if found != rows:
            raise RuntimeError(f"{found} rows where {rows} were appended")

    def append_together(self, table: str, writers: int, each: int, rows: int) -> tuple[float, int]:
        """Seconds until all writers were done, and how many of their appends failed."""
        frame = self._small(rows)

        def write(_: int) -> int:
            failed = 0
            for _ in range(each):
                try:
                    self._peer.append(table, frame)
                except Exception:
                    failed += 1
            return failed

        start = time.perf_counter()
        with ThreadPoolExecutor(writers) as pool:
            failed = sum(pool.map(write, range(writers)))
        spent = time.perf_counter() - start
        self._landed[table] += writers * each - failed
        return spent, failed

    def check_together(self, table: str, rows: int) -> None:
        """Raises where the rows there are not those that were acknowledged."""
        self.check(table, self._landed[table] * rows)

    def plan(self, table: str, where: str | None, keep: bool = False) -> float:
        """Milliseconds until the physical scan is there with all its tasks. What is kept tells its files later."""
        start = time.perf_counter()
        frame = self._peer.read(table, where)
        frame._jdf.queryExecution().toRdd().getNumPartitions()
        spent = (time.perf_counter() - start) * 1e3
        if keep:
            self._kept = frame
        return spent

    def grow(self) -> None:
        """A new version of the planned table: one small append of real rows, to a file that every filter selects."""
        columns = ("id", f"DATE'{CHOSEN_DAY}' AS d", f"id + {RANGE_START} AS x")
        self._peer.append(PLANNED, self._peer.spark.range(ROWS).selectExpr(*columns).coalesce(1))

    def kept_files(self) -> int | None:
        """How many files the kept plan names; None where the system does not tell."""
        return len(self._kept._jdf.inputFiles()) or None

    def _small(self, rows: int) -> Any:
        return self._peer.spark.range(rows).selectExpr("id", "CAST(id AS DOUBLE) AS x").coalesce(1)


def work(start: Callable[[], tuple[Any, dict[str, str]]]) -> int:
    """Serve until stdin ends, then end Spark in order; the exit code. `start` gives the system and its versions."""
    started: list[Any] = []

    def begin() -> tuple[dict[str, Any], Verbs]:
        peer, versions = start()
        started.append(peer)
        return {"versions": versions}, Work(peer).verbs()

    code = serve(begin)
    for peer in started:
        _stop(peer.spark)
    return code


def _stop(spark: Any) -> None:
    """Return when its Java is gone: it removes its temporary folders as it goes."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def main(setting: dict[str, Any]) -> int:
    def start() -> tuple[Peer, dict[str, str]]:
        peer = Peer(setting["system"], setting["folder"])
        jar = CONF[setting["system"]]["spark.jars.packages"].rpartition(":")
        return peer, {jar[0].partition(":")[2]: f"{jar[2]} on pyspark {version('pyspark')}"}

    return work(start)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
