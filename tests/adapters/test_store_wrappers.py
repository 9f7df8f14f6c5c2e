"""The wrappers: what they add, and that they add nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tarnlog_server.adapters.faulty_store import Faults, FaultyStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.metered_store import MeteredStore
from tarnlog_server.adapters.retrying_reads_store import RetryingReadsStore
from tarnlog_server.ports.object_store import (
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreRefused,
    StoreUnavailable,
)


class Pauses:
    """A sleep that only notes how long it was asked for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


def faulty(inner: ObjectStore, faults: Faults, seed: int = 1) -> FaultyStore:
    return FaultyStore(inner, faults, rng=random.Random(seed), sleep=Pauses(), spawn=asyncio.create_task)


def _wrappings() -> dict[str, Callable[[ObjectStore], ObjectStore]]:
    return {
        "metered": lambda inner: MeteredStore(inner, lambda *_: None),
        "retrying": lambda inner: RetryingReadsStore(inner, sleep=Pauses(), rng=random.Random(1)),
        "faulty": lambda inner: faulty(inner, Faults()),
    }


@pytest.mark.parametrize("name", _wrappings())
async def test_a_wrapper_passes_everything_on(name: str) -> None:
    inner = MemoryStore("inner")
    store = _wrappings()[name](inner)
    assert store.uri == "memory://inner"
    assert await store.put_if_absent("a/1", b"0123") is PutResult.CREATED
    assert await store.put_if_absent("a/1", b"x") is PutResult.EXISTS
    await store.put("a/2", b"two")
    assert await store.get("a/1") == b"0123"
    assert await store.get("a/1", 1, 2) == b"12"
    assert await store.get("a/1", 2) == b"23"
    assert await store.head("a/2") == await inner.head("a/2")
    assert [info.key for info in await store.list("a/")] == ["a/1", "a/2"]
    assert [info.key for info in await store.list("a/", "a/1", 5)] == ["a/2"]
    assert [info.key for info in await store.list("a/", None, 1)] == ["a/1"]
    await store.delete("a/1")
    with pytest.raises(ObjectMissing):
        await store.get("a/1")
    with pytest.raises(StoreRefused):
        await store.put("../x", b"")
    await store.close()


# --- metered


async def test_every_operation_is_reported_with_its_code_time_and_bytes() -> None:
    inner = MemoryStore()
    failing = faulty(inner, Faults())
    clock = iter(range(100))
    seen: list[tuple[str, str, float, int]] = []
    store = MeteredStore(failing, lambda *report: seen.append(report), monotonic=lambda: float(next(clock)))
    await store.put_if_absent("a", b"12345")
    await store.put_if_absent("a", b"12345")
    await store.put("b", b"1")
    await store.get("a", 1, 3)
    await store.head("a")
    await store.list("")
    await store.delete("b")
    with pytest.raises(ObjectMissing):
        await store.get("b")
    with pytest.raises(StoreRefused):
        await store.get("/")
    failing.faults = Faults(server_error=1.0)
    with pytest.raises(StoreUnavailable):
        await store.list("")
    with pytest.raises(OutcomeUnknown):
        await store.put("b", b"1")
    assert seen == [
        ("put_if_absent", "ok", 1.0, 5),
        ("put_if_absent", "exists", 1.0, 0),
        ("put", "ok", 1.0, 1),
        ("get", "ok", 1.0, 3),
        ("head", "ok", 1.0, 0),
        ("list", "ok", 1.0, 0),
        ("delete", "ok", 1.0, 0),
        ("get", "missing", 1.0, 0),
        ("get", "refused", 1.0, 0),
        ("list", "unavailable", 1.0, 0),
        ("put", "unknown", 1.0, 0),
    ]


# --- cache


# --- retrying reads


class Moody(MemoryStore):
    """Unavailable for the first `failures` reads, lists and deletes; unknown for as many writes."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.calls = 0

    def _mood(self, key: str) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise StoreUnavailable("not now", key=key)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._mood(key)
        return await super().get(key, start, length)

    async def delete(self, key: str) -> None:
        self._mood(key)
        await super().delete(key)

    async def put(self, key: str, data: bytes) -> None:
        self.calls += 1
        raise OutcomeUnknown("who knows", key=key)


async def test_reads_are_tried_again_with_growing_jittered_pauses() -> None:
    pauses = Pauses()
    inner = Moody(3)
    await inner.put_if_absent("x", b"x")
    store = RetryingReadsStore(inner, sleep=pauses, rng=random.Random(5), attempts=4, base_seconds=1.0, max_seconds=3.0)
    assert await store.get("x") == b"x"
    assert inner.calls == 4
    assert [0 <= pause <= most for pause, most in zip(pauses.seconds, [1, 2, 3], strict=True)] == [True] * 3
    assert len(set(pauses.seconds)) == 3


async def test_attempts_are_bounded() -> None:
    inner = Moody(100)
    store = RetryingReadsStore(inner, sleep=Pauses(), rng=random.Random(5), attempts=3)
    with pytest.raises(StoreUnavailable):
        await store.delete("x")
    assert inner.calls == 3


async def test_answers_and_writes_are_not_repeated() -> None:
    inner = Moody(0)
    store = RetryingReadsStore(inner, sleep=Pauses(), rng=random.Random(5))
    with pytest.raises(ObjectMissing):
        await store.get("x")
    assert inner.calls == 1
    with pytest.raises(OutcomeUnknown):
        await store.put("x", b"")
    assert inner.calls == 2


# --- faults


async def test_a_lost_reply_was_applied() -> None:
    inner = MemoryStore()
    store = faulty(inner, Faults(lost_reply=1.0))
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("a", b"mine")
    assert await inner.get("a") == b"mine"
    assert store.injected == {"lost_reply": 1}


async def test_a_conflict_and_a_server_error_are_never_applied() -> None:
    inner = MemoryStore()
    for faults in (Faults(conflict=1.0), Faults(server_error=1.0)):
        store = faulty(inner, faults)
        with pytest.raises(OutcomeUnknown):
            await store.put_if_absent("a", b"mine")
        with pytest.raises(OutcomeUnknown):
            await store.put("a", b"mine")
    await asyncio.sleep(0.01)
    assert await inner.list("") == []


async def test_a_late_write_lands_after_its_delay_and_does_not_overwrite() -> None:
    inner = MemoryStore()
    go = asyncio.Event()

    async def sleep(_: float) -> None:
        await go.wait()

    store = FaultyStore(inner, Faults(late_landing=1.0), rng=random.Random(1), sleep=sleep, spawn=asyncio.create_task)
    for key in ("free", "taken"):
        with pytest.raises(OutcomeUnknown):
            await store.put_if_absent(key, b"late")
    await inner.put_if_absent("taken", b"first")
    assert [info.key for info in await inner.list("")] == ["taken"]
    go.set()
    await asyncio.sleep(0.01)
    assert await inner.get("free") == b"late"
    assert await inner.get("taken") == b"first"


async def test_reads_fail_only_as_unavailable() -> None:
    inner = MemoryStore()
    await inner.put("a", b"x")
    store = faulty(inner, Faults(short_read=1.0))
    with pytest.raises(StoreUnavailable):
        await store.get("a")
    assert (await store.head("a")).size == 1
    store.faults = Faults(server_error=1.0)
    for attempt in (store.get("a"), store.head("a"), store.list(""), store.delete("a")):
        with pytest.raises(StoreUnavailable):
            await attempt
    assert await inner.get("a") == b"x"


async def test_slow_operations_wait_and_then_work() -> None:
    pauses = Pauses()
    store = FaultyStore(
        MemoryStore(), Faults(slow=1.0, slow_seconds=9), rng=random.Random(1), sleep=pauses, spawn=asyncio.create_task
    )
    assert await store.put_if_absent("a", b"") is PutResult.CREATED
    assert len(pauses.seconds) == 1
    assert 0 < pauses.seconds[0] <= 9


async def test_the_same_seed_fails_the_same_way() -> None:
    async def story(seed: int) -> list[str]:
        storm = Faults(lost_reply=0.2, late_landing=0.2, conflict=0.2, server_error=0.1, slow=0.1, short_read=0.2)
        store = faulty(MemoryStore(now_ms=lambda: 0), storm, seed)
        told: list[str] = []
        for number in range(60):
            try:
                told.append(str(await store.put_if_absent(f"{number % 20}", b"")))
                told.append(str(await store.get(f"{number % 20}")))
            except (OutcomeUnknown, StoreUnavailable, ObjectMissing) as error:
                told.append(str(error))
        return told

    assert await story(4) == await story(4)
    assert await story(4) != await story(5)


async def test_exists_is_never_invented() -> None:
    seed = random.randrange(2**32)
    inner = MemoryStore()
    storm = Faults(lost_reply=0.3, late_landing=0.2, conflict=0.2, server_error=0.1)
    store = faulty(inner, storm, seed)
    for number in range(300):
        key = f"{number % 60}"
        try:
            if await store.put_if_absent(key, b"x") is PutResult.EXISTS:
                assert await inner.get(key) == b"x", f"seed {seed}"
        except OutcomeUnknown:
            continue
    assert store.injected.keys() == {"lost_reply", "late_landing", "conflict", "server_error"}, f"seed {seed}"


async def test_the_control_of_the_simulation_loses_objects() -> None:
    inner = MemoryStore()
    store = faulty(inner, Faults(broken_conditional_create=True))
    assert await store.put_if_absent("a", b"first") is PutResult.CREATED
    assert await store.put_if_absent("a", b"second") is PutResult.CREATED
    assert await inner.get("a") == b"second"
