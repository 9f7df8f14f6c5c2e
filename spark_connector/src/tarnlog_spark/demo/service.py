"""The service of the demonstration: a process of its own on a folder, started as an operator would."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tarnlog import Client, TarnlogError

START_SECONDS = 60.0


class ServiceNotStarted(Exception):
    """The service did not become ready; the message holds what it said."""


@contextlib.contextmanager
def running_service(folder: Path) -> Iterator[str]:
    """A service with its tables and its index below `folder`, for the time of the block; yields its address."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TARNLOG_")}
    env = {**clean, "TARNLOG_WAREHOUSE": str(folder / "warehouse"), "TARNLOG_PORT": str(port)}
    log = folder / "service.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "tarnlog_server"], env=env, stdout=out, stderr=out)
    try:
        _wait_until_ready(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    with Client(url, timeout=2.0, deadline=0.2) as client:
        while True:
            with contextlib.suppress(TarnlogError):
                if client.health().ready:
                    return
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text(errors="replace").strip()[-1500:]
                raise ServiceNotStarted(f"The service did not start. It said:\n{said or '(nothing)'}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
