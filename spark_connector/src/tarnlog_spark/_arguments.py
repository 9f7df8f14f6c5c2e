"""Types of arguments, checked where a user's call enters: a TypeError names the argument, what it is and what it takes.

    @takes(version=WHOLE, timestamp=MOMENT)
    def read(self, *, version: int | None = None, timestamp: ... = None): ...

None is taken where the parameter's default is None, and nowhere else. Values that have the right type and are wrong are
refused by what uses them, with InvalidRequest.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

from msgspec import Struct

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 40


class Kind(Struct, frozen=True):
    """What an argument may be, in words and as a test."""

    words: str
    holds: Callable[[object], bool]


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the named arguments of a method before it runs."""

    def checked(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        unknown = kinds.keys() - signature.parameters.keys()
        assert not unknown, f"{method.__qualname__} has no parameter {unknown}"

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return method(*args, **kwargs)  # Python's own error names the method
            for name, kind in kinds.items():
                if name in given:
                    _check(method.__name__, name, given[name], kind, signature.parameters[name])
            return method(*args, **kwargs)

        return call

    return checked


def _check(method: str, name: str, value: object, kind: Kind, parameter: inspect.Parameter) -> None:
    if value is None and parameter.default is None:
        return
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        value = list(value) if isinstance(value, tuple) else value
    if kind.holds(value):
        return
    shown = repr(value) if isinstance(value, str | bytes | numbers.Number | list | tuple | dict) else ""
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    got = "None" if value is None else f"{type(value).__name__} {shown}".rstrip()
    raise TypeError(f"{method}: {name} takes {kind.words}, not {got}.")


def _is_column(value: object) -> bool:
    from pyspark.sql import Column

    return isinstance(value, Column)


def _is_data_frame(value: object) -> bool:
    from pyspark.sql import DataFrame

    return isinstance(value, DataFrame)


def _is_schema(value: object) -> bool:
    from pyspark.sql.types import StructType

    return isinstance(value, str | StructType)


def _is_condition(value: object) -> bool:
    return isinstance(value, str) or _is_column(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes | Mapping)
        and not hasattr(value, "__next__")  # it could be read once only, and was read here
        and all(isinstance(name, str) for name in value)
    )


def _maps(value: object, holds: Callable[[object], bool]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) and holds(one) for name, one in value.items())


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", _is_whole)
NUMBER = Kind("a number", lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool))
MOMENT = Kind(
    "a datetime, text such as '2024-01-31T10:00:00Z', or whole milliseconds since 1970",
    lambda value: isinstance(value, str | dt.datetime) or _is_whole(value),
)
NAMES = Kind("a list of column names such as ['day']", _are_names)
CONDITION = Kind("SQL text or a Column", _is_condition)
ASSIGNMENTS = Kind(
    "a mapping of column names to SQL text or Columns, such as {'amount': 'amount * 2'}",
    lambda value: _maps(value, _is_condition),
)
TEXTS = Kind("a mapping of text to text", lambda value: _maps(value, lambda one: isinstance(one, str)))
DATA_FRAME = Kind("a DataFrame", _is_data_frame)
SCHEMA = Kind("a StructType, or DDL text such as 'id long, day date'", _is_schema)
SESSION = Kind("a SparkSession", lambda value: hasattr(value, "createDataFrame"))
