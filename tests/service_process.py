"""A real service in a process of its own, on a free port: to be killed, stopped, frozen and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

START_SECONDS = 30.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServiceProcess:
    """The service on one warehouse and one port. It may be started again after it ended, with the same of both."""

    def __init__(
        self,
        warehouse: Path | str,
        *,
        env: dict[str, str] | None = None,
        port: int | None = None,
        log: Path | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.warehouse = str(warehouse)
        self.env = dict(env or {})
        self._log = log or Path(f"{self.warehouse.replace('://', '-').rstrip('/')}.{self.port}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._running().poll()

    @property
    def logs(self) -> str:
        """Everything it wrote, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self, *, wait: bool = True) -> ServiceProcess:
        """Start it, and wait until it is ready."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TARNLOG_")}
        env = {
            **inherited,
            "TARNLOG_WAREHOUSE": self.warehouse,
            "TARNLOG_PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
            **self.env,
        }
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tarnlog_server"], env=env, stdout=out, stderr=out, cwd=self._log.parent
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds: float = START_SECONDS, path: str = "/v1/health/ready") -> None:
        """Return once it answers 200; fail with its logs if it ends or takes too long."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.url + path, timeout=2).status_code == 200:
                    return
            if self._running().poll() is not None:
                raise AssertionError(f"the service ended with {self.returncode}:\n{self.logs[-4000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the service was not ready after {seconds} s:\n{self.logs[-4000:]}")
            time.sleep(0.05)

    def kill9(self) -> None:
        """End it without a warning."""
        self._signal(signal.SIGKILL)
        self._running().wait(10)

    def stop(self, seconds: float = 20.0) -> int:
        """Ask it to end (SIGTERM); its exit code."""
        self._signal(signal.SIGTERM)
        return self._running().wait(seconds)

    def sigstop(self) -> None:
        """Freeze it."""
        self._signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it whatever state it is in."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def _signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process


@contextlib.contextmanager
def running_service(warehouse: Path | str, env: dict[str, str] | None = None) -> Iterator[ServiceProcess]:
    """A started, ready service for the block."""
    service = ServiceProcess(warehouse, env=env)
    try:
        yield service.start()
    finally:
        service.close()


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Starts services that end with the test: start_service(warehouse=None, env=None, wait=True)."""
    started: list[ServiceProcess] = []

    def start(
        warehouse: Path | str | None = None, env: dict[str, str] | None = None, *, wait: bool = True
    ) -> ServiceProcess:
        log = tmp_path / f"service-{len(started)}.log"
        service = ServiceProcess(warehouse or tmp_path / "warehouse", env=env, log=log)
        started.append(service)
        return service.start(wait=wait)

    yield start
    for service in started:
        service.close()


@pytest.fixture
def service(start_service: Callable[..., ServiceProcess]) -> ServiceProcess:
    """One running service with an empty warehouse."""
    return start_service()
