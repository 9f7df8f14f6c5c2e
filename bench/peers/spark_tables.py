"""Delta Lake and Iceberg in their own Spark: small appends, appends of several writers at once, planning many files.

Run in the peer's own environment: `python -m bench.peers.spark_tables '{"system": "delta", "folder": ..., ...}'`. Their
jars come from Maven Central, as their users get them; where it does not answer, the peer is not measured.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

DELTA = "io.delta:delta-spark_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
PLANNED = "plan"
"""The table of many entries, made beforehand: no file of it is there."""
WARM = 5
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


def small_appends(peer: Any, count: int, rows: int) -> list[float]:
    """Seconds of each append of a few rows."""
    peer.create("small")
    frame = peer.spark.range(rows).selectExpr("id", "CAST(id AS DOUBLE) AS x").coalesce(1)
    spent = []
    for _ in range(count):
        start = time.perf_counter()
        peer.append("small", frame)
        spent.append(time.perf_counter() - start)
    if peer.rows("small") != count * rows:
        raise RuntimeError(f"{peer.rows('small')} rows where {count * rows} were appended")
    return spent


def concurrent_appends(peer: Any, writers: int, each: int, rows: int) -> tuple[float, int]:
    """Seconds until all writers were done, and how many of their appends failed."""
    peer.create("shared")
    frame = peer.spark.range(rows).selectExpr("id", "CAST(id AS DOUBLE) AS x").coalesce(1)

    def write(_: int) -> int:
        failed = 0
        for _ in range(each):
            try:
                peer.append("shared", frame)
            except Exception:
                failed += 1
        return failed

    start = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        failed = sum(pool.map(write, range(writers)))
    spent = time.perf_counter() - start
    if peer.rows("shared") != (writers * each - failed) * rows:
        raise RuntimeError("the rows there are not those that were acknowledged")
    return spent, failed


def plan(peer: Any, table: str, where: str | None) -> tuple[float, Any]:
    """Milliseconds until the physical scan is there with all its tasks, and the frame."""
    start = time.perf_counter()
    frame = peer.read(table, where)
    frame._jdf.queryExecution().toRdd().getNumPartitions()
    return (time.perf_counter() - start) * 1e3, frame


def plans(peer: Any, asked: dict[str, str | None], warm_up: str) -> dict[str, Any]:
    """The first plan of a table that nobody has opened, in a session that has planned another one; then warm ones."""
    for _ in range(3):
        plan(peer, warm_up, "id < 10")
    first, _ = plan(peer, PLANNED, next(iter(asked.values())))
    found = {}
    for name, where in asked.items():
        once, frame = plan(peer, PLANNED, where)
        spent = [plan(peer, PLANNED, where)[0] for _ in range(WARM)]
        files = len(frame._jdf.inputFiles())
        found[name] = {"once_ms": once, "warm_ms": statistics.median(spent), "found": files or None}
    return {"first_ms": first, "plans": found}


def measured(peer: Any, setting: dict[str, Any]) -> dict[str, Any]:
    """Everything that all systems are asked for, in one session."""
    small_appends(Renamed(peer, "warm_up"), 3, setting["rows"])
    small = small_appends(peer, setting["appends"], setting["rows"])
    spent, failed = concurrent_appends(peer, setting["writers"], setting["each"], setting["rows"])
    planned = plans(peer, setting["plans"], "warm_up_small") if setting.get("plans") else None
    return {"small": small, "concurrent": spent, "failed": failed, "planned": planned}


def main(setting: dict[str, Any]) -> None:
    peer = Peer(setting["system"], setting["folder"])
    jar = CONF[setting["system"]]["spark.jars.packages"].rpartition(":")
    versions = {jar[0].partition(":")[2]: f"{jar[2]} on pyspark {version('pyspark')}"}
    print(json.dumps({**measured(peer, setting), "versions": versions}))


class Renamed:
    """The same peer with other table names, for a first round that is not counted."""

    def __init__(self, peer: Any, prefix: str) -> None:
        self._peer, self._prefix, self.spark = peer, prefix, peer.spark

    def create(self, table: str) -> None:
        self._peer.create(f"{self._prefix}_{table}")

    def append(self, table: str, frame: Any) -> None:
        self._peer.append(f"{self._prefix}_{table}", frame)

    def rows(self, table: str) -> int:
        return int(self._peer.rows(f"{self._prefix}_{table}"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
