"""Two services on one store, which never talk to each other: one log, and both see all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tarnlog import AsyncClient, Committed
from tarnlog.protocol.actions import Action
from tests.process.journal import check
from tests.process.load import TABLE, client_of, file, load_on
from tests.process.log_reading import Objects, objects_in_bucket, objects_in_folder, read_log
from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess

Start = Callable[..., list[ServiceProcess]]


class Storage(msgspec.Struct, frozen=True):
    """A store that several services share, and how to read it without them."""

    uri: str
    env: dict[str, str]
    objects: Callable[[], Objects]


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "disk":
        folder = tmp_path / "warehouse"
        yield Storage(str(folder), {}, lambda: objects_in_folder(folder))
        return
    server: S3Server = request.getfixturevalue("s3_server")
    prefix = f"two-{tmp_path.parent.name}-{tmp_path.name}/"
    yield Storage(
        f"s3://{SHARED_BUCKET}/{prefix}",
        server.environment(),
        lambda: objects_in_bucket(server, SHARED_BUCKET, prefix),
    )


async def test_two_services_share_one_log(
    start_pair: Start, storage: Storage, rng: random.Random, long_run: bool
) -> None:
    services = start_pair(storage.uri, storage.env)
    clients = [client_of(service.url) for service in services]
    async with load_on(clients, rng) as load:
        await load.acknowledgements(5000 if long_run else 600, seconds=120)
    log = read_log(storage.objects(), TABLE)
    check(load.journal, log)
    counts = load.journal.counts()
    assert counts["Conflicted"], "the load is too tame to show that conflicts are kept out"
    assert set(counts) == {"Committed", "Conflicted", "Rejected"}, "both services were well all the time"
    assert any(len(sent.answers) > 1 for sent in load.journal.sent if sent.committed), "nothing was ever resent"
    for service in services:
        async with AsyncClient(service.url) as client:
            seen = await client.snapshot(TABLE, max_staleness_seconds=0)
            assert (seen.version, seen.num_files) == (log.head, len(log.live))
            assert {add.path async for add in client.files(TABLE, max_staleness_seconds=0)} == log.live


async def test_a_commit_sent_to_both_at_once_happens_once(
    start_pair: Start, storage: Storage, rng: random.Random
) -> None:
    services = start_pair(storage.uri, storage.env)
    clients = [client_of(service.url) for service in services]
    async with load_on(clients, rng, writers=0) as load:
        for number in range(50):
            actions: list[Action] = [file(f"{number}.parquet")]
            sent = load.new(actions)
            first, second = await asyncio.gather(*(load.send(sent, actions, client) for client in clients))
            assert isinstance(first, Committed)
            assert isinstance(second, Committed)
            assert first.replayed != second.replayed, "one of them wrote it, the other found it"
    log = read_log(storage.objects(), TABLE)
    check(load.journal, log)
    assert len(log.live) == 50
