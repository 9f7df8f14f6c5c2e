"""A table with a dumb model beside it, and stores that stop or dawdle: for tests of cleanups."""

from __future__ import annotations

import asyncio
import builtins
import random
from typing import Any

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore, PutResult, StoreUnavailable
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, remove_line

HOUR = 3600.0
DAY = 24 * HOUR
SHORT = {
    "logRetention.duration": "2d",
    "state.retention.hours": "1",
    "state.retention.versions": "1",
    "state.entriesPerManifest": "3",
    "state.compaction.maxManifests": "3",
}
"""Properties under which a few days are enough to see everything go."""


class Stopped(BaseException):
    """The process ended here. No handler of the service may take it for a fault of storage."""


class HookedStore:
    """A store whose every operation first asks `before`, which may stop it, fail it or let others run."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.calls = 0

    async def before(self, op: str, key: str) -> None:
        self.calls += 1

    @property
    def uri(self) -> str:
        return self.inner.uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        await self.before("put_if_absent", key)
        return await self.inner.put_if_absent(key, data)

    async def put(self, key: str, data: bytes) -> None:
        await self.before("put", key)
        await self.inner.put(key, data)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self.before("get", key)
        return await self.inner.get(key, start, length)

    async def head(self, key: str) -> ObjectInfo:
        await self.before("head", key)
        return await self.inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        await self.before("list", prefix)
        return await self.inner.list(prefix, start_after, limit)

    async def delete(self, key: str) -> None:
        await self.before("delete", key)
        await self.inner.delete(key)

    async def close(self) -> None:
        """Whoever made the inner store closes it."""


class StoppingStore(HookedStore):
    """Stops for good before call number `at`: what came before it was done, what follows is not."""

    def __init__(self, inner: ObjectStore, at: int) -> None:
        super().__init__(inner)
        self._at = at
        self.stopped = asyncio.Event()

    async def before(self, op: str, key: str) -> None:
        if self.calls >= self._at:
            self.stopped.set()
            raise Stopped
        await super().before(op, key)


class DawdlingStore(HookedStore):
    """Lets others run for a while before each call, by a seed: what two replicas do mixes in many ways."""

    def __init__(self, inner: ObjectStore, rng: random.Random) -> None:
        super().__init__(inner)
        self._rng = rng

    async def before(self, op: str, key: str) -> None:
        for _ in range(self._rng.choice((0, 0, 1, 3, 20))):
            await asyncio.sleep(0)
        await super().before(op, key)


class FailingStore(HookedStore):
    """Refuses to delete keys that contain `part`."""

    def __init__(self, inner: ObjectStore, part: str) -> None:
        super().__init__(inner)
        self.part = part

    async def before(self, op: str, key: str) -> None:
        await super().before(op, key)
        if op == "delete" and self.part in key:
            raise StoreUnavailable(f"injected: {key} cannot be deleted", key=key)


def replica_on(warehouse: Warehouse, store: ObjectStore) -> Coordinator:
    """A replica that reaches the warehouse through a store of its own."""
    made = Coordinator(Roots(Root("memory://w", store)), warehouse.world)
    warehouse.replicas.append(made)
    return made


class Modelled:
    """The table `sales.orders`, and what it must look like at each version ever committed."""

    def __init__(self, warehouse: Warehouse, rng: random.Random) -> None:
        self.warehouse = warehouse
        self.rng = rng
        self.log = ""
        self.files: dict[str, int] = {}
        self.gone: list[str] = []
        self.txns: dict[str, int] = {}
        self.past: list[tuple[dict[str, int], dict[str, int]]] = []

    async def create(self, replica: Coordinator, **properties: str) -> None:
        view = await create(replica, properties={**SHORT, **properties})
        self.log = self.warehouse.log(view)
        self.past = [({}, {})]

    @property
    def head(self) -> int:
        return len(self.past) - 1

    async def commit(self, replica: Coordinator) -> None:
        """Add, remove, add again, or go on with a stream: by chance."""
        kind = self.rng.random()
        if kind < 0.25 and self.files:
            path = self.rng.choice(sorted(self.files))
            actions = [remove_line(path)]
            del self.files[path]
            self.gone.append(path)
        elif kind < 0.4 and self.gone:
            path = self.gone.pop(self.rng.randrange(len(self.gone)))
            self.files[path] = self.rng.randrange(100)
            actions = [add_line(path, size=self.files[path])]
        elif kind < 0.5:
            app = self.rng.choice("ab")
            self.txns[app] = self.txns.get(app, 0) + 1
            actions = [{"txn": {"appId": app, "version": self.txns[app]}}]
        else:
            path = f"f{len(self.past)}"
            self.files[path] = self.rng.randrange(100)
            actions = [add_line(path, size=self.files[path])]
        done = await commit(replica, *actions, readVersion=self.head)
        self.past.append((dict(self.files), dict(self.txns)))
        assert done.version == self.head

    async def faults(self, replica: Coordinator) -> list[str]:
        """What is wrong with what a replica shows: every version from the floor on, and nothing below it."""
        head = (await replica.snapshots.snapshot(ORDERS, None, None, 0)).version
        floor = self.floor()
        found = [] if head == self.head else [f"the head is {head} instead of {self.head}"]
        for version in range(self.head + 1):
            try:
                seen = await _seen(replica, version)
                if version < floor:
                    found.append(f"version {version} is below the floor {floor}, and is shown")
                elif seen != self.past[version]:
                    found.append(f"version {version} is {seen} instead of {self.past[version]}")
            except ProblemError as problem:
                told = (problem.slug, problem.fields.get("oldestVersion"))
                if version >= floor or told != ("version-expired", floor):
                    found.append(f"version {version} (floor {floor}): {problem.slug} {problem}")
        return found

    def floor(self) -> int:
        """By the names of objects alone."""
        prefix = f"{self.log}_floor/"
        return max((int(key.removeprefix(prefix)) for key in self.warehouse.store.keys(prefix)), default=0)

    def version_files(self) -> list[int]:
        names = (key.removeprefix(self.log) for key in self.warehouse.store.keys(self.log))
        return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json")]

    def state_dirs(self) -> list[int]:
        prefix = f"{self.log}state-v"
        return sorted({int(key.removeprefix(prefix)[:20]) for key in self.warehouse.store.keys(prefix)})


async def _seen(replica: Coordinator, version: int) -> tuple[dict[str, int], dict[str, Any]]:
    view = await replica.snapshots.snapshot(ORDERS, version, None, 0)
    page = await replica.snapshots.files(ORDERS, version, None, 0, 10_000, None)
    return {file.path: file.size for file in page.files}, dict(view.txns)
