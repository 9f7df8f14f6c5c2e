"""One cold measurement of the open benchmark: a process of its own, `python -m bench.open_child '{"work": ...}'`.

Cold means that nothing of the table is in this process; libraries are loaded before the clock starts, and the files lie
in the page cache, for every system alike. With `warm`, the process has opened another table before, as a service has
that runs for longer than a moment. Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.open_tables import NAME, add_line, commit, service, states_of
from bench.pruned_files import matching
from tarnlog.protocol.predicates import parse_predicate
from tarnlog_server.adapters.datafusion_columns import column_reader
from tarnlog_server.codec.state_avro import encode_manifest
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.state_read import Kind, StateRef

WARM_OPENS = 20
MOST_OPENS, ENOUGH_MS = 15, 1000.0
"""How often a table is opened in one process, at the most, and the time after which it is enough."""
DAY = {"op": "eq", "column": "day", "value": "2024-06-17"}


def peak_mb() -> float:
    """The most memory this process ever used; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _warm() -> None:
    reader = column_reader()
    if reader is not None:
        reader.read_avro(encode_manifest([]).data)
    # As the service does before it listens: the collector need not look at the libraries.
    gc.collect()
    gc.freeze()


async def opened(setting: dict[str, Any]) -> dict[str, Any]:
    """Open a table, then list the paths of all its files. After other opens: several times, each anew; the median."""
    if setting.get("warm") is None:
        replica = service(Path(setting["folder"]))
        found = await _opened_by(replica)
        await replica.close(1)
        return found
    # All of them before the first open: a store that starts its threads takes time from whoever runs beside it.
    others = [service(Path(setting["warm"])) for _ in range(WARM_OPENS)]
    replicas = [service(Path(setting["folder"])) for _ in range(MOST_OPENS)]
    for other in others:
        await other.snapshots.snapshot(NAME, None, None, None)
    runs: list[dict[str, Any]] = []
    spent = 0.0
    for replica in replicas:
        if spent < ENOUGH_MS:
            runs.append(await _opened_by(replica))
            spent += runs[-1]["open_ms"]
    for replica in (*others, *replicas):
        await replica.close(1)
    return {**runs[0], **{name: statistics.median(run[name] for run in runs) for name in ("open_ms", "list_ms")}}


async def _opened_by(replica: Coordinator) -> dict[str, Any]:
    """By a replica that knows nothing: its stores, caches and all that it read are its own."""
    start = time.perf_counter()
    view = await replica.snapshots.snapshot(NAME, None, None, None)
    ready = time.perf_counter()
    paths = list(replica.open_tables.opened()[0].live.head.paths())
    listed = time.perf_counter()
    base = replica.open_tables.opened()[0].live.base
    return {
        "open_ms": (ready - start) * 1e3,
        "list_ms": (listed - ready) * 1e3,
        "files": len(paths),
        "version": view.version,
        "source": "replay" if base is None else base.ref.kind.value,
    }


async def planned(setting: dict[str, Any]) -> dict[str, Any]:
    """Which files of one day there are, from the newest state alone."""
    states, predicate = states_of(Path(setting["folder"])), parse_predicate(DAY)
    start = time.perf_counter()
    hint = await states.hint()
    if hint is None:
        raise RuntimeError("there is no state to plan on")
    kind = Kind(hint.format if hint.format in ("avro-state", "parquet") else "json")
    found = await matching(states, StateRef(hint.version, kind), predicate)
    spent = time.perf_counter() - start
    return {"plan_ms": spent * 1e3, "files": len(found.files), "manifests": f"{found.manifests_read}/{found.manifests}"}


async def grown(setting: dict[str, Any]) -> dict[str, Any]:
    """Open a large table, add ten files, write an incremental state, then one from scratch."""
    replica = service(Path(setting["folder"]))
    start = time.perf_counter()
    view = await replica.snapshots.snapshot(NAME, None, None, 0)
    ready = time.perf_counter()
    opened_mb = peak_mb()
    await commit(replica, [add_line(10_000_000 + number, 3) for number in range(10)])
    added = time.perf_counter()
    await replica.checkpoints.checkpoint(NAME, "avro")
    kept = time.perf_counter()
    found = {
        "open_ms": (ready - start) * 1e3,
        "incremental_ms": (kept - added) * 1e3,
        "files": view.num_files,
        "open_peak_mb": opened_mb,
    }
    if setting["compact"]:
        await replica.checkpoints.compact(NAME)
        found |= {"compact_s": time.perf_counter() - kept, "write_peak_mb": peak_mb()}
    await replica.close(1)
    return found


WORK = {"open": opened, "plan": planned, "grow": grown}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _warm()
    # The event loop that the service runs on.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(WORK[given["work"]](given))))
