"""Conditions that Spark resolved, as the predicates that the service plans with. Pure: no Spark is needed here.

A condition comes as a tree of Spark's own expressions (Catalyst) after its optimizer: names are resolved, constants
are folded, and times are counted from 1970 in UTC, so that no setting of the session changes its meaning any more.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from msgspec import Struct

from tarnlog.protocol.predicates import (
    MAX_DEPTH,
    MAX_VALUES,
    And,
    Compare,
    CompareOp,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    Scalar,
)

MAX_NODES = 5_000
"""Expressions in one condition; beyond, it is not translated."""

Raw: TypeAlias = str | int | bool | float | None
"""A constant as Spark holds it: days of a date, microseconds of a timestamp; all others may be their text."""

_OPS: dict[str, CompareOp] = {
    "EqualTo": "eq",
    "LessThan": "lt",
    "LessThanOrEqual": "le",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "ge",
}
_MIRRORED: dict[CompareOp, CompareOp] = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_WHOLE = ("byte", "short", "integer", "long")
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_REPLACEMENT = "\ufffd"


class Node(Struct, frozen=True):
    """One expression. `kind` is its class in Catalyst, `type` that of a column or constant as in a schema's JSON."""

    kind: str
    children: tuple[Node, ...] = ()
    name: str = ""
    type: str = ""
    values: tuple[Raw, ...] = ()
    """The one value of a Literal, or the values of an InSet, where None is null."""


class Translation(Struct, frozen=True):
    """A predicate that holds for every row for which the condition does. None admits all rows.

    `exact`: it is true, false and unknown for the same rows as the condition. Only then may it be negated.
    """

    predicate: Predicate | None
    exact: bool = True


_UNKNOWN = Translation(None, exact=False)


def parsed(records: Sequence[Mapping[str, Any]], values: Mapping[int, tuple[Raw, ...]]) -> Node:
    """The tree of a list of expressions in preorder, as Catalyst writes its trees as JSON.

    `values` has, by place in the list, what the JSON does not hold exactly: times, and the values of an InSet.
    """
    made: list[Node] = []
    for place in range(len(records) - 1, -1, -1):
        record = records[place]
        children = tuple(made.pop() for _ in range(record["num-children"]))
        kind = record["class"].rpartition(".")[2]
        found = values.get(place)
        if found is None and kind == "Literal":
            found = (record.get("value"),)
        kept = record.get("dataType")
        made.append(
            Node(
                kind,
                children,
                name=str(record.get("name", "")) if kind == "AttributeReference" else "",
                type=kept if isinstance(kept, str) else "",
                values=found or (),
            )
        )
    (whole,) = made
    return whole


def translate(node: Node, columns: Collection[str]) -> Translation:
    """The predicate of a condition over a table with these top-level columns.

    What is not understood is left out of a conjunction, which then admits more rows, never fewer; in a disjunction it
    makes the whole admit all rows. A negation needs all of its argument.
    """
    return _Translator(columns).node(node, 1)


class _Translator:
    def __init__(self, columns: Collection[str]) -> None:
        self.names = {name.lower(): name for name in columns}

    def node(self, node: Node, depth: int) -> Translation:
        if depth > MAX_DEPTH - 2:  # a leaf may become two levels
            return _UNKNOWN
        if node.kind in ("And", "Or"):
            parts = [self.node(part, depth + 1) for part in _flattened(node)]
            return _conjunction(parts) if node.kind == "And" else _disjunction(parts)
        if node.kind == "Not":
            inner = self.node(node.children[0], depth + 1)
            if inner.predicate is None or not inner.exact:
                return _UNKNOWN
            return Translation(Not(inner.predicate))
        found = self.leaf(node)
        return _UNKNOWN if found is None else Translation(found)

    def leaf(self, node: Node) -> Predicate | None:
        if node.kind == "AttributeReference":
            name = self.column(node)
            return Compare("eq", name, True) if name is not None and node.type == "boolean" else None
        if node.kind in ("IsNull", "IsNotNull"):
            name = self.column(node.children[0])
            if name is None:
                return None
            return IsNull(name) if node.kind == "IsNull" else IsNotNull(name)
        if node.kind in ("In", "InSet"):
            return self.member(node)
        if node.kind in ("StartsWith", "EqualNullSafe") or node.kind in _OPS:
            return self.comparison(node)
        return None

    def comparison(self, node: Node) -> Predicate | None:
        left, right = node.children
        mirrored = left.kind == "Literal" and node.kind != "StartsWith"
        side, constant = (right, left) if mirrored else (left, right)
        name = self.column(side)
        if name is None or constant.kind != "Literal" or not _same_type(side.type, constant.type):
            return None
        value = scalar_of(side.type, constant.values[0])
        if value is None:
            return None
        if node.kind == "StartsWith":
            return Compare("starts-with", name, value) if isinstance(value, str) and side.type == "string" else None
        if node.kind == "EqualNullSafe":
            # As `eq` it would be unknown where the column is null; a negation must not take that for false.
            return And((IsNotNull(name), Compare("eq", name, value)))
        op = _OPS[node.kind]
        return Compare(_MIRRORED[op] if mirrored else op, name, value)

    def member(self, node: Node) -> Predicate | None:
        side, *listed = node.children
        name = self.column(side)
        if name is None or any(one.kind != "Literal" or not _same_type(side.type, one.type) for one in listed):
            return None
        raw = node.values if node.kind == "InSet" else tuple(one.values[0] for one in listed)
        known = [scalar_of(side.type, value) for value in raw if value is not None]
        if not 1 <= len(raw) <= MAX_VALUES or None in known:
            return None
        nulls: tuple[None, ...] = (None,) if len(known) < len(raw) else ()
        return In(name, (*known, *nulls))

    def column(self, node: Node) -> str | None:
        """A whole column of the table, by its name there: bounds are kept for no others."""
        return self.names.get(node.name.lower()) if node.kind == "AttributeReference" else None


def _flattened(node: Node) -> list[Node]:
    """The arguments of a chain of the same operator, in their order. A loop: Spark nests a thousand of them."""
    parts, left = list[Node](), [node]
    while left:
        one = left.pop()
        if one.kind == node.kind:
            left.extend(reversed(one.children))
        else:
            parts.append(one)
    return parts


def _conjunction(parts: list[Translation]) -> Translation:
    known = tuple(part.predicate for part in parts if part.predicate is not None)
    whole = len(known) == len(parts) and all(part.exact for part in parts)
    if not known:
        return _UNKNOWN
    return Translation(known[0] if len(known) == 1 else And(known), whole)


def _disjunction(parts: list[Translation]) -> Translation:
    known = tuple(part.predicate for part in parts if part.predicate is not None)
    if len(known) < len(parts):
        return _UNKNOWN
    return Translation(Or(known), all(part.exact for part in parts))


def _same_type(column: str, constant: str) -> bool:
    """Whether Spark compares the two as they are. Decimals of any two precisions compare as numbers."""
    return column == constant or (column.startswith("decimal(") and constant.startswith("decimal("))


def scalar_of(kind: str, raw: Raw) -> Scalar | None:
    """A constant as the service reads it for a column of this type; None where it has no exact words for it.

    Text of a collation has a type of its own (`string collate ...`) and is not understood, nor are binary values, NaN
    and the infinities, and times outside of the years 1 to 9999.
    """
    if raw is None:
        return None
    try:
        if kind in _WHOLE:
            return int(raw)
        if kind == "boolean":
            return {"true": True, "false": False}.get(str(raw).lower())
        if kind == "string":
            return _text(str(raw))
        if kind in ("float", "double"):
            number = float(raw)
            # The shortest text of a float is not the double that it is equal to.
            number = struct.unpack("f", struct.pack("f", number))[0] if kind == "float" else number
            return number if math.isfinite(number) else None
        if kind.startswith("decimal("):
            return format(Decimal(str(raw)), "f")
        if kind == "date":
            return dt.date.fromordinal(_EPOCH_DAY + int(raw)).isoformat()
        if kind in ("timestamp", "timestamp_ntz"):
            moment = (_EPOCH + dt.timedelta(microseconds=int(raw))).replace(tzinfo=None)
            return moment.isoformat(timespec="microseconds") + ("Z" if kind == "timestamp" else "")
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return None


def _text(value: str) -> str | None:
    """Text that is the same here as in Spark, whose strings may hold bytes that are no text."""
    if _REPLACEMENT in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value
