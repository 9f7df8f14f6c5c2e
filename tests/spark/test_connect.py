"""The format from a Spark Connect client, and in Declarative Pipelines, which need one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def test_read_write_stream_functions_and_a_pipeline(
    spark: SparkSession, client: Client, tarnlog_service: ServiceProcess, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.sql.connect.session", reason="needs pyspark[connect]")
    pytest.importorskip("yaml", reason="needs pyspark[pipelines]")
    remote = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_story", tarnlog_service.url, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["kind"].startswith("pyspark.sql.connect")
    assert seen["filtered"] == [2]
    assert seen["history"] == ["CREATE TABLE", "WRITE"]
    assert seen["refused"]
    assert seen["copied"] == 2

    # The pipeline's sink is a table, and its source was one: each row once.
    out = spark.read.format("tarnlog").option("url", tarnlog_service.url).load("connect.out")
    assert sorted(row.id for row in out.collect()) == [1, 2]
    assert [record.operation for record in client.history("connect.out")] == ["STREAMING UPDATE", "CREATE TABLE"]
    assert spark.table("counted").collect()[0][0] == 2
