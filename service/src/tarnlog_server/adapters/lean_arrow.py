"""Arrow without pandas: the service never uses it, and Arrow loads it at the first Python value where it is installed.

That costs the first request a quarter of a second, and the process some forty megabytes for good.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec


class _NoPandas:
    """Among the finders of modules: says that there is no pandas. A None in its place in `sys.modules` would be read by
    Arrow as the module."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("the service does not use pandas", name=name)
        return None


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """Within the block pandas is not found, unless it is loaded already."""
    refusal = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(refusal)
