"""What the log says about a data file: bounds and null counts from the footer that its writer just wrote.

Values are written as text that the service compares by the column's type. Only top-level columns of an ordered type
have bounds. Where the footer is silent (NaN alone, very long text) there is no bound, and the file is never skipped.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from tarnlog.protocol.values import MAX_EPOCH_DAYS

MAX_COLUMNS = 32
"""Statistics are kept for so many columns, the first of the schema: every commit and state carries them."""

_FIRST_DAY = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (arithmetic on the calendar; the zone is spelled by its type)
_FIRST_MICROS = -62_135_596_800_000_000
_LAST_MICROS = 253_402_300_799_999_999


class FileStatistics(Struct, frozen=True):
    """Bounds and counts as an `add` carries them."""

    num_records: int
    min_values: dict[str, str]
    max_values: dict[str, str]
    null_counts: dict[str, int]

    @property
    def json(self) -> str:
        """The `stats` text of an add: what has no field of its own there."""
        return json.dumps({"numRecords": self.num_records, "nullCount": self.null_counts}, ensure_ascii=False)


def statistics_of(
    footer: pq.FileMetaData, schema: pa.Schema, *, cut_at: int, nan_hides_bounds: bool = False
) -> FileStatistics:
    """The statistics of a file from its footer. Text bounds are cut to `cut_at` UTF-16 units.

    nan_hides_bounds: the writer gives no bounds where there is a NaN, also of the numbers beside it, as Spark's does;
    Arrow's leaves out NaN alone.
    """
    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    nulls: dict[str, int] = {}
    for field, leaf in flat_columns(schema):
        chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
        known = [chunk.statistics for chunk in chunks]
        if all(found is not None and found.has_null_count for found in known):
            nulls[field.name] = sum(found.null_count for found in known)
        bounds = _bounds(field.type, chunks, nan_hides_bounds=nan_hides_bounds)
        if bounds is not None:
            least[field.name] = _cut_min(value_text(bounds[0], field.type), field.type, cut_at)
            greatest[field.name] = _cut_max(value_text(bounds[1], field.type), field.type, cut_at)
    return FileStatistics(footer.num_rows, least, greatest, nulls)


def value_text(value: Any, kind: pa.DataType) -> str:
    """A value as the log spells it. Dates and timestamps are days and microseconds since 1970."""
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_date(kind):
        # What the calendar of most readers does not reach is written as the number of the day.
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat() if _is_day(value) else str(value)
    if pa.types.is_timestamp(kind):
        return _timestamp_text(value, zoned=kind.tz is not None)
    if pa.types.is_floating(kind):
        return _float_text(value)
    if pa.types.is_decimal(kind):
        return format(value, "f")
    return str(value)


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column as `value_text` takes them."""
    if pa.types.is_date(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of the type have bounds, and may name a partition."""
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(test(kind) for test in tests)


def flat_columns(schema: pa.Schema, *, limit: int | None = MAX_COLUMNS) -> Iterator[tuple[pa.Field, int]]:
    """The first top-level columns without parts, each with its place among the leaves of a Parquet file."""
    leaf = 0
    for field in list(schema)[:limit]:
        if not pa.types.is_nested(field.type):
            yield field, leaf
        leaf += _leaves(field.type)


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    return _leaves(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 1


def same_types(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values: members by name and order, whatever may be null."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        ours, theirs = list(one), list(other)
        return [field.name for field in ours] == [field.name for field in theirs] and all(
            same_types(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
        )
    if pa.types.is_map(one) and pa.types.is_map(other):
        return same_types(one.key_type, other.key_type) and same_types(one.item_type, other.item_type)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return same_types(one.value_type, other.value_type)
    return bool(one.equals(other))


def _bounds(kind: pa.DataType, chunks: list[Any], *, nan_hides_bounds: bool) -> tuple[Any, Any] | None:
    """The least and greatest value over all row groups; None when one of them does not say."""
    if not is_ordered(kind):
        return None
    spans = []
    for chunk in chunks:
        found = chunk.statistics
        if found is not None and found.has_min_max:
            spans.append(_typed(found, kind))
        elif not _says_nothing(found, chunk, kind, nan_hides_bounds):
            return None
    if pa.types.is_date(kind) and any(abs(end) > MAX_EPOCH_DAYS for span in spans for end in span):
        return None  # such a number is not read as a day
    if pa.types.is_floating(kind) and any(math.isnan(end) for span in spans for end in span):
        return None  # Spark's writer may take NaN for the greatest number, and readers do not agree on that
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


def _says_nothing(found: Any, chunk: Any, kind: pa.DataType, nan_hides_bounds: bool) -> bool:
    """Whether a row group without bounds has no values that need any: nulls alone, or NaN, which bounds never show."""
    if pa.types.is_floating(kind) and not nan_hides_bounds:
        return True
    return found is not None and found.has_null_count and bool(found.null_count == chunk.num_values)


def _typed(found: Any, kind: pa.DataType) -> tuple[Any, Any]:
    raw = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return (found.min_raw, found.max_raw) if raw else (found.min, found.max)


def _is_day(value: int) -> bool:
    return _FIRST_DAY <= value <= _LAST_DAY


def _timestamp_text(micros: int, *, zoned: bool) -> str:
    if not _FIRST_MICROS <= micros <= _LAST_MICROS:
        return str(micros)
    moment = _EPOCH + dt.timedelta(microseconds=micros)
    return moment.isoformat(timespec="microseconds") + ("Z" if zoned else "")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cut_min(text: str, kind: pa.DataType, units: int) -> str:
    """A prefix is still a lower bound."""
    return _prefix(text, units, fill=False) if _is_text(kind) else text


def _cut_max(text: str, kind: pa.DataType, units: int) -> str:
    """A cut maximum keeps at least `units` units: by that length every reader knows that it has no upper end."""
    return _prefix(text, units, fill=True) if _is_text(kind) else text


def _prefix(text: str, units: int, *, fill: bool) -> str:
    """The characters that fit into so many UTF-16 units, or, to fill them, those and the one across the cut."""
    if len(text) * 2 <= units:
        return text
    used = 0
    for index, char in enumerate(text):
        used += 2 if char > "\uffff" else 1
        if used > units:
            return text[: index + 1] if fill and used - units == 1 and char > "\uffff" else text[:index]
    return text
