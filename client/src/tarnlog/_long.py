"""Calls that may take long: the service answers 202 with an operation, which is looked at until it ends. No I/O here.

The deadline bounds how long the service may be out of reach, not how long the operation may take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tarnlog._errors import NotFound, error_from
from tarnlog._exchange import Answer, Attempts, Call, Exchange, Pace, Pause, Request, exchange
from tarnlog._wire import decoded, problem_of, reading
from tarnlog.protocol.problems import from_document

T = TypeVar("T")
LOOK_SECONDS = 1.0


class Progress(Struct, frozen=True):
    """How far a long call got; `total` is None while nobody knows."""

    done: int = 0
    total: int | None = None
    unit: str = ""


OnProgress: TypeAlias = Callable[[Progress], None]
"""Told how a long call gets on, about once a second."""


class OperationInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A long call at the service that runs it; `problem` is the document of what went wrong."""

    id: str
    kind: str
    table: str
    status: Literal["running", "succeeded", "failed"]
    progress: Progress = Progress()
    started_at: int | None = None
    finished_at: int | None = None
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None


class _Told(Struct, frozen=True):
    """What is needed of an operation to go on; the result stays as it came."""

    id: str
    status: str
    progress: Progress = Progress()
    result: msgspec.Raw = msgspec.Raw(b"null")
    problem: dict[str, Any] = {}


class _Operations(Struct, frozen=True):
    operations: tuple[OperationInfo, ...]


def operation(operation_id: str) -> Call[OperationInfo]:
    return Call(request=_look(operation_id), read=reading(OperationInfo))


def operations() -> Call[tuple[OperationInfo, ...]]:
    request = Request(method="GET", path="/v1/operations")
    return Call(request=request, read=lambda answer: decoded(answer, _Operations).operations)


def long_exchange(call: Call[T], pace: Pace, on_progress: OnProgress | None) -> Exchange[T]:
    """Carry out a call, however long it takes. Raises what the call itself would have raised."""
    answer = yield from exchange(_unread(call), pace, problem_of)
    if answer.status != 202:
        return call.read(answer)
    look = Call(request=_look(decoded(answer, _Told).id), read=_as_it_is)
    lost = Attempts(pace)
    while True:
        told = decoded(answer, _Told)
        if on_progress is not None:
            on_progress(told.progress)
        if told.status == "succeeded":
            return call.read(Answer(status=200, body=bytes(told.result)))
        if told.status == "failed":
            raise error_from(from_document(int(told.problem.get("status", 500)), told.problem))
        yield Pause(seconds=LOOK_SECONDS)
        try:
            answer = yield from exchange(look, pace, problem_of)
            lost = Attempts(pace)
        except NotFound as error:
            # Another replica may have been asked: the one that runs it is found by asking on.
            pause = lost.pause(LOOK_SECONDS) if error.slug == "operation-not-found" else None
            if pause is None:
                raise
            yield pause


def _look(operation_id: str) -> Request:
    return Request(method="GET", path=f"/v1/operations/{quote(operation_id, safe='')}")


def _as_it_is(answer: Answer) -> Answer:
    return answer


def _unread(call: Call[Any]) -> Call[Answer]:
    return Call(request=call.request, read=_as_it_is, resend=call.resend, accept=call.accept)
