"""The processes under load: the tarnlog service and the no-op reference, each one process on a free loopback port."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.generator import Plan
from bench.quiet import busy_share
from bench.requests import SCHEMA
from bench.samples import Sample

ROOT = Path(__file__).parent.parent
START_TIMEOUT = 30.0
_SERIES = re.compile(r"^tarnlog_storage_requests_total\{([^}]*)\} (\S+)", re.MULTILINE)
_OP = re.compile(r'op="([^"]*)"')


class ServerError(Exception):
    """A server did not start or did not answer as it should; the text holds what it said."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], env: dict[str, str], port: int, ready: str, log: Path) -> Iterator[int]:
    """The process of `command` from the time it answers `ready` until the end of the block; yields its pid."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TARNLOG_")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**clean, **env}, cwd=ROOT, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not _answers(port, ready):
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip()[-800:]
                raise ServerError(f"{Path(command[0]).name} did not become ready; it said:\n{last or '(nothing)'}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def noop(folder: Path) -> Iterator[int]:
    """The no-op FastAPI application; yields its port."""
    port = free_port()
    settings = [
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--workers",
        "1",
        "--no-access-log",
        "--log-level",
        "warning",
    ]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "bench.noop_app:app",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *settings,
    ]
    with running(command, {}, port, "/openapi.json", folder / "noop.log"):
        yield port


class Service:
    """A running tarnlog service."""

    def __init__(self, port: int, warehouse: Path, pid: int) -> None:
        self.port = port
        self.pid = pid
        self.warehouse = warehouse
        self.logs: dict[str, Path] = {}
        """The folder with the version files of every table made here."""

    def create(self, name: str) -> str:
        """Make a table as the peers' are; returns its name."""
        body = json.dumps({"name": name, "schema": SCHEMA, "partitionColumns": ["d"]}).encode()
        url = f"http://127.0.0.1:{self.port}/v1/tables"
        request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                location = json.load(answer)["location"]
        except urllib.error.HTTPError as error:
            raise ServerError(f"creating {name} was answered {error.code}: {error.read(500)!r}") from error
        self.logs[name] = self._folder(location) / "_transaction_log"
        return name

    def _folder(self, location: str) -> Path:
        if "://" in location or location.startswith("file:"):
            location = urllib.parse.unquote(urllib.parse.urlsplit(location).path)
        return self.warehouse / location  # an absolute location stays itself

    def puts(self) -> float:
        """How many objects were written so far, as the service counts them, refused attempts included."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
                return puts_in(answer.read().decode())
        except OSError as error:
            raise ServerError(f"/metrics: {error}") from error


def puts_in(metrics: str) -> float:
    """The sum of the storage request counters whose op is a kind of put; ServerError where there is none at all."""
    series = [(_OP.search(labels), float(value)) for labels, value in _SERIES.findall(metrics)]
    if not series:
        raise ServerError("/metrics has no tarnlog_storage_requests_total: PUTs per commit cannot be told")
    return sum(value for op, value in series if op and op[1].startswith("put"))


@contextmanager
def tarnlog(folder: Path, name: str, delay_ms: int = 0, env: dict[str, str] | None = None) -> Iterator[Service]:
    """A service on a warehouse on local disk (made if it is not there), every storage call `delay_ms` slower."""
    port, warehouse = free_port(), folder / name
    warehouse.mkdir(parents=True, exist_ok=True)
    env = {**(env or {}), "TARNLOG_WAREHOUSE": str(warehouse), "TARNLOG_HOST": "127.0.0.1", "TARNLOG_PORT": str(port)}
    if delay_ms:
        env["TARNLOG_TEST_STORE_DELAY_MS"] = str(delay_ms)
    command = [str(Path(sys.executable).parent / "tarnlog"), "serve"]
    with running(command, env, port, "/v1/health/ready", folder / f"{name}.log") as pid:
        yield Service(port, warehouse, pid)


def load(plan: Plan, folder: Path) -> Sample:
    """Run the load generator in its own process."""
    plan_file, result_file = folder / "plan.json", folder / "result.json"
    plan_file.write_bytes(msgspec.json.encode(plan))
    result_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.generator", str(plan_file), str(result_file)]
    busy = busy_share()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"the load generator failed: {done.stderr.strip()[-800:]}")
    sample = msgspec.json.decode(result_file.read_bytes(), type=Sample)
    return msgspec.structs.replace(sample, busy=max(busy, busy_share()))


def load_tables(service: Service, tables: list[str], writers: int, seconds: float, folder: Path) -> Sample:
    """Single-file commits to tables of the service."""
    targets = [f"/v1/tables/{name}/commits" for name in tables]
    return load(Plan(port=service.port, targets=targets, tables=tables, writers=writers, seconds=seconds), folder)


def load_path(port: int, path: str, writers: int, seconds: float, folder: Path) -> Sample:
    """The same requests to one path of a server that keeps no log."""
    return load(Plan(port=port, targets=[path], tables=[path], writers=writers, seconds=seconds), folder)
