"""The PySpark connector of tarnlog: tables that many Spark jobs write at once, read and written as DataFrames.

    import tarnlog_spark

    spark = tarnlog_spark.session()                        # on a laptop; a cluster brings its own
    orders = tarnlog_spark.Table.for_name(spark, "sales.orders")
    orders.write(df)
    orders.read("day = '2024-01-01'").show()

Names are loaded when they are first used: a task that only writes files pays for no more than that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarnlog_spark._changing import ChangeResult
    from tarnlog_spark._errors import ConflictError, ConstraintError, JavaNotUsable, SchemaMismatch
    from tarnlog_spark._functions import register
    from tarnlog_spark._merge_counts import MergeResult
    from tarnlog_spark._merging import Merge
    from tarnlog_spark._optimizing import Optimize, OptimizeResult
    from tarnlog_spark._restoring import RestoreResult
    from tarnlog_spark._session import session
    from tarnlog_spark._table import Table
    from tarnlog_spark._views import refresh
    from tarnlog_spark._writes import WriteResult

_HOME_OF = {
    "ChangeResult": "_changing",
    "ConflictError": "_errors",
    "ConstraintError": "_errors",
    "JavaNotUsable": "_errors",
    "Merge": "_merging",
    "MergeResult": "_merge_counts",
    "Optimize": "_optimizing",
    "OptimizeResult": "_optimizing",
    "RestoreResult": "_restoring",
    "SchemaMismatch": "_errors",
    "Table": "_table",
    "WriteResult": "_writes",
    "refresh": "_views",
    "register": "_functions",
    "session": "_session",
}

__all__ = [
    "ChangeResult",
    "ConflictError",
    "ConstraintError",
    "JavaNotUsable",
    "Merge",
    "MergeResult",
    "Optimize",
    "OptimizeResult",
    "RestoreResult",
    "SchemaMismatch",
    "Table",
    "WriteResult",
    "refresh",
    "register",
    "session",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'tarnlog_spark' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"tarnlog_spark.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
