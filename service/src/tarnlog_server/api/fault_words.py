"""What a decoder says of a value that does not fit, in the words of this API: plain sentences, no names of types."""

from __future__ import annotations

import re

_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_GOT = {**_KINDS, "int": "a number", "float": "a number with a fraction"}
_PARTS = {"str": "character", "array": "element", "object": "field"}
_TYPES = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?")
_BOUND = re.compile(r"Expected `\w+` (>=|<=|>|<) (-?[0-9.e+]+)")
_LENGTH = re.compile(r"Expected `(\w+)` of length (>=|<=|==)? ?(\d+)")
_PATTERN = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_MALFORMED = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)", re.DOTALL)
_LIMITS = {">=": "at least", "<=": "at most", ">": "above", "<": "below", "==": "exactly"}
_SHOWN = 80


def in_words(text: str, choices: list[str] | None = None) -> str:
    """A decoder's message as a sentence; `choices` are the values that a field may have, where they are known."""
    if found := _CHOICE.fullmatch(text):
        value = found[1] if len(found[1]) <= _SHOWN else found[1][: _SHOWN - 3] + "..."
        return f"must be one of {', '.join(choices)}, not {value}" if choices else f"{value} is not allowed here"
    if found := _MISSING.fullmatch(text):
        return f"the field {found[1]} is missing"
    if found := _LENGTH.fullmatch(text):
        count = int(found[3])
        return (
            f"must have {_LIMITS[found[2] or '==']} {count} {_PARTS.get(found[1], 'part')}{'' if count == 1 else 's'}"
        )
    if found := _BOUND.fullmatch(text):
        return f"must be {_LIMITS[found[1]]} {found[2].removesuffix('.0')}"
    if found := _PATTERN.fullmatch(text):
        return f"must match the regular expression {found[1]}"
    if found := _TYPES.fullmatch(text):
        wanted = " or ".join(_KINDS.get(one, "another value") for one in found[1].split(" | "))
        return f"must be {wanted}" + (f", not {_GOT.get(found[2], 'this')}" if found[2] else "")
    if found := _MALFORMED.fullmatch(text):
        return f"the body is not JSON: {found[1]} at byte {found[2]}"
    if "truncated" in text:
        return "the body is not JSON: it is empty, or breaks off"
    if "out of range" in text:
        return "the number is too large"
    return text.replace("`", "")
