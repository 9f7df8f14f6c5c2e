"""The Table API from a Spark Connect client, whose process has no Java at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def test_every_verb_from_a_connect_client(
    spark: SparkSession, tarnlog_service: ServiceProcess, names: Callable[[], str]
) -> None:
    pytest.importorskip("pyspark.sql.connect.session", reason="needs pyspark[connect]")
    remote = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_table", tarnlog_service.url, names(), names(), names()],
        cwd=ROOT,
        env={**os.environ, "SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["kind"].startswith("pyspark.sql.connect")
    _check_changing(seen["changing"])
    _check_writing(seen["writing"])
    _check_conditions(seen["conditions"])


def _check_changing(seen: dict[str, Any]) -> None:
    assert seen["refused"] == ["replace-where-violated", "schema-mismatch"]
    assert seen["rows"] == [[0, 0, "r"], [1, 1, "m"], [2, 0, "v2"], [4, 0, "v4"], [5, 1, "u"], [7, 1, "n"]]
    # A DataFrame that was made before the optimize still reads its own version.
    assert seen["kept"] == [1, 5, 7]
    assert seen["changes"] > 0
    assert seen["ordered"] == [1, 3]
    assert seen["operations"] == ["OPTIMIZE", "OPTIMIZE", "WRITE", "MERGE", "UPDATE", "DELETE", "WRITE", "CREATE TABLE"]


def _check_writing(seen: dict[str, Any]) -> None:
    assert seen["made"] == [0, ["p"], 0, "made by Connect"]
    assert seen["txn"] == [3, None, True], "the second time it changes nothing"
    assert seen["dynamic"] == [2, 5], "only the partition of odd ids was replaced"
    assert seen["merged"] == [[2, None], [5, None], [6, 1.5]]
    assert seen["replaced"] == ["struct<id:string,p:int>", [["x", 7]]]
    assert seen["restored"] == [0, 1, ["x"]]
    assert seen["vacuum"] == [True, 0]
    assert seen["detail"] == [6, 1, 1]
    assert seen["travelled"] == [2, 5]
    assert seen["operations"] == ["RESTORE", *["WRITE"] * 5, "CREATE TABLE"]


def _check_conditions(seen: dict[str, Any]) -> None:
    assert seen["plain"] == [1, 2, 2, 2, 2], "only text that both read alike leaves files out"
    assert seen["quoted"] == [[1], 1, 1, 2]
    assert seen["refused"] == ["option-invalid"] * 6 + ["filter-invalid"]
    assert seen["left"] == [[2, 0, "p"]]
    assert seen["version"] == 3, "what was refused wrote nothing"
