"""Arguments as people type them, parsed; what does not parse is wrong usage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import typer

from tarnlog.cli.humane import parse_moment

T = TypeVar("T")


def usage(parse: Callable[[str], T], text: str) -> T:
    """The parsed text; a ValueError becomes a message about usage."""
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def moment(text: str | None) -> int | None:
    """Epoch milliseconds from what was typed."""
    return None if text is None else usage(parse_moment, text)


def properties(items: Iterable[str] | None) -> dict[str, str]:
    """`key=value` each."""
    found: dict[str, str] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{item!r} is no property: write key=value")
        found[key] = value
    return found


def names(items: Iterable[str] | None) -> list[str]:
    """Names, given several times or with commas between."""
    return [name.strip() for item in items or () for name in item.split(",") if name.strip()]
