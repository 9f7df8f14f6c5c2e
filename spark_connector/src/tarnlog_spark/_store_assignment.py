"""The rules of Spark's store assignment (`spark.sql.storeAssignmentPolicy`) for values that an update or merge sets.

ANSI, the default: numbers as numbers, dates and times as such, any plain value as text; a number that does not fit its
column is an error, whatever `spark.sql.ansi.enabled` is. STRICT: numbers widen, nothing else. LEGACY would store a
changed number or a null in silence; like Spark for a DataSource V2, the connector does not, and takes it for ANSI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tarnlog_spark._errors import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

POLICY_CONF = "spark.sql.storeAssignmentPolicy"
STRICT = "STRICT"

_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_REALS: tuple[type[DataType], ...] = (FloatType, DoubleType)
_DATETIMES = (DateType, TimestampType, TimestampNTZType)
_MISFIT = "tarnlog: a value does not fit "
_INFINITE = (float("inf"), float("-inf"))


def policy(spark: SparkSession) -> str:
    """The session's policy."""
    return str(spark.conf.get(POLICY_CONF, "ANSI"))


def widens(given: DataType, wanted: DataType) -> bool:
    """Whether each value of one type is a value of the other: numbers of a family, and text under any collation."""
    if isinstance(given, StringType) and isinstance(wanted, StringType):
        return True
    for family in (_INTEGERS, _REALS):
        if type(given) in family and type(wanted) in family:
            return family.index(type(given)) <= family.index(type(wanted))
    return False


def assigns(given: DataType, wanted: DataType) -> bool:
    """Whether ANSI lets values of one type without members be stored as another (Spark's `Cast.canANSIStoreAssign`)."""
    if isinstance(given, NumericType) and isinstance(wanted, NumericType):
        return True
    if isinstance(given, _DATETIMES) and isinstance(wanted, _DATETIMES):
        return True
    plain = (NumericType, StringType, BooleanType, BinaryType, *_DATETIMES)
    return isinstance(given, plain) and type(wanted) is StringType


def converted(column: Column, given: DataType, wanted: DataType, path: tuple[str, ...]) -> Column:
    """The value as the wanted type; `understood_misfits` recognises the error of a number that does not fit.

    Only conversions between numbers can fail. `try_cast` is the same with and without ANSI mode.
    """
    if not isinstance(wanted, NumericType) or widens(given, wanted):
        return column.cast(wanted)
    where = _MISFIT + json.dumps([path, given.simpleString(), wanted.simpleString()])
    error = F.raise_error(F.concat(F.lit(where + " "), column.cast("string"), F.lit(" "))).cast(wanted)
    cast = column.try_cast(wanted)
    if isinstance(given, DoubleType) and isinstance(wanted, FloatType):
        return F.when(cast.isin(*_INFINITE) & ~column.isin(*_INFINITE), error).otherwise(cast)
    return F.coalesce(cast, F.when(column.isNotNull(), error))


@contextmanager
def understood_misfits(table: str) -> Iterator[None]:
    """Turn Spark's error about a value that does not fit its column into SchemaMismatch."""
    try:
        yield
    except PySparkException as error:
        text = str(error)
        start = text.find(_MISFIT)
        if start < 0:
            raise
        (path, given, wanted), end = json.JSONDecoder().raw_decode(text, start + len(_MISFIT))
        value = text[end:].split(maxsplit=1)[0]
        where = f" at {'.'.join(path[1:])}" if path[1:] else ""
        raise SchemaMismatch(
            {path[0]: f"{value} ({given}) does not fit {wanted}{where}"},
            table=table,
            advice="Set a value that fits, or leave such rows out; nothing was committed.",
        ) from None
