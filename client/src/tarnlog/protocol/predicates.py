"""Filters over rows: a small tree of frozen nodes, the same in requests, reads of a commit and scans.

The tree says nothing about types: whether a column exists and a value fits it is decided against a schema. Its size is
bounded here, so that whoever walks it may recurse.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, cast, get_args

import msgspec

MAX_DEPTH = 64
MAX_NODES = 10_000
MAX_VALUES = 10_000
MAX_INTEGER = 10**38

Scalar: TypeAlias = str | int | float | bool
CompareOp: TypeAlias = Literal["eq", "ne", "lt", "le", "gt", "ge", "starts-with"]

_COMPARE_OPS = get_args(CompareOp)
_OPS = ("and", "or", "not", *_COMPARE_OPS, "in", "is-null", "is-not-null")


class PredicateError(ValueError):
    """The filter cannot be used; `pointer` (RFC 6901) leads to the node, the message says what to write instead."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or 'filter'}: {message}")
        self.pointer = pointer
        self.message = message


class And(msgspec.Struct, frozen=True):
    """Every argument holds."""

    args: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True):
    """At least one argument holds."""

    args: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True):
    """The argument is false; where it is unknown, so is this."""

    arg: Predicate


class Compare(msgspec.Struct, frozen=True):
    """A column against a value; unknown where the column is null."""

    op: CompareOp
    column: str
    value: Scalar


class In(msgspec.Struct, frozen=True):
    """The column equals one of the values; as in SQL, a null among them turns false into unknown."""

    column: str
    values: tuple[Scalar | None, ...]


class IsNull(msgspec.Struct, frozen=True):
    """The column is null; never unknown."""

    column: str


class IsNotNull(msgspec.Struct, frozen=True):
    """The column is not null; never unknown."""

    column: str


Predicate: TypeAlias = And | Or | Not | Compare | In | IsNull | IsNotNull


def parse_predicate(obj: object, *, pointer: str = "") -> Predicate:
    """Parse a decoded JSON tree; `pointer` is where it stands in the request, for the errors."""
    return _Parser().node(obj, pointer, 1)


def to_builtins(predicate: Predicate) -> dict[str, object]:
    """The tree as JSON values: parse_predicate gives the same predicate back."""
    match predicate:
        case And(args):
            return {"op": "and", "args": [to_builtins(arg) for arg in args]}
        case Or(args):
            return {"op": "or", "args": [to_builtins(arg) for arg in args]}
        case Not(arg):
            return {"op": "not", "arg": to_builtins(arg)}
        case Compare(op, column, value):
            return {"op": op, "column": column, "value": value}
        case In(column, values):
            return {"op": "in", "column": column, "values": list(values)}
        case IsNull(column):
            return {"op": "is-null", "column": column}
        case IsNotNull(column):
            return {"op": "is-not-null", "column": column}


class _Parser:
    """Counts nodes over the whole tree while it descends."""

    def __init__(self) -> None:
        self.nodes_left = MAX_NODES

    def node(self, obj: object, pointer: str, depth: int) -> Predicate:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise PredicateError(
                pointer, f"the filter has more than {MAX_NODES} nodes: use `in` for long lists of values"
            )
        if depth > MAX_DEPTH:
            raise PredicateError(pointer, f"the filter is nested deeper than {MAX_DEPTH} levels: flatten its and/or")
        if not isinstance(obj, dict):
            raise PredicateError(pointer, 'a filter must be an object such as {"op": "eq", "column": "id", "value": 7}')
        op = obj.get("op")
        if op in ("and", "or"):
            _only(obj, pointer, "op", "args")
            args = self.args(obj["args"], f"{pointer}/args", depth)
            return And(args) if op == "and" else Or(args)
        if op == "not":
            _only(obj, pointer, "op", "arg")
            return Not(self.node(obj["arg"], f"{pointer}/arg", depth + 1))
        if op in _COMPARE_OPS:
            return _compare(obj, cast(CompareOp, op), pointer)
        if op == "in":
            _only(obj, pointer, "op", "column", "values")
            return In(_column(obj, pointer), _values(obj["values"], f"{pointer}/values"))
        if op in ("is-null", "is-not-null"):
            _only(obj, pointer, "op", "column")
            return IsNull(_column(obj, pointer)) if op == "is-null" else IsNotNull(_column(obj, pointer))
        raise PredicateError(f"{pointer}/op", f"op must be one of {', '.join(_OPS)}")

    def args(self, items: object, pointer: str, depth: int) -> tuple[Predicate, ...]:
        if not isinstance(items, list) or not items:
            raise PredicateError(pointer, "args must be a list of at least one filter")
        return tuple(self.node(item, f"{pointer}/{index}", depth + 1) for index, item in enumerate(items))


def _compare(obj: dict[str, object], op: CompareOp, pointer: str) -> Compare:
    _only(obj, pointer, "op", "column", "value")
    value = _scalar(obj["value"], f"{pointer}/value")
    if op == "starts-with" and not isinstance(value, str):
        raise PredicateError(f"{pointer}/value", "starts-with compares with text: write the prefix as a string")
    return Compare(op, _column(obj, pointer), value)


def _values(items: object, pointer: str) -> tuple[Scalar | None, ...]:
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_VALUES:
        raise PredicateError(pointer, f"values must be a list of 1 to {MAX_VALUES} values")
    return tuple(None if item is None else _scalar(item, f"{pointer}/{index}") for index, item in enumerate(items))


def _scalar(value: object, pointer: str) -> Scalar:
    if value is None:
        raise PredicateError(pointer, "null equals nothing: use is-null or is-not-null")
    if isinstance(value, str):
        return _text(value, pointer)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise PredicateError(pointer, "a value must be text, true, false, or a finite number of at most 38 digits")


def _column(obj: dict[str, object], pointer: str) -> str:
    column = obj["column"]
    if not isinstance(column, str) or not column:
        raise PredicateError(f"{pointer}/column", "column must be the name of a column")
    return _text(column, f"{pointer}/column")


def _text(value: str, pointer: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise PredicateError(pointer, "the text contains a lone surrogate: send valid Unicode") from None
    return value


def _only(obj: dict[str, object], pointer: str, *keys: str) -> None:
    for key in keys:
        if key not in obj:
            raise PredicateError(pointer, f'"{key}" is missing: "{obj["op"]}" needs {", ".join(keys)}')
    if len(obj) > len(keys):
        unknown = next(key for key in obj if key not in keys)
        raise PredicateError(
            f"{pointer}/{_escape(unknown)}", f'unknown key: "{obj["op"]}" takes only {", ".join(keys)}'
        )


def _escape(key: object) -> str:
    return str(key)[:80].replace("~", "~0").replace("/", "~1")
