"""The entries of a manifest in few bytes: what a reader of Avro leaves in memory is mostly slack, nulls and keys.

Maps whose rows agree on their keys become a column of texts for each key, few texts become codes, and what is the same
in every row is kept once. Nothing is lost: the records of a row are as they were before, whatever the packing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog_server.codec.wanted_entries import partition_texts

_NEEDED = {"path": pa.string(), "size": pa.int64(), "addedAtVersion": pa.int64(), "addedAtTimestamp": pa.int64()}
_MAPS_BY_KEY = ("partitionValues", "minValues", "maxValues")
_MOST_KEYS = 64
MOST_ROWS = 1_000_000
_MOST_BYTES = 2**30
"""Arrow's texts take 2 GiB of one column: more is packed apart."""


class UnexpectedColumns(ValueError):
    """The batches are not those of our own manifests: decode them another way."""


def checked_entries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without columns that say nothing; UnexpectedColumns when it is not one of entries."""
    for name, kind in _NEEDED.items():
        if name not in batch.schema.names or batch.column(name).type != kind or batch.column(name).null_count:
            raise UnexpectedColumns(f"column {name!r} is not there in full as {kind}")
    known = [name for name in batch.schema.names if batch.column(name).null_count < batch.num_rows]
    return batch.select(known)


class PackedEntries:
    """Some entries, immutable. `versions` and `times` are those that added each."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Batches of entries, in their order. Raises UnexpectedColumns. Costs a copy."""
        tables = [pa.Table.from_batches([checked_entries(batch)]) for batch in batches if batch.num_rows]
        table = pa.concat_tables(tables, promote_options="default") if tables else pa.table(_nothing())
        columns = {name: _whole(table.column(name)) for name in table.column_names}
        self.versions = columns.pop("addedAtVersion")
        self.times = columns.pop("addedAtTimestamp")
        self._rows = len(self.versions)
        self._by_key: dict[str, dict[str, pa.Array]] = {}
        self._constants: dict[str, pa.Scalar] = {}
        self._columns: dict[str, pa.Array] = {}
        for name, column in columns.items():
            by_key = _by_key(column) if name in _MAPS_BY_KEY else None
            if by_key is not None:
                few = name == "partitionValues"
                self._by_key[name] = {key: _few_texts(texts) if few else texts for key, texts in by_key.items()}
            elif name != "path" and _is_constant(column):
                self._constants[name] = column[0]
            else:
                self._columns[name] = column if name == "path" else _few_texts(column)

    @classmethod
    def merged(cls, parts: Sequence[PackedEntries], *, use_up: bool = False) -> list[PackedEntries]:
        """The same entries in few large parts, which are read faster than many small ones.

        With `use_up` the given ones are emptied on the way: both together would be twice the memory.
        """
        found: list[PackedEntries] = []
        waiting: list[PackedEntries] = []
        for part in filter(len, parts):
            rows, size = sum(map(len, waiting)) + len(part), sum(one.nbytes for one in waiting) + part.nbytes
            if waiting and (rows > MOST_ROWS or size > _MOST_BYTES):
                found.append(_joined(waiting, use_up))
                waiting = []
            waiting.append(part)
        return [*found, _joined(waiting, use_up)] if waiting else found

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """The bytes it holds."""
        texts = [one for by_key in self._by_key.values() for one in by_key.values()]
        return int(sum(column.nbytes for column in [*self._columns.values(), *texts, self.versions, self.times]))

    @property
    def paths(self) -> pa.Array:
        return self._columns["path"]

    @property
    def names(self) -> list[str]:
        """The fields that some entry has."""
        return [*self._columns, *self._by_key, *self._constants]

    def texts(self, name: str, key: str, places: pa.Array | None = None) -> pa.Array:
        """What a map says of one key, in all rows or at some places; null where it says nothing."""
        if name in self._by_key and key in self._by_key[name]:
            found = self._by_key[name][key]
            return (found if places is None else found.take(places)).cast(pa.string())
        if name in self._columns and name not in self._by_key:
            maps = self._columns[name]
            return pc.map_lookup(maps if places is None else maps.take(places), pa.scalar(key), "last")
        return pa.nulls(self._rows if places is None else len(places), pa.string())

    def partition_texts(self, column: str) -> pa.Array:
        """The values of a partition column in all rows, under whatever case of its name."""
        name = "partitionValues"
        if name in self._columns:
            return partition_texts(self._columns[name], column)
        found = self.texts(name, column)
        others = [key for key in self._by_key.get(name, ()) if key != column and key.lower() == column.lower()]
        return pc.coalesce(found, *(self.texts(name, key) for key in others)) if others else found

    def keys_of(self, name: str) -> list[str]:
        """The keys of a map, where every row has all of them in this order; else none."""
        return list(self._by_key.get(name, ()))

    def constant(self, name: str) -> Any:
        """The value of a field that is the same in every row; None where it is not."""
        return self._constants[name].as_py() if name in self._constants else None

    def values(self, name: str) -> list[Any]:
        """One field of all rows as Python values, maps as dicts; None where there is none."""
        if name in self._constants:
            value = self._constants[name].as_py()
            return [value] * self._rows
        if name in self._by_key:
            return _dicts(self._by_key[name], self._rows)
        return python_values(self._columns[name]) if name in self._columns else [None] * self._rows

    def is_plain(self, partition_columns: Collection[str]) -> bool:
        """Whether no record has unknown fields, and each names a value for every partition column."""
        if "extra" in self._columns or "extra" in self._constants:
            return False
        return not partition_columns or len(self._by_key.get("partitionValues", ())) >= len(partition_columns)

    def _type(self, name: str) -> pa.DataType | None:
        """The type of a field, codes apart; None when nothing tells."""
        if name in self._by_key:
            return pa.map_(pa.string(), pa.string())
        kind = self._constants[name].type if name in self._constants else None
        kind = self._columns[name].type if name in self._columns else kind
        return kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind

    def _drop(self, name: str) -> None:
        for fields in (self._by_key, self._constants, self._columns):
            fields.pop(name, None)

    def records(self, places: pa.Array | None) -> Iterator[dict[str, Any]]:
        """The records of some rows without their versions and times, made in one go; of all rows when None."""
        taken = self if places is None else self.taken(places)
        if not len(taken):
            return iter(())
        names = taken.names
        columns = [taken.values(name) for name in names]
        # All columns have as many values: asking again for each row would cost as much as making it.
        return (dict(zip(names, values)) for values in zip(*columns))  # noqa: B905

    def taken(self, places: pa.Array) -> PackedEntries:
        """Some rows, in the order given. Costs those rows."""
        found = object.__new__(PackedEntries)
        found._rows = len(places)
        found._constants = self._constants
        found._columns = {name: column.take(places) for name, column in self._columns.items()}
        found._by_key = {
            name: {key: texts.take(places) for key, texts in by_key.items()} for name, by_key in self._by_key.items()
        }
        found.versions, found.times = self.versions.take(places), self.times.take(places)
        return found

    def sliced(self, start: int, length: int) -> PackedEntries:
        """Rows that follow each other, not copied."""
        found = object.__new__(PackedEntries)
        found._rows = length
        found._constants = self._constants
        found._columns = {name: column.slice(start, length) for name, column in self._columns.items()}
        found._by_key = {
            name: {key: texts.slice(start, length) for key, texts in by_key.items()}
            for name, by_key in self._by_key.items()
        }
        found.versions, found.times = self.versions.slice(start, length), self.times.slice(start, length)
        return found

    def slices(self, rows: int) -> Iterator[PackedEntries]:
        """All of them, some rows at a time."""
        for start in range(0, self._rows, rows):
            yield self.sliced(start, min(rows, self._rows - start))

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One field as an Arrow column of a type, maps as maps."""
        if name in self._constants:
            return _repeated(self._constants[name], self._rows, kind)
        if name in self._by_key:
            return _map_of(self._by_key[name], self._rows, kind)
        if name not in self._columns:
            return pa.nulls(self._rows, kind)
        return _as(self._columns[name], kind)


def _joined(parts: list[PackedEntries], use_up: bool) -> PackedEntries:
    if len(parts) == 1:
        return parts[0]
    found = object.__new__(PackedEntries)
    found._rows = sum(map(len, parts))
    found._by_key, found._constants, found._columns = {}, {}, {}
    found.versions = pa.concat_arrays([part.versions for part in parts])
    found.times = pa.concat_arrays([part.times for part in parts])
    for name in dict.fromkeys(name for part in parts for name in part.names):
        keys = [list(part._by_key.get(name, ())) for part in parts]
        constants = {part._constants.get(name) for part in parts}
        if keys[0] and all(one == keys[0] for one in keys):
            few = name == "partitionValues"
            columns = {key: pa.concat_arrays([part.texts(name, key) for part in parts]) for key in keys[0]}
            found._by_key[name] = {key: _few_texts(texts) if few else texts for key, texts in columns.items()}
        elif len(constants) == 1 and None not in constants:
            found._constants[name] = constants.pop()
        else:
            kind = next(kind for part in parts if (kind := part._type(name)) is not None)
            column = pa.concat_arrays([part.column(name, kind) for part in parts])
            found._columns[name] = column if name == "path" else _few_texts(column)
        for part in parts if use_up else ():
            part._drop(name)
    return found


def python_values(column: pa.Array) -> list[Any]:
    """A column as Python values, a map as a dict: several times faster than Arrow's own way for maps."""
    if not pa.types.is_map(column.type):
        if pa.types.is_dictionary(column.type):
            texts = column.dictionary.to_pylist()
            return [None if code is None else texts[code] for code in column.indices.to_pylist()]
        values: list[Any] = column.to_pylist()
        return values
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = column.keys.slice(first, last - first).to_pylist()
    items = column.items.slice(first, last - first).to_pylist()
    maps: list[Any] = [
        dict(zip(keys[a - first : b - first], items[a - first : b - first], strict=True)) for a, b in pairwise(offsets)
    ]
    if column.null_count:
        return [one if valid else None for one, valid in zip(maps, column.is_valid().to_pylist(), strict=True)]
    return maps


def _nothing() -> dict[str, pa.Array]:
    return {name: pa.array([], kind) for name, kind in _NEEDED.items()}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array in memory of its own, as large as its values: those of other libraries have slack."""
    chunks = column.chunks
    return pa.concat_arrays(chunks if len(chunks) > 1 else [*chunks, *chunks[:0], chunks[0].slice(0, 0)])


def _is_constant(column: pa.Array) -> bool:
    if not len(column) or column.null_count or pa.types.is_nested(column.type):
        return False
    return not pc.any(pc.not_equal(column, column[0])).as_py()


def _few_texts(column: pa.Array) -> pa.Array:
    """A column of few different texts as codes."""
    if not pa.types.is_string(column.type):
        return column
    coded = column.dictionary_encode()
    if 4 * len(coded.dictionary) > len(column):
        return column
    small = pa.int8() if len(coded.dictionary) < 2**7 else pa.int16() if len(coded.dictionary) < 2**15 else pa.int32()
    return pa.DictionaryArray.from_arrays(coded.indices.cast(small), coded.dictionary)


def _by_key(column: pa.Array) -> dict[str, pa.Array] | None:
    """A map as a column for each key; None unless every row has all of the same keys, in one order, and texts."""
    offsets = column.offsets
    items, keys = column.items, column.keys
    sizes = pc.min_max(pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))).as_py()
    width = sizes["max"]
    if column.null_count or not width or sizes["min"] != width or width > _MOST_KEYS or items.null_count:
        return None
    first = offsets[0].as_py()
    items, keys = items.slice(first, width * len(column)), keys.slice(first, width * len(column))
    names = keys.slice(0, width).to_pylist()
    if len(set(names)) < width or not pa.types.is_string(items.type):
        return None
    # Each row names what the row before it names, so all name what the first does.
    if pc.any(pc.not_equal(keys.slice(width), keys.slice(0, len(keys) - width))).as_py():
        return None
    if width == 1:
        return {names[0]: pa.concat_arrays([items, items.slice(0, 0)])}
    return {name: items.take(pa.arange(at, len(items), width)) for at, name in enumerate(names)}


def _dicts(by_key: dict[str, pa.Array], rows: int) -> list[dict[str, Any]]:
    names = list(by_key)
    if len(names) == 1:
        return [{names[0]: value} for value in python_values(by_key[names[0]])]
    columns = [python_values(texts) for texts in by_key.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _repeated(value: pa.Scalar, rows: int, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.repeat(value.cast(kind), rows)
    codes = pa.repeat(pa.scalar(0, kind.index_type), rows)
    return pa.DictionaryArray.from_arrays(codes, pa.array([value.as_py()], kind.value_type))


def _map_of(by_key: dict[str, pa.Array], rows: int, kind: pa.DataType) -> pa.Array:
    """Columns by key as the map that they were."""
    texts = [_as(one, pa.string()) for one in by_key.values()]
    keys = [pa.repeat(pa.scalar(name, pa.string()), rows) for name in by_key]
    items, names = texts[0], keys[0]
    width = len(by_key)
    if width > 1:
        woven = _woven(width, rows)
        items, names = pa.concat_arrays(texts).take(woven), pa.concat_arrays(keys).take(woven)
    offsets = pa.arange(0, width * rows + 1, width).cast(pa.int32())
    return pa.MapArray.from_arrays(offsets, names, items, type=kind)


def _woven(width: int, rows: int) -> pa.Array:
    """In which order columns that lie one after the other are taken, so that the values of a row follow each other."""
    places = pa.arange(0, width * rows)
    row = pc.divide(places, width)
    return pc.add(row, pc.multiply(pc.subtract(places, pc.multiply(row, width)), rows))


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_map(kind):
        # Only the names and nullability of the fields differ: the parts are the same.
        found = pa.MapArray.from_arrays(column.offsets, column.keys, column.items, type=kind)
        return found if not column.null_count else pc.if_else(column.is_valid(), found, pa.scalar(None, kind))
    if pa.types.is_dictionary(kind):
        coded = column if pa.types.is_dictionary(column.type) else column.cast(kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(kind.index_type), coded.dictionary)
    return column.cast(kind)
