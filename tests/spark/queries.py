"""Streaming queries on a busy machine."""

from __future__ import annotations

import threading
import time
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


class Running:
    """A query that goes on until it is stopped, started again on its checkpoint when Spark was too impatient."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._query = start()
        self._restarts = 0
        self._lock = threading.Lock()

    def until(self, condition: Callable[[], bool], *, seconds: float = 240) -> None:
        """Wait while it runs; raises what it ended with."""
        give_up = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up, f"the query does not get there: {self._query.lastProgress}"
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        """That it runs, or runs again; raises what it ended with."""
        with self._lock:
            if self._query.isActive:
                return
            error = self._query.exception()
            assert error is not None, "somebody stopped it"
            if _TOO_BUSY not in str(error) or self._restarts >= 5:
                raise error
            self._restarts += 1
            self._query = self._start()

    def stop(self) -> None:
        self._query.stop()
