"""Races N processes of one peer for a fixed time and prints what happened as one JSON line.

Run in the peer's own environment: `python -m bench.peers.driver '{"peer": "delta", "writers": 8, ...}'`. Every process
opens its client first and waits at a barrier; an exception of a commit is one failed commit. A commit under way at the
end of the time is finished and counted, and the time it took is part of the wall time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import re
import sys
import threading
import time
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

START_TIMEOUT = 180.0
Setting = dict[str, Any]


def write_for(setting: Setting, index: int, barrier: Barrier, reply: Connection) -> None:
    """One writer process: open, wait for the others, commit until the time is over, send the account back."""
    try:
        commit = importlib.import_module(f"bench.peers.{setting['peer']}").open_writer(setting, index)
        barrier.wait(START_TIMEOUT)
    except BaseException as error:
        barrier.abort()
        reply.send({"broken": "" if isinstance(error, threading.BrokenBarrierError) else describe(error)})
        return
    latencies: list[float] = []
    errors: dict[str, int] = {}
    start, count, in_time = time.monotonic(), 0, 0
    while (began := time.monotonic()) - start < setting["seconds"]:
        try:
            commit(count)
            ended = time.monotonic()
            latencies.append(ended - began)
            in_time += ended - start <= setting["seconds"]
        except Exception as error:
            kind = describe(error)
            errors[kind] = errors.get(kind, 0) + 1
        count += 1
    account = {"latencies": latencies, "errors": errors, "in_time": in_time, "start": start, "end": time.monotonic()}
    reply.send(account)


def describe(error: BaseException) -> str:
    """A short name for a failure that is the same for failures of the same kind."""
    first_line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {re.sub(r'[0-9]+', '#', first_line)[:90]}"


def race(setting: Setting, preload: tuple[str, ...]) -> dict[str, Any]:
    """Start the writers (forked from a server that has imported the peer), and put their accounts together."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.peers.driver", *preload])
    barrier = context.Barrier(setting["writers"])
    ends, processes = [], []
    for index in range(setting["writers"]):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=write_for, args=(setting, index, barrier, send), daemon=True)
        process.start()
        send.close()
        ends.append(receive)
        processes.append(process)
    accounts = []
    for receive in ends:
        with contextlib.suppress(EOFError):  # a process that died has no account; it is missed below
            accounts.append(receive.recv())
    for process in processes:
        process.join()
    broken = [one["broken"] for one in accounts if "broken" in one]
    if broken or len(accounts) < len(processes):
        died = f"{len(processes) - len(accounts)} writers died without a word"
        raise RuntimeError(next((one for one in broken if one), died))
    errors: dict[str, int] = {}
    for one in accounts:
        for kind, count in one["errors"].items():
            errors[kind] = errors.get(kind, 0) + count
    return {
        "seconds": setting["seconds"],
        "in_time": sum(one["in_time"] for one in accounts),
        "wall": max(one["end"] for one in accounts) - min(one["start"] for one in accounts),
        "latencies": [latency for one in accounts for latency in one["latencies"]],
        "errors": errors,
    }


def main(text: str) -> None:
    setting: Setting = json.loads(text)
    peer = importlib.import_module(f"bench.peers.{setting['peer']}")
    peer.prepare(setting)
    before = peer.landed(setting)
    result = race(setting, peer.PRELOAD)
    result["landed"] = peer.landed(setting) - before
    result["versions"] = {name: version(name) for name in peer.DISTRIBUTIONS}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
