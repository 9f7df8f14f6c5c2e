"""The commits clients of the simulation send, as JSON values. Every body has a name of its own, and every file too."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

PARTITIONS = ("a", "b", "c")
FIELDS = {"p": "string", "x": "long", "c": "integer"}
PROPERTIES = ("owner", "team", "color")


def schema(*, wide: bool = False) -> Json:
    """The schema of every table; `wide` has one column widened."""
    types = {**FIELDS, "c": "long"} if wide else FIELDS
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()],
    }


class Bodies:
    """Makes bodies for one client."""

    def __init__(self, client: str, rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self._count = 0

    def body(self, operation: str, actions: list[Json], **fields: Any) -> Json:
        """A commit body with a name of its own."""
        self._count += 1
        name = f"{self._client}-{self._count}"
        return {"actions": actions, "operation": operation, "operationParameters": {"body": name}, **fields}

    def add(self, *, data_change: bool = True, partition: str | None = None) -> Json:
        """A new file, mostly with bounds."""
        rng = self._rng
        self._count += 1
        part = partition or rng.choice(PARTITIONS)
        low = rng.randrange(100)
        add: Json = {
            "path": f"p={part}/{self._client}-{self._count}.parquet",
            "partitionValues": {"p": part},
            "size": rng.randrange(1, 1000),
            "modificationTime": 1_750_000_000_000,
            "dataChange": data_change,
        }
        if rng.random() < 0.8:
            add["numRecords"] = rng.randrange(1, 50)
        if rng.random() < 0.8:
            add["minValues"], add["maxValues"] = {"x": str(low)}, {"x": str(low + rng.randrange(20))}
        if rng.random() < 0.2:
            add["minValues"], add["maxValues"] = {"c": "1"}, {"c": "9"}
        return {"add": add}

    def remove(self, path: str, *, data_change: bool = True) -> Json:
        """The removal of a file."""
        return {"remove": {"path": path, "dataChange": data_change}}

    def filter(self) -> Json:
        """A filter on the partition, on a bounded column, or on both."""
        by_partition = {"op": "eq", "column": "p", "value": self._rng.choice(PARTITIONS)}
        by_bounds = {"op": self._rng.choice(("ge", "lt")), "column": "x", "value": self._rng.randrange(110)}
        return self._rng.choice((by_partition, by_bounds, {"op": "and", "args": [by_partition, by_bounds]}))
