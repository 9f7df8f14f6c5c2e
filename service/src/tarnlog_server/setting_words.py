"""What is wrong with a setting, in one sentence for the operator: which variable, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from tarnlog_server.core.table_settings import closest_name

_KEYS = '[{"id": "etl", "sha256": "<64 hex digits>", "scope": "write"}]'
EXAMPLES = {
    "api_keys": f"a JSON list such as {_KEYS} (`tarnlog key new` prints one)",
    "allowed_hosts": 'a JSON list such as ["tarnlog.internal"]',
    "locations": 'a JSON list such as ["s3://bucket/tables"]',
    "table_defaults": 'a JSON object such as {"checkpoint.interval": 50}',
}
_PATTERNS = {
    "allowed_hosts": "must be the names of hosts, with letters, digits, dots and hyphens",
    "id": "must have 1 to 64 letters, digits, - or _",
    "sha256": "must be the SHA-256 of the key's secret in 64 hex digits (`tarnlog key new` prints it)",
}


def sentence(prefix: str, error: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """One fault as the validator reports it, in the operator's words. It never shows a value: some are secrets."""
    place: Sequence[Any] = error["loc"]
    kind, message = str(error["type"]), str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    if not place:
        return f"The settings do not fit together: {message}."
    name, *inside = (str(part) for part in place)
    where = f"{prefix}{name.upper()}" + (f" ({'.'.join(inside)})" if inside else "")
    if kind == "extra_forbidden":
        return f"{where} is not a setting; {_advice(inside[-1] if inside else name, inside, fields)}"
    return f"{where} is not valid: {_words(kind, message, error, name, inside, fields.get(name))}."


def not_json(prefix: str, name: str, value: str) -> str:
    """The sentence for a list or an object that is no JSON."""
    problem = "is empty" if value.strip() in ("", "null") else "is not JSON"
    return f"{prefix}{name.upper()} {problem}: write {EXAMPLES.get(name, 'JSON')}, or leave the variable out."


def _advice(name: str, inside: Sequence[str], fields: Mapping[str, FieldInfo]) -> str:
    known = ("id", "sha256", "scope", "namespaces") if inside else tuple(fields)
    meant = closest_name(name.lower(), known, alike=0.7)
    return f"did you mean {meant}?" if meant is not None else "remove it or correct its name."


def _words(
    kind: str, message: str, error: Mapping[str, Any], name: str, inside: Sequence[str], field: FieldInfo | None
) -> str:
    bounds = "" if inside or field is None else _bounds(field)
    context = error.get("ctx", {})
    if kind.startswith("int") or (kind in _RANGES and "int" in str(getattr(field, "annotation", ""))):
        return f"must be a whole number{bounds}"
    if kind.startswith(("float", "finite")) or kind in _RANGES:
        return f"must be a number{bounds}"
    if kind.startswith("bool"):
        return "must be true or false"
    if kind == "literal_error":
        words = str(context.get("expected", message)).replace("'", "").replace(" or ", ", ")
        return f"must be one of {words}"
    if kind in ("string_too_short", "string_too_long"):
        return "must not be empty" if kind == "string_too_short" else "is too long"
    if kind == "string_type":
        return "must be text"
    if kind == "missing":
        return "must be set"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(inside[-1] if name == "api_keys" else name, "must have another form")
    if kind.endswith("_type") and name in EXAMPLES:
        return 'must be an object such as {"id": ...}' if inside else f"must be {EXAMPLES[name]}"
    return f"{message[:1].lower()}{message[1:]}"


_RANGES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def _bounds(field: FieldInfo) -> str:
    least = most = above = None
    for rule in field.metadata:
        least = getattr(rule, "ge", least)
        above = getattr(rule, "gt", above)
        most = getattr(rule, "le", most)
    if most is None:
        return ""
    return f" above {above:g} and up to {most:g}" if above is not None else f" from {least} to {most}"
