"""Replicas for tests: a clock that only moves when told, a shared store in memory, and short ways to use a replica."""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pytest

from tarnlog.protocol.commits import CommitOutcome, CommitRequest, Committed
from tarnlog.protocol.ids import TableName, uuid7
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable, CreateTable, PropertyChanges, RegisterTable
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.ports.object_store import ObjectInfo
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.tables import TableView

T = TypeVar("T")
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "note", "type": "string", "nullable": True, "metadata": {}},
    ],
}
ORDERS = TableName("sales", "orders")
START_MS = 1_704_067_200_000


class FakeWorld:
    """Time that stands still until `advance`; sleeping advances it. Randomness from a seed, work done at once."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._ms = START_MS
        self._looks = 0

    @property
    def rng(self) -> random.Random:
        return self._rng

    def now_ms(self) -> int:
        return self._ms

    def monotonic(self) -> float:
        self._looks += 1  # no two looks at a real clock are the same
        return (self._ms - START_MS) / 1000 + self._looks / 1e9

    def uuid7(self) -> UUID:
        return uuid7(self._ms, self._rng)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return work()

    def advance(self, seconds: float) -> None:
        self._ms += int(seconds * 1000)


class CountingStore(MemoryStore):
    """A store in memory that notes every read, so that a test can say what a cache saved."""

    def __init__(self, name: str, world: FakeWorld) -> None:
        super().__init__(name, now_ms=world.now_ms)
        self.gets: builtins.list[str] = []
        self.lists: builtins.list[str] = []

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.gets.append(key)
        return await super().get(key, start, length)

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> builtins.list[ObjectInfo]:
        self.lists.append(prefix)
        return await super().list(prefix, start_after, limit)

    def keys(self, prefix: str = "") -> builtins.list[str]:
        """Every key there is, for the eyes of a test."""
        return [key for key in self._keys if key.startswith(prefix)]

    def raw(self, key: str) -> bytes:
        return self._objects[key][0]

    def overwrite(self, key: str, data: bytes) -> None:
        """What no writer may do: change an object in place."""
        self._store(key, data)


class Warehouse:
    """One store with any number of replicas on it."""

    def __init__(self) -> None:
        self.world = FakeWorld()
        self.store = CountingStore("w", self.world)
        self.replicas: list[Coordinator] = []

    def replica(self, *others: Root, **settings: Any) -> Coordinator:
        roots = Roots(Root("memory://w", self.store), *others)
        made = Coordinator(roots, self.world, **settings)
        self.replicas.append(made)
        return made

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.close(0)

    def log(self, view: TableView) -> str:
        """The key prefix of a table's log."""
        return view.location.removeprefix("memory://w/") + "/_transaction_log/"


def version_key(log: str, version: int) -> str:
    return f"{log}{version:020d}.json"


async def create(replica: Coordinator, name: str = "sales.orders", **fields: Any) -> TableView:
    return await replica.tables.create(CreateTable(name=name, **{"schema": SCHEMA, **fields}))


async def register(replica: Coordinator, name: str, location: str, *, stopped: bool = False) -> TableView:
    request = RegisterTable(name=name, location=location, foreign_writers_stopped=stopped)
    return await replica.registering.register(request)


def add_line(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True, "numRecords": 2}
    return {"add": {**body, **fields}}


def remove_line(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


def request(*actions: dict[str, Any], **fields: Any) -> CommitRequest:
    return msgspec.convert({"actions": actions, **fields}, CommitRequest)


async def send(replica: Coordinator, *actions: dict[str, Any], to: TableName = ORDERS, **fields: Any) -> CommitOutcome:
    return await replica.commits.commit(to, request(*actions, **fields))


async def commit(replica: Coordinator, *actions: dict[str, Any], to: TableName = ORDERS, **fields: Any) -> Committed:
    outcome = await send(replica, *actions, to=to, **fields)
    assert isinstance(outcome, Committed), outcome
    return outcome


async def together(replica: Coordinator, *paths: str, to: TableName = ORDERS) -> list[Committed]:
    """Blind appends that wait at the same time, so that they share versions."""
    return list(await asyncio.gather(*(commit(replica, add_line(path), to=to) for path in paths)))


async def files(replica: Coordinator, name: TableName = ORDERS, **at: Any) -> list[str]:
    page = await replica.snapshots.files(
        name, at.get("version"), at.get("timestamp"), at.get("max_staleness", 0), 10_000, None
    )
    assert page.next is None
    return [file.path for file in page.files]


def set_properties(**properties: str) -> AlterTable:
    """A PATCH; `__` stands for a dot."""
    return AlterTable(properties=PropertyChanges(set={key.replace("__", "."): v for key, v in properties.items()}))


class refused:  # noqa: N801 - reads like pytest.raises
    """`with refused("slug"):` a ProblemError of that code is raised inside."""

    def __init__(self, slug: str, match: str | None = None) -> None:
        self._slug = slug
        self._raises = pytest.raises(ProblemError, match=match)

    def __enter__(self) -> pytest.ExceptionInfo[ProblemError]:
        return self._raises.__enter__()

    def __exit__(self, *error: Any) -> bool:
        caught = self._raises.__exit__(*error)
        if caught and self._raises.excinfo is not None:
            problem = self._raises.excinfo.value
            assert problem.slug == self._slug, problem
        return caught
