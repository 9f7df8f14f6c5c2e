"""Several replicas on one store and one database: starting them, and looking at how they share the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from tests.postgres_server import PostgresServer
from tests.process.cut_off import Cable
from tests.process.log_reading import Objects, objects_in_bucket, objects_in_folder
from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess, free_port

LEASE_SECONDS = 2.0
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
    """Replicas that share tables by leases, each with a way to the database of its own that can be cut."""

    def __init__(self, storage: Storage, server: PostgresServer, folder: Path) -> None:
        self.storage = storage
        self._server = server
        self._folder = folder
        self.all: list[ServiceProcess] = []
        self._cables: dict[str, Cable] = {}

    async def start(self, count: int, **env: str) -> list[ServiceProcess]:
        """Start so many at once, on a new database."""
        database = await self._server.new_database()
        for _ in range(count):
            port, cable = free_port(), await Cable(self._server.port).open()
            settings = {
                "TARNLOG_DATABASE_URL": f"postgresql://postgres@127.0.0.1:{cable.port}/{database}",
                "TARNLOG_ADVERTISED_URL": f"http://127.0.0.1:{port}",
                "TARNLOG_LEASE_SECONDS": str(LEASE_SECONDS),
                "TARNLOG_FORWARD_TIMEOUT_SECONDS": "2",
                **self.storage.env,
                **env,
            }
            log = self._folder / f"replica-{len(self.all)}.log"
            replica = ServiceProcess(self.storage.uri, env=settings, port=port, log=log)
            self.all.append(replica.start(wait=False))
            self._cables[replica.url] = cable
        for replica in self.all:
            await asyncio.to_thread(replica.wait_ready, 60)
        return self.all

    def cable(self, replica: ServiceProcess) -> Cable:
        """A replica's way to the database."""
        return self._cables[replica.url]

    async def close(self) -> None:
        """End all of them. Their ways to the database are kept open meanwhile: each says goodbye on it."""
        await asyncio.gather(*(asyncio.to_thread(replica.close) for replica in self.all))
        for cable in self._cables.values():
            await cable.close()


@pytest_asyncio.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
async def group(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Group]:
    """Replicas on a disk and on a real S3 server, that end with the test."""
    if request.param == "disk":
        storage = on_disk(tmp_path / "warehouse")
    else:
        storage = on_s3(request.getfixturevalue("s3_server"), f"group-{tmp_path.parent.name}-{tmp_path.name}/")
    made = Group(storage, request.getfixturevalue("postgres_server"), tmp_path)
    yield made
    await made.close()


async def metric(replica: ServiceProcess, name: str, **labels: str) -> float:
    """What a counter or gauge of a replica says now; 0 when it was never counted."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    start = f"{name}{{{wanted}}} " if wanted else f"{name} "
    lines = (await _get(replica, "/metrics")).text.splitlines()
    return next((float(line[len(start) :]) for line in lines if line.startswith(start)), 0.0)


async def role(replica: ServiceProcess) -> str:
    """What a replica says it is; it must be ready."""
    answer = await _get(replica, "/v1/health/ready")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["role"])


async def owner_among(replicas: list[ServiceProcess]) -> ServiceProcess:
    """The replica that holds the lease of the only table, once there is one."""
    found: list[ServiceProcess] = []

    async def one_holds_it() -> bool:
        found[:] = [replica for replica in replicas if await metric(replica, "tarnlog_leases_held")]
        return len(found) == 1

    await until(one_holds_it, "one of them holds the table")
    return found[0]


async def until(true: Callable[[], Awaitable[Any]], what: str) -> None:
    """Return once it is true; fail when it does not become so."""
    end = time.monotonic() + PATIENCE
    while not await true():
        assert time.monotonic() < end, f"never: {what}"
        await asyncio.sleep(0.05)


async def _get(replica: ServiceProcess, path: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10) as client:
        return await client.get(replica.url + path)
