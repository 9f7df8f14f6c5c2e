"""How requests are written and answers read, whatever the call, without any I/O.

Answers are read tolerantly: unknown fields do not matter, so that an older client goes on working with a newer service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tarnlog._errors import InvalidRequest, ServerFault
from tarnlog._exchange import Answer, Call, Request
from tarnlog.protocol.action_json import DECODE_ERRORS, from_object
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError, from_document

T = TypeVar("T")
Timestamp: TypeAlias = int | str | datetime
"""Epoch milliseconds, ISO 8601 text, or a datetime that knows its time zone."""

JSON = {"content-type": "application/json"}


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list; `next` is the cursor of the rest."""

    items: list[T]
    next: str | None = None


Listing: TypeAlias = Callable[[str | None], Call[Page[T]]]
"""From a cursor, None for the beginning, to the call of that page."""


def table_path(table: str, *rest: str) -> str:
    """The path of a table or of something below it; the name is checked here, before anything is sent."""
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise InvalidRequest(str(error), slug="table-name-invalid") from None
    return "/".join(("/v1/tables", str(name), *(quote(part, safe="") for part in rest)))


def params(**values: object) -> dict[str, str]:
    """Query parameters in the wire's spelling, without those that are None."""
    return {_camel(key): _text(value) for key, value in values.items() if value is not None}


def body(**values: object) -> bytes:
    """A JSON body in the wire's spelling, without the keys that are None."""
    try:
        return msgspec.json.encode({_camel(key): value for key, value in values.items() if value is not None})
    except (UnicodeError, TypeError, ValueError) as error:
        raise InvalidRequest(f"The request cannot be written as JSON: {error}", slug="request-invalid") from error


def _camel(name: str) -> str:
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.title() for part in tail)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def time_text(value: Timestamp | None) -> str | None:
    """A moment as the service reads it."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidRequest("Give the datetime a time zone, for example datetime.now(tz=timezone.utc).")
        return str(int(value.timestamp() * 1000))
    return None if value is None else str(value)


# Reading answers


def problem_of(answer: Answer) -> ProblemError:
    """The problem an answer states; one without a problem document is told by its status alone."""
    return from_document(answer.status, problem_document(answer), retry_after(answer))


def problem_document(answer: Answer) -> dict[str, Any]:
    """The problem document of an answer; a made-up one when, say, a proxy answered in its own words."""
    try:
        document = msgspec.json.decode(answer.body)
    except DECODE_ERRORS:
        document = None
    if isinstance(document, dict):
        # These would be taken for arguments of the error they end up in.
        return {key: value for key, value in document.items() if key not in ("self", "slug", "retry_after")}
    return {"status": answer.status, "detail": f"The service answered HTTP {answer.status} without saying why."}


def retry_after(answer: Answer) -> float | None:
    """The seconds of a Retry-After header; its date form is not used by the service."""
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def decoded(answer: Answer, kind: type[T]) -> T:
    """The body as a value; a body that does not fit is the service's fault, or that of something in between."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except DECODE_ERRORS as error:
        raise ServerFault(
            f"The answer could not be read ({error}). Is it a tarnlog service, and this client new enough?",
            status=answer.status,
        ) from error


def reading(kind: type[T]) -> Callable[[Answer], T]:
    """A reader of answers with that body."""
    return lambda answer: decoded(answer, kind)


def convert(value: object, kind: type[T]) -> T:
    """A part of a decoded body as a value."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ServerFault(f"The answer could not be read ({error}). Is this client new enough?") from error


def actions(kind: type[T], items: object) -> list[T]:
    """Actions of one kind, with whatever unknown fields they carry."""
    try:
        return [from_object(kind, item) for item in msgspec.convert(items, list[Any])]  # type: ignore[arg-type, misc]
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise ServerFault(f"An action in the answer could not be read ({error}).") from error


def _page(answer: Answer, key: str, read: Callable[[list[Any]], list[T]]) -> Page[T]:
    document = decoded(answer, dict[str, Any])
    items = convert(document.get(key) or [], list[Any])
    following = document.get("next")
    return Page(items=read(items), next=None if following is None else convert(following, str))


def listing(path: str, query: Mapping[str, str], key: str, read: Callable[[list[Any]], list[T]]) -> Listing[T]:
    """Pages of a list, each told by the cursor of the one before."""

    def call(cursor: str | None) -> Call[Page[T]]:
        where = dict(query) if cursor is None else {**query, "cursor": cursor}
        request = Request(method="GET", path=path, params=where)
        return Call(request=request, read=lambda answer: _page(answer, key, read))

    return call


def structs(kind: type[T]) -> Callable[[list[Any]], list[T]]:
    """A reader of the items of a page."""
    return lambda items: convert(items, list[kind])  # type: ignore[valid-type]
