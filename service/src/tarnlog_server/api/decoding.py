"""From bytes and query strings to values, strictly; what does not fit becomes a problem with JSON pointers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.fault_words import in_words

T = TypeVar("T", bound=Struct)
Decoded = TypeVar("Decoded")

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?\Z", re.ASCII)
_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`\Z")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|\.([^.\[\]]+)")
_MAX_PARAMETERS = 32


def body_as(
    decoder: msgspec.json.Decoder[Decoded],
    body: bytes | msgspec.Raw,
    slug: str = "request-invalid",
    *,
    pointer: str = "",
) -> Decoded:
    """The body as a value, or a part of it that is at `pointer`; ProblemError `slug` says what is wrong and where."""
    try:
        return decoder.decode(body)
    except RecursionError:
        message, inside = "the JSON is nested too deeply", ""
    except UnicodeDecodeError as error:
        message, inside = f"the body is not UTF-8 ({error.reason} at byte {error.start})", ""
    except msgspec.ValidationError as error:
        message, inside = pointed(str(error))
        message = in_words(message, _choices(inside, decoder.type))
    except ValueError as error:  # msgspec.DecodeError among them
        message, inside = in_words(str(error)), ""
    raise refused(slug, pointer + inside, message)


def refused(slug: str, pointer: str, message: str) -> ProblemError:
    """One fault as a problem."""
    where = pointer or "the request"
    return ProblemError(slug, f"{where}: {message}", errors=[{"pointer": pointer, "message": message}])


def pointed(text: str) -> tuple[str, str]:
    """msgspec's message, and its path as a JSON pointer: `$.actions[0].add` is `/actions/0/add`."""
    pointer = ""
    match = _PLACE.search(text)
    if match is not None:
        text = text[: match.start()]
        # `[...]` is some key of an object: the pointer ends at the object.
        path = match[1].split("[...]")[0]
        pointer = "".join(f"/{_escaped(index or name)}" for index, name in _STEP.findall(path))
    unknown = _UNKNOWN.match(text)
    if unknown is not None:
        pointer += f"/{_escaped(unknown[1])}"
        text = "there is no field of this name here"
    return text, pointer


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def query_as(query: bytes, kind: type[T], hints: Mapping[str, str] | None = None) -> T:
    """A query string as a struct of its parameters. Unknown, repeated and malformed ones are refused.

    `hints` say what to use instead of names that are likely to be tried.
    """
    if not query:
        return kind()
    readers = _readers(kind)
    values: dict[str, Any] = {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except ValueError as error:
        raise refused("request-invalid", "", "the query string cannot be read: encode it as UTF-8") from error
    for name, text in pairs:
        read = readers.get(name)
        if read is None:
            known = ", ".join(sorted(readers)) or "none"
            advice = f"; {hints[name]}" if hints and name in hints else ""
            message = f"there is no such query parameter (known: {known}){advice}"
            raise refused("request-invalid", f"/{_escaped(name)}", message)
        if name in values:
            raise refused("request-invalid", f"/{name}", "the query parameter is given twice")
        try:
            values[name] = read(text)
        except ValueError as error:
            raise refused("request-invalid", f"/{name}", str(error)) from error
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        message, pointer = pointed(str(error))
        raise refused("request-invalid", pointer, in_words(message, _choices(pointer, kind))) from error


def _choices(pointer: str, kind: Any) -> list[str]:
    """What a field of the outermost object may be, where only some values are allowed."""
    info = msgspec.inspect.type_info(kind)
    fields = info.fields if isinstance(info, msgspec.inspect.StructType) else ()
    return next((_literals(field.type) for field in fields if f"/{field.encode_name}" == pointer), [])


def _literals(kind: msgspec.inspect.Type) -> list[str]:
    options = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    bare = [_bare(option) for option in options]
    return [str(value) for option in bare if isinstance(option, msgspec.inspect.LiteralType) for value in option.values]


@cache
def _readers(kind: type[Struct]) -> dict[str, Callable[[str], Any]]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _reader(field.type) for field in info.fields}


def _reader(kind: msgspec.inspect.Type) -> Callable[[str], Any]:
    kind = _bare(kind)
    options = [_bare(option) for option in kind.types] if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    if any(isinstance(option, msgspec.inspect.IntType) for option in options):
        return _integer
    if any(isinstance(option, msgspec.inspect.FloatType) for option in options):
        return _number
    if any(isinstance(option, msgspec.inspect.BoolType) for option in options):
        return _boolean
    return str


def _bare(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    return kind.type if isinstance(kind, msgspec.inspect.Metadata) else kind


def _integer(text: str) -> int:
    if not _INTEGER.match(text):
        raise ValueError("write a whole number in decimal digits, at most 9223372036854775807")
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.match(text) or not math.isfinite(value := float(text)):
        raise ValueError("write a number such as 5 or 0.5")
    return value


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"
