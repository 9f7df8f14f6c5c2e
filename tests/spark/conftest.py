"""One Spark and one service for each worker that runs tests of Spark: both take seconds to start.

`tests/scheduling.py` hands these tests to two workers only. Each test makes tables of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess, free_port, start_service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_service"]

_names = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs a running Spark, which a worker starts once")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark of a worker. Times are UTC, so that both sides of a comparison print alike."""
    from tarnlog_spark import session

    home = tmp_path_factory.mktemp("spark")
    made = session(
        "tarnlog-tests",
        master="local[2,2]",  # a task may fail once
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.log.level": "ERROR",
            "spark.driver.memory": "1g",
            # The same Spark answers Connect clients too: a server of its own would take as long to start again.
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(free_port()),
            # Many small jobs: what compilers gain in long ones is lost here.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
            "spark.sql.codegen.wholeStage": "false",
        },
    )
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the service's tables."""
    return tmp_path_factory.mktemp("spark-warehouse") / "warehouse"


@pytest.fixture(scope="session")
def tarnlog_service(warehouse: Path) -> Iterator[ServiceProcess]:
    """The service of a worker, in a process of its own."""
    process = ServiceProcess(warehouse)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture(scope="session")
def client(tarnlog_service: ServiceProcess) -> Iterator[Client]:
    """A client of that service."""
    with Client(tarnlog_service.url) as made:
        yield made


@pytest.fixture
def name() -> str:
    """The name of a table that no other test uses."""
    return f"t.t{next(_names)}"


@pytest.fixture
def names() -> Callable[[], str]:
    """Names of tables that no other test uses, one a call."""
    return lambda: f"t.t{next(_names)}"
