"""Scans and writes of S3 by Spark itself, with the jar that users take for that, on a real S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess

ROOT = Path(__file__).parents[2]
NOT_TO_BE_HAD = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "download failed")
"""What Spark says where Maven Central does not answer."""


@pytest.mark.s3
def test_spark_reads_and_writes_files_itself(
    s3_server: S3Server, start_service: Callable[..., ServiceProcess], tmp_path: Path, long_run: bool
) -> None:
    if not long_run:
        pytest.skip("needs half a gigabyte of jars from Maven: TARNLOG_TEST_LONG=1 runs it")
    service = start_service(f"s3://{SHARED_BUCKET}/{tmp_path.name}", s3_server.environment())
    env = {**os.environ, **s3_server.environment(), "TARNLOG_URL": service.url}
    command = [sys.executable, "-m", "tests.spark.s3a_story", "t.s3a"]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0 and any(words in done.stderr for words in NOT_TO_BE_HAD):
        pytest.skip("the jar cannot be had: Maven Central does not answer")
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["native"] == [1, 5, 7, 9]
    assert found["files"]
    assert all(file.startswith(f"s3a://{SHARED_BUCKET}/") for file in found["files"])

    # Tasks write in place there unless told otherwise: Spark's committer copies what it wrote.
    assert not any(path.startswith("write-") for path in found["by_arrow"])
    assert found["staged"]
    assert found["updated"]
    assert all(path.startswith("write-") for path in (*found["staged"], *found["updated"]))
    assert found["rows"] == 10
    assert found["after"] == found["arrow"] == [1, 5, 7, 9, *range(1011, 1020, 2)]

    assert (found["indexed"], found["grown"]) == (["TarnlogPlannedFiles"] * 2, 10)

    # Of the attempt that failed, and of the job's own marks, nothing is left.
    listed = s3_server.client().list_objects_v2(Bucket=SHARED_BUCKET, Prefix=f"{tmp_path.name}/")["Contents"]
    lying = {one["Key"] for one in listed if "/write-" in one["Key"] and not one["Key"].endswith("/")}
    named = {unquote(path) for path in (*found["staged"], *found["updated"])}
    assert {key[key.index("write-") :] for key in lying} == named
