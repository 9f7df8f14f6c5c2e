"""Files that came as an Arrow stream, as actions again. Needs pyarrow only from whoever hands the batches over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from tarnlog.protocol.action_json import from_object
from tarnlog.protocol.actions import Add

_MAPS = ("partitionValues", "tags", "minValues", "maxValues")


def partition_columns(schema: Any) -> tuple[str, ...]:
    """The partition columns that the schema of a stream of files names."""
    return msgspec.json.decode((schema.metadata or {}).get(b"partitionColumns", b"[]"), type=tuple[str, ...])


def adds_of(batch: Any) -> Iterator[Add]:
    """The actions of a `pyarrow.RecordBatch` of files, exactly as a JSON listing gives them."""
    columns = partition_columns(batch.schema)
    for record in batch.to_pylist():
        body = {name: value for name, value in record.items() if value is not None}
        for name in _MAPS:
            if name in body:
                body[name] = dict(body[name])
        values = body["partitionValues"]
        if len(values) < len(columns):
            body["partitionValues"] = dict.fromkeys(columns) | values
        extra = body.pop("extra", None)
        if extra is not None:
            body = msgspec.json.decode(extra) | body
        yield cast(Add, from_object(Add, body))
