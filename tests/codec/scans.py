"""Snapshots to prune: some files packed as columns, the others as recent actions behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tarnlog.protocol.actions import Add, Format, MetaData
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec.entry_batch import entry_batch
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.replay import Snapshot, empty

SCHEMA_STRING = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)
MAPPING = '[{"name":"title"}]'


def metadata(schema_string: str = SCHEMA_STRING, partition_columns: tuple[str, ...] = ("day",)) -> MetaData:
    return MetaData(
        id="7f0c",
        format=Format(),
        schema_string=schema_string,
        partition_columns=partition_columns,
        configuration={"docMappingSchema.ab12cd34ef56gh78": MAPPING},
    )


def files_of(count: int) -> list[Add]:
    """Files of ten days, each with ten numbers of its own."""
    return [
        Add(
            path=f"day=2024-01-{number % 10 + 1:02d}/part-{number:05d}.parquet",
            partition_values={"day": f"2024-01-{number % 10 + 1:02d}"},
            size=100 + number,
            modification_time=number,
            data_change=True,
            min_values={"id": str(number * 10)},
            max_values={"id": str(number * 10 + 9)},
            doc_mapping_ref="ab12cd34ef56gh78" if number % 3 else None,
        )
        for number in range(count)
    ]


def packed(files: Sequence[Add], partition_columns: tuple[str, ...] = ("day",), batch: int = 7) -> FileColumns:
    """Files as a segment of several batches; each file was added by a version of its own."""
    entries = [StateFile(add, version, 7) for version, add in enumerate(files)]
    return FileColumns([entry_batch(entries[at : at + batch]) for at in range(0, len(files), batch)], partition_columns)


def snapshot_with(
    files: Sequence[Add], packed_rows: int, meta: MetaData | None = None, truncation: int = DEFAULT_TRUNCATION
) -> Snapshot:
    """A snapshot of files, the first of them packed."""
    meta = meta or metadata()
    log = FileLog(packed(files[:packed_rows], meta.partition_columns) if packed_rows else None)
    for version, add in enumerate(files[packed_rows:], packed_rows):
        log.add(path_key(add.path), add, version)
    return dataclasses.replace(
        empty(),
        version=len(files),
        metadata=meta,
        files=log,
        length=len(log),
        num_files=log.live_count,
        truncation=truncation,
    )
