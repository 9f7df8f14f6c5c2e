"""The probe passes good stores and names what is wrong with bad ones."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tarnlog_server.adapters.faulty_store import Faults, FaultyStore
from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.open_store import S3Client, open_store
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectStore,
    PutResult,
    StoreRefused,
    StoreUnavailable,
)
from tarnlog_server.usecases.probe import ProbeReport, probe
from tests.servers import SHARED_BUCKET, S3Server


async def probed(store: ObjectStore) -> ProbeReport:
    return await probe(store, SystemWorld())


async def test_good_stores_pass_and_are_left_clean(tmp_path: Path) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path)):
        await store.put("kept", b"")
        report = await probed(store)
        assert report.problems == ()
        assert report.ok
        assert abs(report.clock_offset_ms) < 1000
        assert [info.key for info in await store.list("")] == ["kept"]
    assert os.listdir(tmp_path) == ["kept"]


@pytest.mark.s3
@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_a_real_s3_server_passes(client: S3Client, s3_server: S3Server) -> None:
    store = open_store(
        f"s3://{SHARED_BUCKET}/probed-{client}",
        s3_client=client,
        s3_endpoint=s3_server.endpoint,
        s3_region=s3_server.region,
        s3_access_key=s3_server.access_key,
        s3_secret_key=s3_server.secret_key,
    )
    report = await probed(store)
    assert report.problems == ()
    assert abs(report.clock_offset_ms) < 5000
    assert await store.list("") == []
    await store.close()


@pytest.mark.s3
async def test_a_directory_order_listing_taken_as_flat_is_found(s3_server: S3Server) -> None:
    store = open_store(
        f"s3://{SHARED_BUCKET}/probed-flat",
        s3_listing="flat",
        s3_client="boto3",
        s3_endpoint=s3_server.endpoint,
        s3_region=s3_server.region,
        s3_access_key=s3_server.access_key,
        s3_secret_key=s3_server.secret_key,
    )
    report = await probed(store)
    assert not report.ok
    assert "walk" in report.problems[0]
    await store.close()


async def test_an_ignored_condition_is_found_twice() -> None:
    broken = FaultyStore(
        MemoryStore(),
        Faults(broken_conditional_create=True),
        rng=random.Random(1),
        sleep=asyncio.sleep,
        spawn=asyncio.create_task,
    )
    report = await probed(broken)
    assert not report.ok
    assert any("second conditional create" in problem and "lost" in problem for problem in report.problems)
    assert any("16 conditional creates at once 16 won" in problem for problem in report.problems)


class Liar(MemoryStore):
    """A memory store with one lie."""

    def __init__(self, lie: str) -> None:
        super().__init__()
        self.lie = lie

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if self.lie == "always exists":
            await super().put_if_absent(key, data)
            return PutResult.EXISTS
        if self.lie == "exists but overwrites" or (self.lie == "races overwrite" and "race" in key):
            result = await super().put_if_absent(key, data)
            await self.put(key, data)
            return result
        if self.lie == "two winners" and "race" in key:
            await super().put_if_absent(key, data)
            return PutResult.CREATED if data in (b"racer 0", b"racer 7") else PutResult.EXISTS
        return await super().put_if_absent(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if self.lie == "ignores ranges":
            return await super().get(key)
        return await super().get(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return ObjectInfo(key, info.size + 1, info.modified_ms) if self.lie == "wrong size" else info

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        found = await super().list(prefix, None if self.lie == "ignores start" else start_after, limit)
        if self.lie == "lists late":
            return found[:-1]
        return sorted(found, key=lambda info: info.key.replace("/", "\0")) if self.lie == "folder order" else found

    async def delete(self, key: str) -> None:
        if self.lie != "keeps deleted":
            await super().delete(key)


@pytest.mark.parametrize(
    "lie, sentence",
    [
        ("always exists", "no commit could ever be made"),
        ("exists but overwrites", "second conditional create"),
        ("races overwrite", "bytes of a loser"),
        ("two winners", "2 won instead of one"),
        ("ignores ranges", "byte range"),
        ("wrong size", "size of an object"),
        ("lists late", "new commits would be missed"),
        ("folder order", "order of their names"),
        ("ignores start", "begin right after"),
        ("keeps deleted", "deleted object is still there"),
    ],
)
async def test_a_lying_store_is_caught_with_a_sentence(lie: str, sentence: str) -> None:
    report = await probed(Liar(lie))
    assert not report.ok
    assert any(sentence in problem for problem in report.problems), report.problems


async def test_the_clock_of_the_store_is_compared_with_ours() -> None:
    world = SystemWorld()
    for skew in (90_000, -90_000):
        report = await probe(MemoryStore(now_ms=lambda skew=skew: world.now_ms() + skew), world)  # type: ignore[misc]
        assert report.ok, "whether an offset matters is for the caller to say"
        assert abs(report.clock_offset_ms - skew) < 2000


async def test_a_store_that_refuses_or_is_away_is_a_problem_not_an_exception() -> None:
    class Away(MemoryStore):
        async def put_if_absent(self, key: str, data: bytes) -> PutResult:
            raise self.error

        error: Exception = StoreRefused("no such bucket", key="x")

    store = Away()
    report = await probed(store)
    assert report.problems == ("The store refuses what the service needs: no such bucket",)
    store.error = StoreUnavailable("timeout", key="x")
    assert "try again later" in (await probed(store)).problems[0]


class HastyWorld(SystemWorld):
    """Does not wait, and draws from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seeded = random.Random(seed)

    @property
    def rng(self) -> random.Random:
        return self._seeded

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_lost_replies_are_not_mistaken_for_defects() -> None:
    seed = random.randrange(2**32)
    passed = 0
    for number in range(50):
        storm = Faults(lost_reply=0.1, conflict=0.1)
        store = FaultyStore(
            MemoryStore(), storm, rng=random.Random(seed + number), sleep=asyncio.sleep, spawn=asyncio.create_task
        )
        report = await probe(store, HastyWorld(seed + number))
        passed += report.ok
        honest = all(problem.startswith("The store did not answer") for problem in report.problems)
        assert honest, f"seed {seed + number}: {report.problems}"
    assert passed >= 45, f"seed {seed}"
