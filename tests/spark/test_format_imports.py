"""Spark starts a process for each step of the format: each imports what its step needs."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "step, absent",
    [
        ("pyspark_tarnlog", ("httpx", "pyarrow")),  # the process that looks for formats
        ("tarnlog_spark._format_writers", ("httpx",)),  # a task that writes
        ("tarnlog_spark._batch_source", ("httpx",)),  # a task that reads
        ("tarnlog_spark._stream_source", ("httpx",)),
    ],
)
def test_a_step_does_not_import_what_it_does_not_use(step: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {step}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
