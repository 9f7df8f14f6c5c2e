"""Tables whose files tests write themselves, one small Parquet file at a time, so that each version is known."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tarnlog import Add, Client, Committed, Remove, new_commit_id
from tarnlog.protocol.actions import Action

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


class HandMade:
    """One table; `add` writes a file and commits it."""

    def __init__(self, client: Client, name: str, schema: Mapping[str, Any] | None = None, **how: Any) -> None:
        self.client = client
        self.name = name
        self.location = Path(
            unquote(client.create_table(name, schema or SCHEMA, **how).location.removeprefix("file://"))
        )
        self.location.mkdir(parents=True, exist_ok=True)

    def cleaned(self, *ids: int) -> int:
        """Let the log so far be old, add a file and clean up; the oldest version that is kept then."""
        self.client.checkpoint(self.name)
        long_ago = time.time() - 90 * 86_400
        for file in (self.location / "_transaction_log").rglob("*"):
            os.utime(file, (long_ago, long_ago))
        self.add(ids)
        return self.client.cleanup(self.name).floor

    def file(self, ids: Iterable[int], *, day: str = "a", data_change: bool = True) -> Add:
        """A data file with these ids, which nothing names yet."""
        values = list(ids)
        table = pa.table({"id": pa.array(values, pa.int64()), "day": pa.array([day] * len(values), pa.string())})
        return self.parquet(table, data_change=data_change, low=min(values), high=max(values))

    def parquet(
        self, table: pa.Table, *, data_change: bool = True, low: int | None = None, high: int | None = None
    ) -> Add:
        """Any data file."""
        path = f"{new_commit_id()}.parquet"
        pq.write_table(table, self.location / path)
        return Add(
            path=path,
            partition_values={},
            size=(self.location / path).stat().st_size,
            modification_time=0,
            data_change=data_change,
            num_records=table.num_rows,
            min_values=None if low is None else {"id": str(low)},
            max_values=None if high is None else {"id": str(high)},
        )

    def commit(self, *actions: Action, operation: str = "WRITE") -> Committed:
        """One commit of these actions."""
        blind = all(isinstance(action, Add) for action in actions)
        version = None if blind else self.client.snapshot(self.name).version
        outcome = self.client.commit(self.name, actions, read_version=version, operation=operation)
        assert isinstance(outcome, Committed), outcome
        return outcome

    def add(self, *files: Iterable[int]) -> Committed:
        """One commit with a file for each group of ids."""
        return self.commit(*(self.file(ids) for ids in files))

    def remove(
        self, *files: Add, data_change: bool = True, adds: Sequence[Add] = (), operation: str = "DELETE"
    ) -> Committed:
        """One commit that removes files, and may add others in their place."""
        gone = [Remove(path=file.path, data_change=data_change, size=file.size) for file in files]
        return self.commit(*gone, *adds, operation=operation)
