"""The service with nothing configured: an empty folder, and it works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.process.journal import Journal, check
from tests.process.load import SCHEMA, TABLE
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter
from tests.service_process import free_port

DEFAULT_PORT = 8420


async def test_it_runs_in_an_empty_folder(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TARNLOG_", "AWS_"))}
    port = DEFAULT_PORT
    if _in_use(port):  # somebody's own service: the only thing that has to be said then
        port = free_port()
        env["TARNLOG_PORT"] = str(port)
    empty = tmp_path / "empty"
    empty.mkdir()
    journal = Journal()
    log = tmp_path / "service.log"
    with _service(empty, env, log) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/v1/health/ready", process)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
                assert (await RawWriter(http, journal).append("a")).json()["version"] == 1
        finally:
            process.terminate()
    assert process.returncode == 0
    assert [path.name for path in sorted(empty.iterdir())] == ["data"]
    assert f"http://127.0.0.1:{port}" in log.read_text()
    check(journal, read_log(objects_in_folder(empty / "data"), TABLE))
    assert journal.acknowledged == 1


def _service(folder: Path, env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", "tarnlog_server"], cwd=folder, env=env, stdout=out)


def _in_use(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=2)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:
        return True
    return True


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "it ended by itself"
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail("it did not become ready")
