"""The PySpark connector of tarnlog: tables that many Spark jobs write at once, read and written as DataFrames.

import tarnlog_spark

spark = tarnlog_spark.session()                        # on a laptop; a cluster brings its own
"""

from __future__ import annotations

from tarnlog_spark._errors import ConflictError, ConstraintError, JavaNotUsable, SchemaMismatch
from tarnlog_spark._session import session

__all__ = [
    "ConflictError",
    "ConstraintError",
    "JavaNotUsable",
    "SchemaMismatch",
    "session",
]
