"""Z-order: the rows of each partition sorted along a curve on which neighbours are near in every named column.

So the bounds of each file are narrow in all of the columns, and a filter on any of them leaves out files. The curve is
`_curve`. Python tasks read the files twice: to find broken ones and take a sample, and to tell each row its place. Then
Spark shuffles and sorts, and pyarrow's tasks write what comes out, in that order.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import Corrupt, InvalidRequest
from tarnlog.protocol.actions import Add
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._arrow_read import read_batches
from tarnlog_spark._committing import discard
from tarnlog_spark._curve import MOST_COLUMNS, PLACE_BITS, Node, Row, grown, places, shared_tasks
from tarnlog_spark._files import added, shared_out
from tarnlog_spark._options import Splits
from tarnlog_spark._partition_match import partition_key, partition_types
from tarnlog_spark._rewriting import Group, Merged, whole_file
from tarnlog_spark._statistics import MAX_COLUMNS, is_ordered
from tarnlog_spark._target import Pinned, write_files
from tarnlog_spark._writing import WriteTask, decode_message, encode_message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS_TAG, ORDER_TAG = "zOrderBy", "zOrderId"
"""The tags of a file that is part of an order: its columns, and which order it is. Files of two orders overlap."""

_PREFIX = 128
"""So many characters of a text are looked at to find its part; the rest only sorts what is alike in them."""

_SAMPLED, _SAMPLED_PER_FILE, _MOST_SAMPLED = 10_000, 100, 100_000


class _Checked(Struct, frozen=True):
    """What a reading of all files found: how many rows the whole ones have, some of these, and what is wrong with the
    others."""

    rows: dict[str, int]
    sample: dict[str, list[Row]]
    broken: dict[str, str]


def order_columns(pinned: Pinned, task: WriteTask, asked: Sequence[str]) -> tuple[str, ...]:
    """The columns by the table's own names. InvalidRequest names each that cannot be ordered by, and why."""
    schema = task.schema()
    places = {name.lower(): place for place, name in enumerate(schema.names)}
    partitions = {name.lower() for name in pinned.partition_columns}
    fields = parse_schema_string(task.schema_string).by_name()
    faults, found = dict[str, str](), list[str]()
    for name in asked:
        place = places.get(name.lower())
        if place is None:
            faults[name] = f"the table has no such column; it has {', '.join(schema.names)}"
        elif name.lower() in partitions:
            faults[name] = "the table is partitioned by it, so that its files hold one value each"
        elif not is_ordered(schema.field(place).type):
            faults[name] = f"{schema.field(place).type} has no bounds by which files could be left out"
        elif (collation := fields[name.lower()].collation) is not None:
            faults[name] = f"it has the collation {collation}, so that its bounds leave out no file"
        elif place >= MAX_COLUMNS:
            faults[name] = f"bounds are kept of the first {MAX_COLUMNS} columns alone"
        elif schema.names[place] in found:
            faults[name] = "it is named twice"
        else:
            found.append(schema.names[place])
    if faults:
        told = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise InvalidRequest(
            f"{pinned.target.table} cannot be ordered by these columns: {told}.", slug="option-invalid"
        )
    if not 0 < len(found) <= MOST_COLUMNS:
        raise InvalidRequest(f"A Z-order is by one to {MOST_COLUMNS} columns.", slug="option-invalid")
    return tuple(found)


def group_partitions(files: Sequence[Add], task: WriteTask, columns: Sequence[str]) -> list[Group]:
    """All files of each partition, but for partitions that are ordered so already or are one file in any order."""
    types = partition_types(task.schema(), task.partition_columns)
    by_partition: dict[Any, list[Add]] = {}
    for file in files:
        by_partition.setdefault(partition_key(file, types), []).append(file)
    return [Group(tuple(some)) for some in by_partition.values() if _needs_order(some, task, columns)]


def _needs_order(files: Sequence[Add], task: WriteTask, columns: Sequence[str]) -> bool:
    if len(files) < 2 and sum(file.size for file in files) <= task.target_bytes:
        return False
    tags = [file.tags or {} for file in files]
    return any(tag.get(COLUMNS_TAG) != _tag(columns) for tag in tags) or len({tag.get(ORDER_TAG) for tag in tags}) > 1


def order_groups(pinned: Pinned, groups: Sequence[Group], task: WriteTask, columns: Sequence[str]) -> list[Merged]:
    """Write the rows of every group anew, in order. Costs two readings of the files, a shuffle and a sort.
    A group that needs no order without its broken files stays as it is."""
    checked = _check(pinned.target.spark, task, [file for group in groups for file in group.files], columns)
    whole = [tuple(file for file in group.files if file.path not in checked.broken) for group in groups]
    inputs = [files if _needs_order(files, task, columns) else () for files in whole]
    written: list[Add] = []
    if any(inputs):
        rows = _ordered(pinned, [files for files in inputs if files], task, columns, checked)
        # Each task was given what fills a file: what it writes of a partition is one.
        written = write_files(rows, msgspec.structs.replace(task, target_bytes=2**62), "arrow")
    tags = {COLUMNS_TAG: _tag(columns), ORDER_TAG: str(uuid.uuid4())}
    tagged = [msgspec.structs.replace(add, tags={**(add.tags or {}), **tags}) for add in written]
    try:
        return _by_group(groups, inputs, tagged, checked, task)
    except Corrupt:
        discard(task.storage, written)
        raise


def _by_group(
    groups: Sequence[Group],
    inputs: Sequence[tuple[Add, ...]],
    written: Sequence[Add],
    checked: _Checked,
    task: WriteTask,
) -> list[Merged]:
    """What was written, by the group whose rows it has; Corrupt when a group has other rows than it had."""
    types = partition_types(task.schema(), task.partition_columns)
    by_partition: dict[Any, list[Add]] = {}
    for add in written:
        by_partition.setdefault(partition_key(add, types), []).append(add)
    merged = []
    for group, files in zip(groups, inputs, strict=True):
        new = by_partition.pop(partition_key(files[0], types), []) if files else []
        before, after = sum(checked.rows[file.path] for file in files), sum(add.num_records or 0 for add in new)
        if before != after:
            raise Corrupt(f"{before} rows were to be ordered, and {after} were written: nothing was committed.")
        skipped = {file.path: checked.broken[file.path] for file in group.files if file.path in checked.broken}
        merged.append(Merged(tuple(file.path for file in files), tuple(new), skipped))
    if by_partition:
        raise Corrupt("Rows were written to partitions that they were not read from: nothing was committed.")
    return merged


def _tag(columns: Sequence[str]) -> str:
    return msgspec.json.encode(list(columns)).decode()


def _check(spark: SparkSession, task: WriteTask, files: Sequence[Add], columns: Sequence[str]) -> _Checked:
    """Read all files to their end, for one that cannot be would fail the whole sort, and sample them on the way."""
    total = sum(file.size for file in files)
    wanted = min(_MOST_SAMPLED, max(_SAMPLED, _SAMPLED_PER_FILE * total / task.target_bytes))
    bare = {
        file.path: encode_message(msgspec.structs.replace(file, stats=None, min_values=None, max_values=None))
        for file in files
    }
    shares = [[bare[one.path] for one in share] for share in shared_out(map(added, files), Splits())]

    def check(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = task.schema()
        for batch in numbers:
            for text in (text for number in batch.column(0).to_pylist() for text in shares[number]):
                file = decode_message(text)
                quota = math.ceil(wanted * file.size / max(1, total))
                rows, sample, why = _sampled(file, whole_file(task, schema, file), columns, quota)
                told = {"path": [file.path], "rows": [rows], "sample": [sample], "why": pa.array([why], pa.string())}
                yield pa.RecordBatch.from_pydict(told)

    shown = "path string, rows long, sample binary, why string"
    found = spark.range(0, len(shares), 1, len(shares)).mapInArrow(check, shown).collect()
    whole = [row for row in found if row[3] is None]
    return _Checked(
        {row[0]: row[1] for row in whole},
        {row[0]: _rows_of(pa.ipc.open_stream(bytes(row[2])).read_all().columns) for row in whole},
        {row[0]: row[3] for row in found if row[3] is not None},
    )


def _sampled(
    file: Add, batches: Iterator[pa.RecordBatch], columns: Sequence[str], quota: int
) -> tuple[int, bytes, str | None]:
    """How many rows a file has, at most so many of them as an Arrow stream, and why it cannot be read."""
    chance = random.Random(file.path)
    rate = quota / max(1, file.num_records or file.size // 16)
    rows, taken = 0, list[pa.RecordBatch]()
    try:
        for batch in batches:
            rows += batch.num_rows
            count = min(batch.num_rows, int(batch.num_rows * rate + chance.random()))
            chosen = sorted(chance.sample(range(batch.num_rows), count))
            taken.append(pa.RecordBatch.from_arrays(_images(batch.take(chosen), columns), names=list(columns)))
    except Corrupt as error:
        return 0, b"", error.detail
    sink = pa.BufferOutputStream()
    if taken:
        sample = pa.Table.from_batches(taken)
        if sample.num_rows > quota:
            sample = sample.take(sorted(chance.sample(range(sample.num_rows), quota)))
        with pa.ipc.new_stream(sink, sample.schema) as stream:
            stream.write_table(sample)
    else:
        pa.ipc.new_stream(sink, pa.schema([])).close()
    return rows, sink.getvalue().to_pybytes(), None


def _ordered(
    pinned: Pinned, groups: Sequence[Sequence[Add]], task: WriteTask, columns: Sequence[str], checked: _Checked
) -> DataFrame:
    """The rows of the groups in tasks along the curves of their partitions, each sorted."""
    from pyspark.sql.types import LongType, StructField, StructType

    shared, tasks = shared_tasks([sum(file.size for file in files) / task.target_bytes for files in groups])
    curves = [
        grown([row for file in files for row in checked.sample[file.path]], len(columns), count, first)
        for files, (first, count) in zip(groups, shared, strict=True)
    ]
    curve_of = {file.path: number for number, files in enumerate(groups) for file in files}
    listed = shared_out((added(file) for files in groups for file in files), Splits())
    shares = [[(file.path, file.partition_values, curve_of[file.path]) for file in share] for share in listed]
    # Numbered, so that no name of a user's column can be one of these, or trouble Spark.
    names = pinned.schema.names
    numbers = {name: f"c{number}" for number, name in enumerate(names)}
    fields = [StructField(numbers[field.name], field.dataType) for field in pinned.schema.fields]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = task.schema()
        for batch in batches:
            for path, values, curve in (one for number in batch.column(0).to_pylist() for one in shares[number]):
                rows = read_batches(task.storage, path, schema, absent=values)
                yield from _placed(rows, curves[curve], columns, [*numbers.values(), "z"])

    placed = pinned.target.spark.range(0, len(shares), 1, len(shares)).mapInArrow(
        read, StructType([*fields, StructField("z", LongType())])
    )

    def of(some: Sequence[str]) -> list[Column]:
        return [F.col(numbers[name]) for name in some]

    keys = [*of(pinned.partition_columns), F.col("z"), *of(columns)]
    parted = placed.repartitionById(tasks, F.shiftright("z", PLACE_BITS).cast("int")).sortWithinPartitions(*keys)
    return parted.drop("z").toDF(*names)


def _placed(
    batches: Iterator[pa.RecordBatch], curve: Node, columns: Sequence[str], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """The batches with one column more: the places of their rows."""
    first = 0
    for batch in batches:
        found = places(curve, _rows_of(_images(batch, columns)), first)
        first += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(found, pa.int64())], names=names)


def _rows_of(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _images(batch: pa.RecordBatch, columns: Sequence[str]) -> list[pa.Array]:
    return [_image(batch.column(name)) for name in columns]


def _image(column: pa.Array) -> pa.Array:
    """The values as numbers or text in the same order. Decimals lose digits, which only moves a border."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(column, 0, _PREFIX)
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column
