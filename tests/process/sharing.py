"""Several replicas on one store and one database: starting them, and looking at how they share the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.postgres_process import PostgresProcess
from tests.process.log_reading import Objects, objects_in_bucket, objects_in_folder
from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess, free_port

LEASE_SECONDS = 1.0
PATIENCE = 60.0


class Storage(msgspec.Struct, frozen=True):
    """A store that several services share, and how to read it without them."""

    uri: str
    env: dict[str, str]
    objects: Callable[[], Objects]


def on_disk(folder: Path) -> Storage:
    return Storage(str(folder), {}, lambda: objects_in_folder(folder))


def on_s3(server: S3Server, prefix: str) -> Storage:
    uri = f"s3://{SHARED_BUCKET}/{prefix}"
    return Storage(uri, server.environment(), lambda: objects_in_bucket(server, SHARED_BUCKET, prefix))


class Group:
    """Replicas that share tables by leases."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.storage = storage
        self._folder = folder
        self.all: list[ServiceProcess] = []

    def start(self, database: str, count: int = 1, **env: str) -> list[ServiceProcess]:
        """Start some more, all at once; each is told where the database is for it."""
        started = []
        for _ in range(count):
            port = free_port()
            settings = {
                "TARNLOG_DATABASE_URL": database,
                "TARNLOG_ADVERTISED_URL": f"http://127.0.0.1:{port}",
                "TARNLOG_LEASE_SECONDS": str(LEASE_SECONDS),
                "TARNLOG_FORWARD_TIMEOUT_SECONDS": "1",
                **self.storage.env,
                **env,
            }
            log = self._folder / f"replica-{len(self.all)}.log"
            replica = ServiceProcess(self.storage.uri, env=settings, port=port, log=log)
            self.all.append(replica)
            started.append(replica.start(wait=False))
        for replica in started:
            replica.wait_ready(60)
        return started

    def close(self) -> None:
        for replica in self.all:
            replica.close()


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    """Replicas on a disk and on a real S3 server, that end with the test."""
    if request.param == "disk":
        storage = on_disk(tmp_path / "warehouse")
    else:
        storage = on_s3(request.getfixturevalue("s3_server"), f"group-{tmp_path.parent.name}-{tmp_path.name}/")
    made = Group(storage, tmp_path)
    yield made
    made.close()


async def new_database(server: PostgresProcess) -> str:
    """Where a new, empty database is."""
    return server.url(await server.new_database())


def metric(replica: ServiceProcess, name: str, **labels: str) -> float:
    """What a counter or gauge of a replica says now; 0 when it was never counted."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    start = f"{name}{{{wanted}}} " if wanted else f"{name} "
    lines = httpx.get(f"{replica.url}/metrics", timeout=10).text.splitlines()
    return next((float(line[len(start) :]) for line in lines if line.startswith(start)), 0.0)


def role(replica: ServiceProcess) -> str:
    """What a replica says it is."""
    answer = httpx.get(f"{replica.url}/v1/health/ready", timeout=10)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["role"])


async def until(true: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str) -> None:
    """Return once it is true; fail when it does not become so."""
    end = time.monotonic() + PATIENCE
    while True:
        found = true()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.05)


def owners(replicas: list[ServiceProcess]) -> list[ServiceProcess]:
    """The replicas that hold the lease of the only table."""
    return [replica for replica in replicas if metric(replica, "tarnlog_leases_held")]
