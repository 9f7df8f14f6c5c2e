"""A Spark session for a laptop, a test or a demo: one call, no cluster, nothing to configure."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tarnlog_spark._java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""What suits one machine; a session's own `conf` goes first."""


def session(
    app_name: str = "tarnlog", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A local Spark session on whatever Java there is; the running one where there is one already.

    Workers run this very Python, and nothing listens beyond loopback. JavaNotUsable when Spark cannot start.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        use_java()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    with _ends_java_when_interrupted():
        return builder.getOrCreate()


@contextlib.contextmanager
def _ends_java_when_interrupted() -> Iterator[None]:
    """End the Java process of a start that fails or is interrupted.

    PySpark deletes the folder in which Java is to leave its port; Java then fails to write there, and a thread of its
    gateway keeps it running for ever.
    """
    from pyspark import java_gateway

    module: Any = java_gateway
    started: list[subprocess.Popen[Any]] = []

    def start(*args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        started.append(subprocess.Popen(*args, **kwargs))
        return started[-1]

    before, module.Popen = module.Popen, start
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        module.Popen = before
