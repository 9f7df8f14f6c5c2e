"""The object store is killed under load and comes back: commits go on, and every answer stays true."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.journal import check
from tests.process.load import TABLE, client_of, load_on
from tests.process.log_reading import objects_in_bucket, read_log
from tests.process.s3_restart import KillableS3
from tests.servers import SHARED_BUCKET
from tests.service_process import ServiceProcess

Start = Callable[..., list[ServiceProcess]]


@pytest.fixture
def killable_s3(tmp_path: Path) -> Iterator[KillableS3]:
    server = KillableS3(tmp_path / "s3")
    try:
        server.start()
        yield server
    finally:
        server.kill9()


@pytest.mark.s3
async def test_commits_go_on_after_the_store_was_killed(
    start_pair: Start, killable_s3: KillableS3, rng: random.Random, long_run: bool
) -> None:
    env = {**killable_s3.server.environment(), "TARNLOG_COMMIT_DEADLINE_SECONDS": "2"}
    services = start_pair(f"s3://{SHARED_BUCKET}/outage", env)
    # Little patience: writers learn that the outcome is unknown, and resend to either service.
    clients = [client_of(service.url, timeout=3.0, deadline=4.0, longest_pause=0.3) for service in services]
    async with load_on(clients, rng) as load:
        for _ in range(10 if long_run else 1):
            await load.acknowledgements(60)
            await asyncio.sleep(rng.uniform(0, 0.05))
            killable_s3.kill9()
            await asyncio.sleep(2)
            killable_s3.start(wait=False)
        await load.acknowledgements(60)
    assert all(service.returncode is None for service in services)
    check(load.journal, read_log(objects_in_bucket(killable_s3.server, SHARED_BUCKET, "outage/"), TABLE))
    assert load.journal.counts()["Unknown"], "nobody waited in vain: it was never away under load"
