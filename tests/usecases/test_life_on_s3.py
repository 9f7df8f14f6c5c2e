"""A table's whole life on a real S3 server: written, checkpointed, audited, cleaned up, vacuumed and damaged."""

from __future__ import annotations

import pytest

from tarnlog_server.adapters.open_store import S3Client, open_store
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.servers import S3Server
from tests.usecases.cleaning import DAY, SHORT
from tests.usecases.replicas import ORDERS, add_line, commit, create, remove_line
from tests.usecases.test_cleanup_places import LaterWorld


@pytest.mark.s3
@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_a_life_on_s3(client: S3Client, s3_server: S3Server, s3_bucket: str) -> None:
    uri = f"s3://{s3_bucket}/warehouse"
    store = open_store(
        uri,
        s3_client=client,
        s3_endpoint=s3_server.endpoint,
        s3_region=s3_server.region,
        s3_access_key=s3_server.access_key,
        s3_secret_key=s3_server.secret_key,
    )
    world = LaterWorld()
    replica = Coordinator(Roots(Root(uri, store)), world)
    view = await create(replica, properties={**SHORT, "commit.dedupe.duration": "1s"})
    place = view.location.removeprefix(f"{uri}/")
    for number in range(6):
        await store.put(f"{place}/f{number}", b"0123456789")
        await commit(replica, add_line(f"f{number}"))
        await replica.checkpoints.checkpoint(ORDERS)
    await store.put(f"{place}/orphan", b"nobody committed it")
    assert (await commit(replica, remove_line("f0"), readVersion=6)).version == 7
    await replica.checkpoints.checkpoint(ORDERS)
    found = await replica.verifying.verify(ORDERS)
    assert (found.status, [one for one in found.checks if not one.ok]) == ("success", [])

    world.ahead_ms = int(3 * DAY * 1000)
    assert (await replica.cleanup.cleanup(ORDERS)).floor == 7
    world.ahead_ms = int(4.1 * DAY * 1000)
    cleaned = await replica.cleanup.cleanup(ORDERS)
    assert (cleaned.status, cleaned.versions_deleted) == ("success", 7), cleaned

    world.ahead_ms = int(40 * DAY * 1000)
    looked = await replica.vacuum.vacuum(ORDERS)
    assert sorted(one.path for one in looked.examples) == ["f0", "orphan"]
    assert (await replica.vacuum.vacuum(ORDERS, dry_run=False)).orphaned_files_deleted == 2
    left = [info.key.removeprefix(f"{place}/") for info in await store.list(f"{place}/f")]
    assert left == [f"f{number}" for number in range(1, 6)]

    [state] = [info.key for info in await store.list(place) if info.key.endswith("_manifest.json")]
    data = await store.get(state)
    await store.put(state, data[: len(data) // 2])
    other = Coordinator(Roots(Root(uri, store)), world)
    damaged = await other.verifying.verify(ORDERS)
    assert damaged.status != "success"
    await replica.close(0)
    await other.close(0)
