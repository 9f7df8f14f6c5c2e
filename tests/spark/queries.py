"""Streaming queries on a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TOO_BUSY = "Python worker failed to connect back"
"""Spark gives the process of a source ten seconds to start, whatever else the machine does; nothing has run then."""


def finished(start: Callable[[], StreamingQuery], *, seconds: int = 240) -> StreamingQuery:
    """Start a query and wait for its end; raises what it ended with. Started again when Spark was too impatient."""
    for _ in range(5):
        query = start()
        try:
            assert query.awaitTermination(seconds), "the query does not end"
        except Exception as error:
            if _TOO_BUSY not in str(error):
                raise
            continue
        return query
    raise AssertionError("the machine is too busy for Spark to start a Python process")
