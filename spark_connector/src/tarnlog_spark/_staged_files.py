"""The files that Spark's own Parquet writer left in a folder of ours, as the `add` of each: taken from their footers.

No Spark session is needed here. The folder belongs to one job, and is looked at after that job has ended well; a file
that does not look as the job must have written it is refused, and nothing of the job is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct

from tarnlog import Corrupt
from tarnlog.protocol.actions import Add
from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._statistics import flat_columns, same_types, statistics_of, value_text
from tarnlog_spark._writing import STORED, Values, WriteTask, split

MARKER = "_SUCCESS"
ATTEMPTS = "_temporary"
"""Where tasks write; the committer takes files out of there only when it ends the whole job."""

THREADS = 8
_ADVICE = "Nothing was committed. Write again, or with writer='arrow'."


class StagedFile(Struct, frozen=True):
    """A file below the table's location, as the listing has it."""

    path: str
    size: int
    modified: int


def staged_files(task: WriteTask, folder: str) -> list[StagedFile]:
    """The data files of a job that ended well, below `folder`. Costs a listing of what the job wrote; Corrupt if it
    did not end well, or if anything lies there that it cannot have written.

    An attempt that lost to a faster one may not have noticed yet: what it still writes below ATTEMPTS is nobody's.
    """
    root = task.storage.path(folder)
    depth = len(task.partition_columns) + 1
    found, ended = [], False
    selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)  # attempts that lost clear their folders
    for info in task.storage.filesystem.get_file_info(selector):
        below = info.path[len(root) :].strip("/")
        if info.type != pafs.FileType.File or below.startswith(f"{ATTEMPTS}/"):
            continue
        if below == MARKER:
            ended = True
        elif below.count("/") + 1 == depth and is_part(below):
            found.append(StagedFile(f"{folder}/{below}", info.size, (info.mtime_ns or 0) // 1_000_000))
        else:
            raise Corrupt(f"Spark left {below} in {folder}, which no task of it should have. {_ADVICE}")
    if not ended:
        raise Corrupt(f"Spark did not mark its job in {folder} as done. {_ADVICE}")
    return sorted(found, key=lambda file: file.path)


def is_part(path: str) -> bool:
    """Whether the last part of a path is the name of a file that a task wrote."""
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet")


def adds_of(
    task: WriteTask, files: Iterable[StagedFile], look: Callable[[pq.FileMetaData], None] = lambda _: None
) -> list[Add]:
    """The `add` of each file, in order. A file without rows has one too. `look` is shown every footer, by several
    threads where footers are read by several.

    Footers of an object store are read by a few threads; on a disk, whose footers were just written, they would only
    get into each other's way.
    """
    schema = task.schema()
    if isinstance(task.storage.filesystem, pafs.LocalFileSystem):
        return [_add(task, schema, file, look) for file in files]
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(lambda file: _add(task, schema, file, look), files))


def _add(task: WriteTask, schema: pa.Schema, file: StagedFile, look: Callable[[pq.FileMetaData], None]) -> Add:
    with task.storage.filesystem.open_input_file(task.storage.path(quote(file.path, safe="/="))) as source:
        parquet = pq.ParquetFile(source)
        _check_columns(parquet, schema, file)
        _check_required(parquet, schema)
        values = _partition(parquet, schema, task.partition_columns, file) if parquet.metadata.num_rows else ()
        found = statistics_of(parquet.metadata, schema, cut_at=task.cut_at, nan_hides_bounds=True)
        look(parquet.metadata)
    return Add(
        path=quote(file.path, safe="/="),
        partition_values=dict(zip(task.partition_columns, values, strict=True)) if values else {},
        size=file.size,
        modification_time=file.modified,
        data_change=task.data_change,
        stats=found.json,
        min_values=found.min_values or None,
        max_values=found.max_values or None,
        num_records=found.num_records,
        tags=dict(STORED) if values else None,
    )


def _check_columns(parquet: Any, schema: pa.Schema, file: StagedFile) -> None:
    stored = parquet.schema_arrow
    if stored.names != schema.names or not all(
        same_types(ours.type, theirs.type) for ours, theirs in zip(schema, stored, strict=True)
    ):
        raise Corrupt(f"Spark wrote other columns than the table's into {file.path}: {stored}. {_ADVICE}")


def _check_required(parquet: Any, schema: pa.Schema) -> None:
    """SchemaMismatch for a null where the table allows none. Only columns without parts can be required here."""
    faults = {
        field.name: "null where the table allows none"
        for field, leaf in flat_columns(schema, limit=None)
        if not field.nullable and _nulls(parquet, field.name, leaf)
    }
    if faults:
        raise SchemaMismatch(faults, advice="Fill the nulls, or leave such rows out.")


def _nulls(parquet: Any, name: str, leaf: int) -> int:
    known = [chunk.statistics for chunk in _chunks(parquet, leaf)]
    if all(found is not None and found.has_null_count for found in known):
        return sum(found.null_count for found in known)
    return int(parquet.read(columns=[name]).column(name).null_count)


def _partition(parquet: Any, schema: pa.Schema, columns: Sequence[str], file: StagedFile) -> Values:
    """The values of the file's partition, spelled as the task's own writer spells them."""
    leaves = {field.name: leaf for field, leaf in flat_columns(schema, limit=None)}
    told = [_only_value(schema.field(name).type, _chunks(parquet, leaves[name])) for name in columns]
    known = [value[0] for value in told if value is not None]
    if len(known) == len(columns):
        return tuple(known)
    # Very long text and what floats hide (NaN, two zeros) is not in a footer: look at the rows.
    stored = parquet.read(columns=list(columns))
    rows = pa.Table.from_arrays([stored.column(name).combine_chunks() for name in columns], names=list(columns))
    found = [values for values, _ in split(rows.combine_chunks().to_batches()[0], tuple(columns))]
    if len(found) != 1:
        raise Corrupt(f"Spark wrote rows of {len(found)} partitions into {file.path}. {_ADVICE}")
    return found[0]


def _only_value(kind: pa.DataType, chunks: list[Any]) -> tuple[str | None] | None:
    """The one value that all rows have, in a tuple; None when the footer does not tell for sure."""
    known = [chunk.statistics for chunk in chunks]
    if not all(found is not None and found.has_null_count for found in known):
        return None
    if all(found.null_count == chunk.num_values for found, chunk in zip(known, chunks, strict=True)):
        return (None,)
    if pa.types.is_floating(kind) or any(found.null_count or not found.has_min_max for found in known):
        return None
    raw = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    ends = {end for found in known for end in ((found.min_raw, found.max_raw) if raw else (found.min, found.max))}
    return (value_text(ends.pop(), kind),) if len(ends) == 1 else None


def _chunks(parquet: Any, leaf: int) -> list[Any]:
    footer = parquet.metadata
    return [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
