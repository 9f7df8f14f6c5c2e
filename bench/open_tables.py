"""The tables that the open benchmark reads: made by the service's own code, with a clock that can be set."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from tarnlog.protocol.commits import CommitRequest, Committed
from tarnlog.protocol.ids import TableName, uuid7
from tarnlog.protocol.tables import CreateTable
from tarnlog_server.adapters.datafusion_columns import column_reader
from tarnlog_server.adapters.open_store import open_store
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tarnlog_server.usecases.state_read import States
from tarnlog_server.usecases.table_log import TableLog

NAME = TableName("bench", "open")
HOUR_MS = 3_600_000
DAYS = 365
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
    ],
}
T = TypeVar("T")


class BenchWorld:
    """The real world, but for the time of day, which is set: a history of a year is made in a minute."""

    def __init__(self, now_ms: int | None = None) -> None:
        self.rng = random.Random(7)
        self.set_ms = now_ms

    def now_ms(self) -> int:
        return self.set_ms if self.set_ms is not None else time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uuid7(self) -> UUID:
        return uuid7(self.now_ms(), self.rng)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


def service(folder: Path, world: BenchWorld | None = None) -> Coordinator:
    """One replica on a folder, as the service puts it together, without HTTP."""
    store = open_store(folder.resolve().as_uri(), s3_endpoint=None, s3_client=None)
    return Coordinator(Roots(Root(store.uri, store)), world or BenchWorld(), columns=column_reader())


def states_of(folder: Path) -> States:
    """The stored states of the table, without opening it."""
    store = open_store(folder.resolve().as_uri(), s3_endpoint=None, s3_client=None)
    prefix = log_of(folder).parent.relative_to(folder).as_posix()
    world = BenchWorld()
    return States(TableLog(store, LogPaths(prefix), world, column_reader()), world)


def add_line(number: int, day: int) -> dict[str, Any]:
    """A file as writers send it: a partition value, statistics of two columns."""
    date = f"2024-{1 + day // 31:02d}-{1 + day % 28:02d}"
    low = number * 7919 % 1_000_003
    return {
        "add": {
            "path": f"day={date}/part-{number:08d}-4f1c2d7e-9a60-4a51.parquet",
            "partitionValues": {"day": date},
            "size": 100_000 + number,
            "modificationTime": 1_704_067_200_000 + number,
            "dataChange": True,
            "numRecords": 1000,
            "minValues": {"id": str(number * 1000), "x": str(low)},
            "maxValues": {"id": str(number * 1000 + 999), "x": str(low + 999)},
        }
    }


def remove_line(number: int, day: int, when_ms: int) -> dict[str, Any]:
    path = add_line(number, day)["add"]["path"]
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": when_ms}}


async def commit(replica: Coordinator, actions: list[dict[str, Any]], read_version: int | None = None) -> int:
    body = {"actions": actions} | ({} if read_version is None else {"readVersion": read_version})
    outcome = await replica.commits.commit(NAME, msgspec.convert(body, CommitRequest))
    if not isinstance(outcome, Committed):
        raise RuntimeError(f"the benchmark's own commit failed: {outcome}")
    return outcome.version


async def create(replica: Coordinator) -> None:
    await replica.tables.create(CreateTable(name=str(NAME), schema=SCHEMA, partition_columns=("day",)))


async def rolling(folder: Path, versions: int, live: int) -> None:
    """A version an hour up to now, each with a new file that takes the place of the oldest: `live` files remain."""
    world = BenchWorld(time.time_ns() // 1_000_000 - (versions + 1) * HOUR_MS)
    replica = service(folder, world)
    await create(replica)
    for number in range(1, versions + 1):
        world.set_ms = world.now_ms() + HOUR_MS
        actions = [add_line(number, number % DAYS)]
        if number > live:
            actions.append(remove_line(number - live, (number - live) % DAYS, world.now_ms()))
        await commit(replica, actions, number - 1)
    await replica.close(1)


async def appended(folder: Path, versions: int, files: int) -> None:
    """`files` files in so many versions of equal size, nothing removed, sorted by day."""
    replica = service(folder)
    await create(replica)
    for part in range(versions):
        numbers = range(files * part // versions, files * (part + 1) // versions)
        await commit(replica, [add_line(number, number * DAYS // files) for number in numbers])
    await replica.close(1)


async def checkpoint(folder: Path, form: str) -> None:
    """Write a state of the head."""
    replica = service(folder)
    await replica.checkpoints.checkpoint(NAME, form)
    await replica.close(1)


def log_of(folder: Path) -> Path:
    """The log of the one table there is."""
    (found,) = folder.glob(f"{NAME.namespace}/*/_transaction_log")
    return found


def forget_states(folder: Path) -> None:
    """Leave the version files only."""
    for entry in _states(log_of(folder)):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def state_bytes(folder: Path) -> int:
    """What the states take on disk."""
    found = 0
    for entry in _states(log_of(folder)):
        files = [entry] if entry.is_file() else [file for file in entry.rglob("*") if file.is_file()]
        found += sum(file.stat().st_size for file in files)
    return found


def _states(log: Path) -> Iterator[Path]:
    for entry in log.iterdir():
        name = entry.name
        if (
            name.startswith("state-v")
            or name in ("manifests", "_checkpoints", "_last_checkpoint")
            or ".checkpoint" in name
        ):
            yield entry
