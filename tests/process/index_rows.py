"""The index of a real service, seen from its database, from its metrics, and against the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from tests.postgres_server import PostgresServer
from tests.process.load import client_of
from tests.process.log_reading import Log
from tests.service_process import ServiceProcess, running_service

PATIENCE = 60.0
QUICK = {"TARNLOG_DATABASE_RETRY_SECONDS": "0.5", "TARNLOG_DATABASE_CONNECT_SECONDS": "2"}
"""A database that comes back is noticed soon."""


async def until(true: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
    """What `true` gives once it is something; fails with `what` if it takes too long."""
    end = time.monotonic() + seconds
    while True:
        found = await true()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


class IndexRows:
    """The rows of the one table there is, in one database."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database

    @property
    def url(self) -> str:
        return self.server.url(self.database)

    async def ask(self, statement: str) -> list[Any]:
        return await self.server.execute(statement, self.database)

    async def run(self) -> tuple[int, int] | None:
        """The first and last version that are told; None when there is nothing, not even a database."""
        try:
            rows = await self.ask("SELECT first, last FROM tarnlog_tables")
        except Exception:  # whatever the server says while it is down, or the database while it is not there
            return None
        return (rows[0][0], rows[0][1]) if rows and rows[0][1] >= rows[0][0] else None

    async def reaches(self, version: int, first: int | None = None) -> None:
        """Wait until the index tells a version, and all before it from `first` on."""

        async def there() -> bool:
            found = await self.run()
            return found is not None and found[1] >= version and (first is None or found[0] <= first)

        await until(there, f"version {version} in the index")

    async def agree_with(self, log: Log) -> None:
        """Every row tells what the log tells, and the content hash is that of the rows."""
        (table,) = await self.ask("SELECT first, last, content FROM tarnlog_tables")
        rows = await self.ask("SELECT version, timestamp, commits, checksum FROM tarnlog_versions ORDER BY version")
        assert [row[0] for row in rows] == list(range(table[0], table[1] + 1))
        assert sum(row[3] for row in rows) == table[2]
        told = {commit["commitId"]: (row[0], commit["seq"], row[1]) for row in rows for commit in json.loads(row[2])}
        kept = {
            commit_id: (logged.place.version, logged.place.seq, logged.place.timestamp)
            for commit_id, logged in log.commits.items()
            if logged.place.version >= table[0]
        }
        assert told == kept
        places = await self.ask("SELECT commit_id, version, seq FROM tarnlog_commits")
        assert {row[0]: (row[1], row[2]) for row in places} == {key: place[:2] for key, place in kept.items()}


async def snapshot_hash(url: str, table: str) -> str:
    """A digest of everything a snapshot says: its version, its metadata, and each of its files."""
    client = client_of(url)
    snapshot = await client.snapshot(table, max_staleness_seconds=0)
    files = sorted([repr(add) async for add in client.files(table, max_staleness_seconds=0)])
    await client.aclose()
    return hashlib.sha256(repr((snapshot.version, snapshot.meta_data, snapshot.txns, files)).encode()).hexdigest()


async def hash_without_index(warehouse: Path | str, table: str) -> str:
    """The same from a service that knows storage alone."""
    with running_service(warehouse, {"TARNLOG_DATABASE_URL": "off"}) as alone:
        return await snapshot_hash(alone.url, table)


async def history(url: str, table: str) -> list[tuple[int, int, str | None, int]]:
    client = client_of(url)
    found = [(r.version, r.seq, r.commit_id, r.timestamp) async for r in client.history(table, order="asc")]
    await client.aclose()
    return found


def history_of(log: Log) -> list[tuple[int, int, str | None, int]]:
    return [(*logged.place[:2], commit_id, logged.place.timestamp) for commit_id, logged in log.commits.items()]


async def metric(service: ServiceProcess, name: str) -> float:
    """One value of /metrics; 0 when it is not there."""
    async with httpx.AsyncClient(timeout=10) as client:
        lines = (await client.get(f"{service.url}/metrics")).text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


async def index_state(service: ServiceProcess) -> str:
    """What readiness says of the index; it is ready whatever that is."""
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.get(f"{service.url}/v1/health/ready")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["index"])
