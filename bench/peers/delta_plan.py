"""deltalake: planning scans over many files held in one checkpoint, cold and warm; each table in a new process.

Run in the peer's own environment: `python -m bench.peers.delta_plan '{"folder": ..., "files": ..., "rounds": ...}'`.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.rss import memory_mb
from bench.plan_layout import ROWS, Entry, entries, filters, path_of

BATCH = 100_000
WARM = 5


def build(folder: str, files: int) -> None:
    """A log of few versions, then a checkpoint that holds all of it."""
    from deltalake import DeltaTable

    log = Path(folder) / "_delta_log"
    log.mkdir(parents=True)
    kinds = (("id", "long"), ("d", "date"), ("x", "long"))
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds]
    metadata = {
        "id": "6f0e6b1e-7d0b-4a47-9a0f-2f4c4a7f9f10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["d"],
        "configuration": {},
        "createdTime": 1_704_067_200_000,
    }
    _write(log, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}])
    number, lines = 0, []
    for entry in entries(files):
        lines.append({"add": _add(entry)})
        if len(lines) == BATCH or entry.number == files - 1:
            number += 1
            _write(log, number, lines)
            lines = []
    DeltaTable(folder).create_checkpoint()
    for old in range(number):
        (log / f"{old:020d}.json").unlink()


def _add(entry: Entry) -> dict[str, Any]:
    stats = {
        "numRecords": ROWS,
        "minValues": {"id": entry.number * ROWS, "x": entry.low},
        "maxValues": {"id": entry.number * ROWS + ROWS - 1, "x": entry.high},
        "nullCount": {"id": 0, "x": 0},
    }
    return {
        "path": path_of(entry),
        "partitionValues": {"d": entry.day},
        "size": 100_000 + entry.number,
        "modificationTime": 1_704_067_200_000 + entry.number,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def _write(log: Path, number: int, actions: list[dict[str, Any]]) -> None:
    (log / f"{number:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def plan(folder: str, predicate: str | None) -> dict[str, Any]:
    """Open and plan, then plan again on the open table."""
    from deltalake import DeltaTable

    start = time.perf_counter()
    table = DeltaTable(folder)
    found = len(table.file_uris(file_pruning_predicate=predicate))
    cold = time.perf_counter() - start
    warm = []
    for _ in range(WARM):
        start = time.perf_counter()
        table.file_uris(file_pruning_predicate=predicate)
        warm.append((time.perf_counter() - start) * 1e3)
    return {"cold_ms": cold * 1e3, "warm_ms": warm, "found": found, "memory_mb": memory_mb()}


def main(setting: dict[str, Any]) -> None:
    files, folder = setting["files"], str(Path(setting["folder"]) / "delta-plan")
    found: dict[str, Any] = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        pool.apply(build, (folder, files))
        for name, predicate in filters(files).items():
            found[name] = [pool.apply(plan, (folder, predicate)) for _ in range(setting["rounds"])]
    print(json.dumps({"plans": found, "versions": {"deltalake": version("deltalake")}}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
