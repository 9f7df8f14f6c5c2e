"""Actions as JSON lines: strict and fast for what we wrote, lenient for what others wrote.

The fast path decodes a whole file in one call. A line that does not fit it is read field by field: unknown action
types are skipped, nulls are absent, and unknown fields are carried in a subclass of the action so that a later rewrite
(a new metaData, a checkpoint) writes them again.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from tarnlog.protocol.actions import (
    TYPES_BY_WIRE_NAME,
    WIRE_NAMES,
    Action,
    ActionLine,
    Add,
    CommitInfo,
    MetaData,
    Protocol,
    Remove,
    Skip,
    Txn,
    only_action,
)

_LINES = msgspec.json.Decoder(ActionLine)
_OBJECT = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
_PREFIXES: dict[type[Struct], bytes] = {kind: b'{"%s":' % name.encode() for kind, name in WIRE_NAMES.items()}
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""Everything a decoder may raise on bytes from outside (a ValidationError is a DecodeError)."""


class MalformedLine(ValueError):
    """A line that is not an action and cannot be skipped; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


def _extended(kind: type[Struct]) -> type[Struct]:
    return msgspec.defstruct(
        f"{kind.__name__}WithUnknown", [("unknown_fields", dict[str, Any])], bases=(kind,), frozen=True, kw_only=True
    )


_EXTENDED: dict[type[Struct], type[Struct]] = {
    kind: _extended(kind) for kind in (Protocol, MetaData, Add, Remove, Skip, Txn)
}
_PLAIN: dict[type[Struct], type[Struct]] = {extended: kind for kind, extended in _EXTENDED.items()}
_KNOWN_FIELDS: dict[type[Struct], frozenset[str]] = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(kind)) for kind in WIRE_NAMES
}
_MAPS_WITHOUT_NULLS = frozenset({"minValues", "maxValues", "configuration", "format"})
"""Maps whose values are never null for us; a null that another writer put there means that the key is absent."""


def unknown_fields(action: Struct) -> dict[str, Any]:
    """The fields of an action that this version does not know; empty for nearly every action."""
    return cast(dict[str, Any], getattr(action, "unknown_fields", {}))


def encode_action(action: Struct) -> bytes:
    """One action as a JSON object wrapped in its type name, without a newline."""
    kind = type(action)
    prefix = _PREFIXES.get(kind)
    if prefix is not None:
        return prefix + _ENCODER.encode(action) + b"}"
    plain = _PLAIN[kind]
    body = msgspec.to_builtins(action)
    extra = body.pop("unknown_fields", None) or body.pop("unknownFields", None) or {}
    return _PREFIXES[plain] + _ENCODER.encode({**extra, **body}) + b"}"


def with_unknown_fields(action: Action, source: Struct) -> Action:
    """`action`, carrying the unknown fields of `source`: what a rewrite of one action into another must do."""
    extra = unknown_fields(source)
    if not extra:
        return action
    values = {name: getattr(action, name) for name in type(action).__struct_fields__ if name != "unknown_fields"}
    return cast(Action, _EXTENDED[_PLAIN.get(type(action), type(action))](**values, unknown_fields=extra))


def decode_lines(data: bytes) -> list[Action | CommitInfo]:
    """All actions of an NDJSON text in order; MalformedLine names the first line that cannot be read."""
    try:
        lines = _LINES.decode_lines(data)
        return [only_action(line) for line in lines]
    except DECODE_ERRORS:
        return _decode_leniently(data)


def _decode_leniently(data: bytes) -> list[Action | CommitInfo]:
    actions: list[Action | CommitInfo] = []
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            obj = _OBJECT.decode(raw)
        except DECODE_ERRORS as error:
            raise MalformedLine(number, f"not JSON ({error})") from error
        if not isinstance(obj, dict):
            raise MalformedLine(number, "not a JSON object")
        for name, body in obj.items():
            kind = TYPES_BY_WIRE_NAME.get(name)
            if kind is None or body is None:
                continue
            try:
                actions.append(from_object(kind, body))
            except (msgspec.ValidationError, TypeError) as error:
                raise MalformedLine(number, f"{name}: {error}") from error
    return actions


def from_object(kind: type[Struct], body: object) -> Action | CommitInfo:
    """One action from a decoded JSON object, leniently; msgspec.ValidationError says which field is wrong."""
    if not isinstance(body, dict):
        raise msgspec.ValidationError("expected an object")
    if kind is CommitInfo:
        return _commit_info(body)
    present = {
        key: _without_nulls(value) if key in _MAPS_WITHOUT_NULLS else value
        for key, value in body.items()
        if value is not None
    }
    if kind in (Add, Remove):
        present.setdefault("dataChange", True)
    if kind is Add:
        present.setdefault("partitionValues", {})
    if kind is MetaData:
        present.setdefault("configuration", {})
        present.setdefault("partitionColumns", [])
    known = _KNOWN_FIELDS[kind]
    extra = {key: value for key, value in present.items() if key not in known}
    action = cast(Action, msgspec.convert({key: value for key, value in present.items() if key in known}, kind))
    if not extra:
        return action
    values = {name: getattr(action, name) for name in action.__struct_fields__}
    return cast(Action, _EXTENDED[kind](**values, unknown_fields=extra))


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}


def _commit_info(body: dict[str, Any]) -> CommitInfo:
    """Ours fits the type; anybody else's commitInfo is free-form and only its timestamp is of use."""
    try:
        return msgspec.convert({key: value for key, value in body.items() if value is not None}, CommitInfo)
    except msgspec.ValidationError:
        timestamp = body.get("timestamp")
        usable = type(timestamp) is int and 0 <= timestamp < 2**63
        return CommitInfo(timestamp=timestamp if usable else None)
