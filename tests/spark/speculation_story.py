"""Writes on a Spark that speculates. It starts a second attempt only on another machine, so this is a small cluster of
two, as far as Spark can tell by their addresses.

`python -m tests.spark.speculation_story URL TABLE FOLDER`: attempts tell in the folder that they ran. Prints JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark

import tarnlog_spark
from tarnlog_spark._java import use_java
from tests.service_process import free_port

TASKS = 4
SLOW_SECONDS = 30


def slow_at_first(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The first attempt of task 0 gives all its rows and does not come to an end: a second one is started beside it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            time.sleep(SLOW_SECONDS)

    return run


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each; its address for Spark."""
    use_java()
    home = Path(pyspark.__file__).parent
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    commands = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "127.0.0.2"):
        place = ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / host)]
        commands.append(["worker.Worker", "--host", host, *place, address])
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
    with contextlib.ExitStack() as running:
        for name, *rest in commands:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *rest]
            process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.terminate)
        yield address


def main(url: str, name: str, folder: Path) -> None:
    with cluster(folder) as address:
        print(json.dumps(story(address, url, name, folder)))


def story(address: str, url: str, name: str, folder: Path) -> dict[str, object]:
    spark = tarnlog_spark.session(
        "speculation",
        master=address,
        conf={
            "spark.executor.memory": "512m",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.speculation.quantile": "0.5",
            "spark.log.level": "OFF",
        },
    )
    told: dict[str, object] = {}
    for writer in ("arrow", "native"):
        ran = folder / writer
        ran.mkdir()
        table = tarnlog_spark.Table.for_name(spark, f"{name}_{writer}", url=url)
        rows = spark.range(0, 1000, 1, TASKS).mapInArrow(slow_at_first(str(ran)), "id long")
        start = time.monotonic()
        result = table.write(rows, writer=writer)
        spent = time.monotonic() - start
        told[writer] = {
            "waited": spent >= SLOW_SECONDS,
            "attempts": sorted(path.name for path in ran.iterdir()),
            "written": (result.num_rows, result.num_files),
            "read": sorted(row.id for row in table.read().collect()),
        }
    spark.stop()
    return told


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
