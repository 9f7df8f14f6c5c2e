"""Cutting long text bounds, so that a state with a million files stays small, without making any filter wrong.

A cut minimum is a prefix of the true one, hence still a lower bound. A cut maximum is below the true one, hence no
bound at all: it keeps at least as many UTF-16 units as the cut length, and by that length every reader knows that it
has no upper end. So a maximum is never cut to fewer units, not even to keep a surrogate pair whole: it takes the pair
in. Only text columns are cut (half a number is another number), and partition columns never.

Nothing brings a cut value back: what a reader restores is the meaning, by `is_open_ended`. The length must be known to
whoever compares, so a state records the smallest one at which its table's bounds were ever cut (`recorded_length`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import msgspec

from tarnlog.protocol.actions import Add
from tarnlog.protocol.schema import Primitive, Schema
from tarnlog_server.core.column_order import utf16_length

_TEXT_TYPES = ("string", "varchar", "char")
_Cut: TypeAlias = Callable[[str, int], str]


def text_columns(schema: Schema, partition_columns: Collection[str]) -> frozenset[str]:
    """The columns whose bounds may be cut, in lower case. A column that the schema does not have is not among them."""
    partitions = {name.lower() for name in partition_columns}
    return frozenset(
        name
        for name, field in schema.by_name().items()
        if name not in partitions and isinstance(field.type, Primitive) and field.type.kind in _TEXT_TYPES
    )


def truncate(add: Add, columns: Collection[str], max_length: int, max_greatest: int | None = None) -> Add:
    """The file with the bounds of `columns` (lower case) cut to `max_length` UTF-16 units; the same one if none is.

    Maxima are cut to `max_greatest` units where that is given.
    """
    least = _cut(add.min_values, columns, max_length, cut_min)
    greatest = _cut(add.max_values, columns, max_greatest or max_length, cut_max)
    if least is add.min_values and greatest is add.max_values:
        return add
    return msgspec.structs.replace(add, min_values=least, max_values=greatest)


def cut_min(text: str, max_length: int) -> str:
    """A lower bound of at most `max_length` units."""
    return text if utf16_length(text) <= max_length else text[: _characters(text, max_length)[0]]


def cut_max(text: str, max_length: int) -> str:
    """A maximum of at least `max_length` units if anything was cut: that length says that it has no upper end."""
    return text if utf16_length(text) <= max_length else text[: _characters(text, max_length)[1]]


def recorded_length(previous: int | None, max_length: int) -> int:
    """What the next state records: lengthening the setting does not lengthen what was cut before."""
    return max_length if previous is None else min(previous, max_length)


def _cut(values: dict[str, str] | None, columns: Collection[str], max_length: int, cut: _Cut) -> dict[str, str] | None:
    if values is None:
        return None
    changed = {
        name: shorter
        for name, text in values.items()
        # A text of at most half the length in characters cannot be too long in units.
        if len(text) * 2 > max_length and name.lower() in columns and (shorter := cut(text, max_length)) != text
    }
    return {**values, **changed} if changed else values


def _characters(text: str, units: int) -> tuple[int, int]:
    """How many characters fit into so many units, and how many fill them: they differ at a pair across the cut."""
    used = 0
    for index, char in enumerate(text):
        width = 2 if char > "\uffff" else 1
        if used + width >= units:
            return (index + 1 if used + width == units else index), index + 1
        used += width
    return len(text), len(text)
