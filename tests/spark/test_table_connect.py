"""The Table API from a Spark Connect client, whose process has no Java at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def test_every_verb_from_a_connect_client(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> None:
    pytest.importorskip("pyspark.sql.connect.session", reason="needs pyspark[connect]")
    remote = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_table", tarnlog_service.url, name],
        cwd=ROOT,
        env={**os.environ, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["kind"].startswith("pyspark.sql.connect")
    assert seen["refused"] == ["replace-where-violated", "schema-mismatch"]
    assert seen["rows"] == [[0, 0, "r"], [1, 1, "m"], [2, 0, "v2"], [4, 0, "v4"], [5, 1, "u"], [7, 1, "n"]]
    # A DataFrame that was made before the optimize still reads its own version.
    assert seen["kept"] == [1, 5, 7]
    assert seen["changes"] > 0
    assert seen["ordered"] == [1, 3]
    assert seen["operations"] == ["OPTIMIZE", "OPTIMIZE", "WRITE", "MERGE", "UPDATE", "DELETE", "WRITE", "CREATE TABLE"]
