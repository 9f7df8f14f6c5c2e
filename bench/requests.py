"""The bytes of commit requests: built from a template once, then only the commit id changes.

Every request has a fresh UUIDv7 and adds files that no other request adds (their names contain that id), so a writer
spends next to nothing on making it. The row is the one the peers commit: one partition value, bounds on two columns.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

DAY = "2024-01-01"
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "d", "type": "date", "nullable": True, "metadata": {}},
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
    ],
}
STATS = {
    "numRecords": 1000,
    "minValues": {"id": 1, "x": 1},
    "maxValues": {"id": 9, "x": 5},
    "nullCount": {"id": 0, "x": 0},
}
_ID = "00000000-0000-7000-8000-000000000000"


def commit_ids(rng: random.Random, now: Callable[[], float] = time.time) -> Callable[[], bytes]:
    """A source of UUIDv7 in their canonical spelling."""
    bits = rng.getrandbits

    def fresh() -> bytes:
        ms, low = f"{int(now() * 1000):012x}", f"{bits(62) | 1 << 63:016x}"
        return f"{ms[:8]}-{ms[8:]}-7{bits(12):03x}-{low[:4]}-{low[4:]}".encode()

    return fresh


def add_action(name: str, modified_ms: int) -> dict[str, object]:
    """An add of one file with the bounds and sizes every system in the benchmark records."""
    return {
        "add": {
            "path": f"d={DAY}/part-{name}.snappy.parquet",
            "partitionValues": {"d": DAY},
            "size": 1000,
            "modificationTime": modified_ms,
            "dataChange": True,
            "stats": json.dumps(STATS, separators=(",", ":")),
            "minValues": {"id": "1", "x": "1"},
            "maxValues": {"id": "9", "x": "5"},
            "numRecords": 1000,
        }
    }


def commit_body(adds: int, coalesce: bool) -> bytes:
    """One blind append of `adds` files, with `_ID` wherever a request's own id goes."""
    modified = int(time.time() * 1000)
    body = {
        "commitId": _ID,
        "coalesce": coalesce,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "operationMetrics": {"numFiles": str(adds), "numOutputRows": str(1000 * adds)},
        "actions": [add_action(f"{k:05d}-{_ID}", modified) for k in range(adds)],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def request_source(target: str, adds: int, coalesce: bool, ids: Callable[[], bytes]) -> Callable[[], bytes]:
    """A source of whole HTTP/1.1 requests; the length never changes, so the head is constant."""
    body = commit_body(adds, coalesce)
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    pieces = (head.encode() + b"\r\n\r\n" + body).split(_ID.encode())
    return lambda: ids().join(pieces)
