"""Data files as Arrow batches that match a schema exactly: order, types, nullability.

Columns are found by name (case matters only where it tells two apart); a column that a file lacks is its partition
value, else null; narrower numbers widen. Memory is one batch, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tarnlog import Corrupt, TarnlogError, Unavailable
from tarnlog._arrow_schema import partition_scalar
from tarnlog_spark._storage import Storage

BATCH_ROWS = 65_536


def read_batches(
    storage: Storage,
    path: str,
    schema: pa.Schema,
    *,
    absent: Mapping[str, str | None] | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file. Corrupt names the file when it is gone, no Parquet, or of other types; Unavailable when its
    storage does not give it out now, which says nothing about the file.

    `absent` has text for columns that the file may lack (partition values); `fixed` columns are never read from it.
    """
    try:
        with storage.filesystem.open_input_file(storage.path(path)) as source:
            # Spark's old INT96 timestamps reach further than nanoseconds do.
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            columns = _Columns(schema, file.schema_arrow.names, absent or {}, fixed or {})
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns.stored):
                yield columns.conformed(batch)
    except FileNotFoundError as error:
        raise _missing(storage, path, error) from None
    except (pa.ArrowCancelled, MemoryError):
        raise
    except pa.ArrowException as error:
        raise _unreadable(path, error) from None
    except OSError as error:
        raise _judged(storage, path, error) from None


def _missing(storage: Storage, path: str, error: OSError) -> TarnlogError:
    """A file that is not there is damage, unless the whole table is not there: then its disk or bucket is away."""
    folder = storage.path("file").rpartition("/")[0]
    try:
        away = storage.filesystem.get_file_info(folder).type == pafs.FileType.NotFound
    except OSError as why:
        return _unreachable(path, why)
    if away:
        return _unreachable(path, error)
    return Corrupt(
        f"The data file {path} of the table is gone: it was deleted by hand, or vacuumed after a version that "
        "this read still uses. Read a newer version.",
        slug="data-file-missing",
    )


def _judged(storage: Storage, path: str, error: OSError) -> TarnlogError:
    """pyarrow has one error for bytes that do not come and for bytes that it cannot decode. Reads the file once more,
    to its end, and looks which of the two it is."""
    source: _Source | None = None
    try:
        with storage.filesystem.open_input_file(storage.path(path)) as opened:
            source = _Source(opened)
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            for _ in file.iter_batches(batch_size=BATCH_ROWS):
                pass
    except (pa.ArrowException, OSError) as again:
        if source is not None and source.failure is None:
            return _unreadable(path, again)
    return _unreachable(path, error)  # also where it is read well this time


class _Source:
    """A file for pyarrow that remembers whether reading it failed."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self.failure: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._file.read(None if size < 0 else size))
        except OSError as error:
            self.failure = error
            raise

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self.closed = True


def _unreadable(path: str, error: Exception) -> Corrupt:
    return Corrupt(f"The data file {path} cannot be read: {error}", slug="data-file-unreadable")


def _unreachable(path: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"The storage did not give out the data file {path}, which may be whole: {error}. Check that the storage is up "
        "and that tasks may read it, and try again.",
        slug="data-file-unreachable",
    )


def as_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of another schema in this one's order and types; what they lack is null."""
    columns: _Columns | None = None
    for batch in batches:
        columns = columns or _Columns(schema, batch.schema.names, {}, {})
        yield columns.conformed(batch)


class _Columns:
    """Where each column of the schema comes from, decided once a file."""

    def __init__(
        self, schema: pa.Schema, stored: list[str], absent: Mapping[str, str | None], fixed: Mapping[str, Any]
    ) -> None:
        self.schema = schema
        self._from = {field.name: _stored_name(field.name, stored) for field in schema if field.name not in fixed}
        self.stored = [name for name in self._from.values() if name is not None]
        self._values = {
            field.name: _value(field, absent, fixed) for field in schema if self._from.get(field.name) is None
        }

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the schema's order and types."""
        columns = []
        for field in self.schema:
            value = self._values.get(field.name)
            if value is None:
                column = conform(batch.column(self._from[field.name]), field.type)
            else:
                column = pa.repeat(value, batch.num_rows)
            if not field.nullable and column.null_count:
                raise pa.ArrowInvalid(f"column {field.name} has nulls, but the schema says that it has none")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _value(field: pa.Field, absent: Mapping[str, str | None], fixed: Mapping[str, Any]) -> pa.Scalar:
    if field.name in fixed:
        return pa.scalar(fixed[field.name], field.type)
    try:
        return partition_scalar(absent.get(field.name), field.type)
    except ValueError as error:
        raise pa.ArrowInvalid(f"its partition value of {field.name} cannot be read: {error}") from None


def _stored_name(name: str, stored: list[str]) -> str | None:
    if name in stored:
        return name
    return next((other for other in stored if other.lower() == name.lower()), None)


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The array as another type: members of structs by name, absent ones null, numbers widened. ArrowException if not.

    A value that does not fit is refused, never cut.
    """
    if array.type.equals(wanted):
        return array
    if pa.types.is_dictionary(array.type):
        return conform(array.dictionary_decode(), wanted)
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        return _struct(array, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        keys = conform(array.keys, wanted.key_type)
        items = conform(array.items, wanted.item_type)
        return _nested(array, wanted, pa.StructArray.from_arrays([keys, items], fields=_entry_fields(wanted)))
    if pa.types.is_list(wanted) and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        small = array if pa.types.is_list(array.type) else array.cast(pa.list_(array.type.value_field))
        return _nested(small, wanted, conform(small.values, wanted.value_type))
    if pa.types.is_nested(wanted) or pa.types.is_nested(array.type):
        raise pa.ArrowInvalid(f"{array.type} is stored where the schema has {wanted}")
    return array.cast(wanted)


def _struct(array: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    children = []
    for index in range(wanted.num_fields):
        field = wanted.field(index)
        stored = _stored_name(field.name, names)
        if stored is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            children.append(conform(array.field(names.index(stored)), field.type))
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    mask = pc.is_null(array) if array.null_count else None
    if not children:
        return array.cast(wanted)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _entry_fields(wanted: pa.MapType) -> list[pa.Field]:
    return [wanted.key_field.with_nullable(False), wanted.item_field]


def _nested(array: pa.Array, wanted: pa.DataType, values: pa.Array) -> pa.Array:
    """A list or map over other values: the same offsets and nulls, buffers shared."""
    validity = array.buffers()[0]
    return pa.Array.from_buffers(
        wanted, len(array), [validity, array.buffers()[1]], offset=array.offset, children=[values]
    )
