"""deltalake: opening a table and listing its files, from its JSON log and from a checkpoint; each in a new process.

Run in the peer's own environment: `python -m bench.peers.delta_open '{"folder": ..., "versions": ..., "rounds": ...}'`.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("day", "date"), ("id", "long"), ("x", "long"))
    ],
}


def write_log(table: Path, versions: int) -> None:
    """A version a file, as a writer without checkpoints leaves it."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "6f0e6b1e-7d0b-4a47-9a0f-2f4c4a7f9f10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": 1_704_067_200_000,
    }
    first: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    _write(log, 0, first)
    for number in range(1, versions + 1):
        stats = {
            "numRecords": 1000,
            "minValues": {"id": number, "x": number},
            "maxValues": {"id": number + 999, "x": number + 999},
            "nullCount": {"id": 0, "x": 0},
        }
        add = {
            "path": f"day=2024-01-01/part-{number:08d}-4f1c2d7e-9a60-4a51.parquet",
            "partitionValues": {"day": "2024-01-01"},
            "size": 100_000,
            "modificationTime": 1_704_067_200_000 + number,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        _write(log, number, [{"commitInfo": {"timestamp": 1_704_067_200_000, "operation": "WRITE"}}, {"add": add}])


def _write(log: Path, number: int, actions: list[dict[str, Any]]) -> None:
    (log / f"{number:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def open_and_list(table: str) -> tuple[float, float, int]:
    """Milliseconds to open, milliseconds to list, and how many files there are."""
    from deltalake import DeltaTable

    start = time.perf_counter()
    opened = DeltaTable(table)
    ready = time.perf_counter()
    files = opened.file_uris()
    return (ready - start) * 1e3, (time.perf_counter() - ready) * 1e3, len(files)


def checkpoint(table: str) -> None:
    from deltalake import DeltaTable

    DeltaTable(table).create_checkpoint()


def main(setting: dict[str, Any]) -> None:
    table = Path(setting["folder"]) / f"delta{setting['versions']}"
    write_log(table, setting["versions"])
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:

        def cold() -> list[tuple[float, float, int]]:
            return [pool.apply(open_and_list, (str(table),)) for _ in range(setting["rounds"])]

        found: dict[str, Any] = {"json": cold()}
        pool.apply(checkpoint, (str(table),))
        found["checkpoint"] = cold()
    print(json.dumps(found | {"versions": {"deltalake": version("deltalake")}}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
