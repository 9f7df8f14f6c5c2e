"""Which files of a table a merge can touch: those that may hold a key of the source.

Of a condition with `target.column = <an expression over the source>` joined by AND, as Spark resolved it, the values of
the source's side are found by an aggregation over the source: the least and the greatest, and all where they are few.
They are a predicate for the plan, and for what the commit declares to have read: no other row was decided upon. A
condition that is not understood prunes nothing, and neither does a Connect client, which does not see how Spark
resolved it.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tarnlog.protocol.predicates import And, Compare, In, Predicate, Scalar
from tarnlog_spark._spark_schema import CHAR_VARCHAR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_log = logging.getLogger(__name__)

FEW = 1000
"""Up to so many values are named one by one; beyond, the least and the greatest stand for all."""

_LONGEST = 256
"""Characters of a text in a predicate; a longer one is a bound by its beginning, or none."""

_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_BITS_OF = {kind.typeName(): bits for kind, bits in _BITS.items()}
_PLAIN: tuple[type[DataType], ...] = (*_BITS, DateType, TimestampType, DecimalType)
_OTHERWISE = re.compile("Subquery|Exists|Python|^Current|^Now$|^LocalTimestamp$")
"""Expressions that cannot be computed over the source alone, or that give something else in each job."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Key(Struct, frozen=True):
    """A column of the table, and the expression over the source that it must equal."""

    field: StructField
    value: Any


class Values(Struct, frozen=True):
    """The values of a source's key, as a predicate has them. `all` is None where they are many; without a least value
    there is none."""

    least: Scalar | None
    greatest: Scalar | None
    all: tuple[Scalar, ...] | None = None


def source_predicate(joined: DataFrame, source: DataFrame, schema: StructType) -> Predicate | None:
    """What a row of the table must satisfy to match a row of the source; None where nothing is known.

    `joined` is the table's columns, in the order of the schema, joined with the source by the merge's condition; only
    its analysis is used. Runs one aggregation over the source, and a second one where a key has few values.
    """
    try:
        keys = _keys(joined, schema)
        if not keys:
            return None
        return predicate_of([(key.field, values) for key, values in zip(keys, _values(source, keys), strict=True)])
    except Exception as error:  # internals of Spark that are different here: all files are read, and the rows are right
        _log.warning("The files of a merge's target are not pruned by the keys of its source: %s", error)
        return None


def predicate_of(keys: Sequence[tuple[StructField, Values | None]]) -> Predicate | None:
    """All keys' values together. Pure."""
    parts = [part for field, values in keys if values is not None for part in _parts(field, values)]
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def _parts(field: StructField, values: Values) -> Iterator[Predicate]:
    name, least, greatest, all_values = field.name, values.least, values.greatest, values.all
    bits = _BITS.get(type(field.dataType))
    if bits is not None and isinstance(least, int) and isinstance(greatest, int):
        # Compared as a wider number: what the column cannot hold matches nothing.
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        least, greatest = (None, None) if least > high or greatest < low else (max(least, low), min(greatest, high))
        if all_values is not None:
            all_values = tuple(value for value in all_values if isinstance(value, int) and low <= value <= high)
    if least is None or all_values == ():
        yield In(name, (None,))  # null equals nothing
    elif all_values is not None and not _is_long(*all_values):
        yield In(name, all_values) if len(all_values) > 1 else Compare("eq", name, all_values[0])
    else:
        yield Compare("ge", name, least[:_LONGEST] if isinstance(least, str) else least)
        if greatest is not None and not _is_long(greatest):
            yield Compare("le", name, greatest)


def _is_long(*values: Scalar) -> bool:
    return any(isinstance(value, str) and len(value) > _LONGEST for value in values)


def _keys(joined: DataFrame, schema: StructType) -> list[Key]:
    """The equalities of the condition that each match demands, from Spark's analysed plan."""
    if not hasattr(joined, "_jdf"):
        return []
    plan = cast(Any, joined)._jdf.queryExecution().analyzed()
    if _kind(plan) != "Join" or plan.condition().isEmpty():
        return []
    output = plan.left().output()
    fields = {output.apply(place).exprId().id(): field for place, field in enumerate(schema.fields)}
    sides = plan.right().outputSet()
    keys = []
    for part in _conjuncts(plan.condition().get()):
        if _kind(part) != "EqualTo":
            continue
        for side, value in ((part.left(), part.right()), (part.right(), part.left())):
            field = _column(side, fields)
            if field is not None and value.references().subsetOf(sides) and _is_plain(value):
                keys.append(Key(field, _as_column(joined, value)))
                break
    return keys


def _conjuncts(expression: Any) -> Iterator[Any]:
    if _kind(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _column(expression: Any, fields: dict[int, StructField]) -> StructField | None:
    """The table's column that a side of an equality is, if bounds can decide about its type: as it is, or widened."""
    widened = _kind(expression) == "Cast"
    inner = expression.child() if widened else expression
    field = fields.get(inner.exprId().id()) if _kind(inner) == "AttributeReference" else None
    if field is None or CHAR_VARCHAR in field.metadata:
        return None
    if widened:
        bits, kept = _BITS.get(type(field.dataType)), _BITS_OF.get(expression.dataType().typeName(), 0)
        return field if bits is not None and bits <= kept else None  # a narrower number may wrap around
    return field if isinstance(field.dataType, _PLAIN) or field.dataType == StringType() else None


def _is_plain(expression: Any) -> bool:
    """Whether an expression can be computed over the source alone, and always gives the same."""
    children = expression.children()
    return (
        bool(expression.deterministic())
        and not _OTHERWISE.search(_kind(expression))
        and all(_is_plain(children.apply(place)) for place in range(children.size()))
    )


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _as_column(rows: DataFrame, expression: Any) -> Column:
    from pyspark.sql.classic.column import Column

    own: Any = rows.sparkSession
    return Column(own._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _values(source: DataFrame, keys: Sequence[Key]) -> list[Values | None]:
    """The values of each key in the source; None where they cannot be put into a predicate."""
    asked: list[Column] = []
    for key in keys:
        ends = (F.min(key.value), F.max(key.value))
        asked += [*(_portable(end, key.field.dataType) for end in ends), F.approx_count_distinct(key.value)]
    found = source.agg(*(column.alias(f"c{place}") for place, column in enumerate(asked))).collect()[0]
    few = [place for place in range(len(keys)) if 1 < found[3 * place + 2] <= FEW]
    sets = [_portable_all(F.collect_set(keys[place].value), keys[place].field.dataType) for place in few]
    listed = source.agg(*(column.alias(f"c{at}") for at, column in enumerate(sets))).collect()[0] if few else ()
    by_place = dict(zip(few, listed, strict=True))
    return [
        _as_values(found[3 * place], found[3 * place + 1], by_place.get(place), key.field.dataType)
        for place, key in enumerate(keys)
    ]


def _portable(value: Column, kind: DataType) -> Column:
    """A value in a form that Python takes over unchanged, in any time zone and any year."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(value)
    return value.cast("string") if isinstance(kind, DateType) else value


def _portable_all(values: Column, kind: DataType) -> Column:
    return F.transform(values, lambda value: _portable(value, kind))


def _as_values(least: Any, greatest: Any, listed: list[Any] | None, kind: DataType) -> Values | None:
    if least is None:
        return Values(None, None)
    ends = _scalar(least, kind), _scalar(greatest, kind)
    if None in ends:
        return None
    scalars = (ends[0],) if least == greatest else tuple(_scalar(value, kind) for value in listed or ())
    known = bool(scalars) and len(scalars) <= FEW and None not in scalars
    return Values(*ends, tuple(sorted(cast(Any, scalars))) if known else None)


def _scalar(value: Any, kind: DataType) -> Scalar | None:
    """A value as predicates have it; None where that would not be the same value."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(kind, TimestampType):
        try:
            return (_EPOCH + dt.timedelta(microseconds=value)).isoformat()
        except OverflowError:
            return None
    if isinstance(kind, DateType):
        return value if _DAY.fullmatch(value) else None
    if isinstance(value, str):
        return None if "\ufffd" in value else value  # bytes that are no text come as this
    return value if isinstance(value, int) else None
