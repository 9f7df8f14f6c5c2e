"""What is kept for one Spark session, and goes with it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerSession(Generic[T]):
    """One object for each session, made when it is first asked for; by several threads, the same."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, spark: Any) -> T:
        with self._lock:
            if spark not in self._kept:
                self._kept[spark] = self._make()
            return self._kept[spark]
