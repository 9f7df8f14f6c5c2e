"""Errors of the format as their sentence, without the stack of the process that Spark started for it.

Spark puts the text of an exception that a data source raises into its own, and that text begins with a traceback unless
the worker's environment has SPARK_HIDE_TRACEBACK. A worker ends with the exception, so the variable is set when one is
on its way out, and concerns no other. Exceptions that the connector does not raise on purpose keep their traceback.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tarnlog import TarnlogError

P = ParamSpec("P")
R = TypeVar("R")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Let a TarnlogError leave a Spark worker without its traceback. Changes nothing in any other process."""
    try:
        yield
    except TarnlogError:
        if "pyspark.worker_util" in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def entry(method: Callable[P, R]) -> Callable[P, R]:
    """Mark a method that Spark calls in a worker: its errors are plain."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with plain_errors():
            return method(*args, **kwargs)

    return call
