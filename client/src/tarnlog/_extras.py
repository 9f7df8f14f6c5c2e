"""Libraries that only some uses need: asked for when they are used, with an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from tarnlog._errors import InvalidRequest


def needed(module: str, extra: str) -> Any:
    """The module; InvalidRequest says which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidRequest(f"This needs {module}: install it with pip install 'tarnlog[{extra}]'.") from None
