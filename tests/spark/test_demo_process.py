"""The demonstration as people run it: a process of its own, to its end or to an end that somebody makes of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

STEPS = (
    ("Service", "dashboard: http://127.0.0.1:"),
    ("Spark", "on this machine"),
    ("Table", "demo.orders, partitioned by day"),
    ("Two writers and a stream at once", "17 commits, 26,000 rows, every one there once, no conflict"),
    ("Optimize, with a file broken on purpose", "1 unreadable file skipped, and still listed"),
    ("Merge", "500 orders updated, 400 added"),
    ("Time travel", "still has its 26,000 rows, none of them merged"),
    ("Plan", "files are read"),
    ("Vacuum", "0 files are past their retention"),
    ("History", "21 commits"),
)


class Demo:
    """A running demonstration; what it said so far is in `said`. Its temporary files go to `folder`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.said: list[str] = []
        self.cut_off = False
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "TARNLOG_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tarnlog_spark.demo", *arguments],
            env={**clean, "TMPDIR": str(folder), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # as a terminal does: Ctrl-C reaches everything that it started
        )

    def until(self, text: str) -> str:
        """The first line that holds `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if text in line:
                return line
        raise AssertionError(f"it never said {text!r}: {self.said}")

    def cut(self) -> None:
        """End it, and all that it started, by force."""
        self.cut_off = True
        os.killpg(self.process.pid, signal.SIGKILL)

    def ended(self) -> int:
        """Its exit code; what it still had to say is read."""
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().splitlines()
        return self.process.wait(30)


@contextlib.contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    """A demonstration that is gone after the block, with all that it started, whatever happens in between."""
    running = Demo(folder, *arguments)
    too_long = threading.Timer(240, running.cut)
    too_long.start()
    try:
        yield running
    finally:
        too_long.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait(10)


def address(line: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line
    return found[0]


@pytest.mark.spark
def test_it_runs_to_its_end_and_keeps_the_service_until_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--keep") as running:
        url = address(running.until("The service stays up until Ctrl-C"))
        assert httpx.get(f"{url}/v1/health/live").status_code == 200
        assert "demo.orders" in httpx.get(f"{url}/", follow_redirects=True).text
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.ended() == 0, running.said
        told = [line for line in running.said if line.startswith("✓")]
        assert len(told) == len(STEPS), running.said
        for line, (name, shown) in zip(told, STEPS, strict=True):
            assert re.fullmatch(rf"✓ +\d+\.\d s  {re.escape(name)}: .*{re.escape(shown)}.*", line), line
        assert running.said[-2] == "Every count was right."
        assert "docs/walkthrough.md" in running.said[-1]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/v1/health/live")
        assert [path.name for path in running.folder.glob("tarnlog-demo-*")] == []


@pytest.mark.spark
def test_told_to_end_in_the_middle_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path / "demo") as running:
        url = address(running.until("Service"))
        assert httpx.get(f"{url}/v1/health/live").status_code == 200
        running.process.terminate()
        assert running.ended() == 130, running.said  # at the end of its output: no process holds it open
        assert not running.cut_off, "a process that it had started went on"
        assert running.said[-1] == "Ended before its end; nothing is left behind."
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/v1/health/live")
        assert [path.name for path in running.folder.glob("tarnlog-demo-*")] == []
