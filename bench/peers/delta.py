"""deltalake: a writer appends one AddAction a commit and keeps its table up to date. It does not fsync local files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOAD = ("deltalake",)
DISTRIBUTIONS = ("deltalake",)
DAY = "2024-01-01"
STATS = '{"numRecords":1000,"minValues":{"id":1,"x":1},"maxValues":{"id":9,"x":5},"nullCount":{"id":0,"x":0}}'


def _schema() -> Any:
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    return Schema([Field(name, PrimitiveType(kind)) for name, kind in (("id", "long"), ("d", "date"), ("x", "long"))])


def _location(setting: dict[str, Any], index: int) -> str:
    return str(Path(setting["folder"]) / f"t{index % setting['tables']}")


def prepare(setting: dict[str, Any]) -> None:
    from deltalake import DeltaTable

    for index in range(setting["tables"]):
        DeltaTable.create(_location(setting, index), _schema(), partition_by=["d"])


def open_writer(setting: dict[str, Any], index: int) -> Callable[[int], None]:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    table, schema = DeltaTable(_location(setting, index)), _schema()

    def commit(count: int) -> None:
        path, now = f"d={DAY}/part-{index}-{count}.snappy.parquet", int(time.time() * 1000)
        try:
            add = AddAction(path, 1000, {"d": DAY}, now, True, STATS)
            table.create_write_transaction([add], "append", schema, partition_by=["d"])
        finally:
            table.update_incremental()  # a stale table checks ever more of the log at its next commit

    return commit


def landed(setting: dict[str, Any]) -> int:
    from deltalake import DeltaTable

    return sum(DeltaTable(_location(setting, index)).version() for index in range(setting["tables"]))
