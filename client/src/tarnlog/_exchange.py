"""Sending a request as a conversation without I/O: when to send, when to wait, when to stop.

An exchange is a generator. It yields `Send` and gets an `Answer` or `NoAnswer` back, or yields `Pause` and gets None;
its return value is the result. Whoever drives it owns sockets and sleeping, so the blocking and the asyncio client
share every decision. Time and chance come in through `Pace`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from tarnlog._errors import TarnlogError, Unreachable, error_from
from tarnlog.protocol.problems import Kind, ProblemError

T = TypeVar("T")


class Request(Struct, frozen=True, kw_only=True):
    """What goes over the wire."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What came back; header names are lower case."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class NoAnswer(Struct, frozen=True, kw_only=True):
    """Nothing came back. `sent` is False only when the request certainly never left."""

    reason: str
    sent: bool


class Send(Struct, frozen=True, kw_only=True):
    """Send this, and wait no longer than that."""

    request: Request
    timeout: float


class Pause(Struct, frozen=True, kw_only=True):
    """Wait before going on."""

    seconds: float


Exchange: TypeAlias = Generator[Send | Pause, Answer | NoAnswer | None, T]


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """A request with the reading of its answer. `resend` marks those that may be sent twice.

    `accept` names statuses from 400 on that are answers to read here, not errors.
    """

    request: Request
    read: Callable[[Answer], T]
    resend: bool = True
    accept: tuple[int, ...] = ()


class Pace(Struct, frozen=True, kw_only=True):
    """How long to try and how long to wait between tries: exponential with jitter, never less than Retry-After."""

    deadline: float
    timeout: float
    clock: Callable[[], float]
    rng: random.Random
    first_delay: float = 0.05
    longest_delay: float = 5.0

    def within(self, deadline: float | None) -> Pace:
        """The same pace with another deadline, if there is one."""
        return self if deadline is None else msgspec.structs.replace(self, deadline=deadline)

    def delay(self, failures: int, retry_after: float | None) -> float:
        """Seconds to wait after the given number of failures in a row."""
        ceiling = min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 20))
        jittered = ceiling * self.rng.uniform(0.5, 1.0)
        # A herd that was told the same Retry-After should not come back as one.
        return jittered if retry_after is None else retry_after + jittered


class Attempts:
    """The tries of one exchange: what time is left, and whether another try is worth waiting for."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._end = pace.clock() + pace.deadline
        self.failures = 0

    @property
    def left(self) -> float:
        """Seconds until the deadline, never less than one: a try that cannot be answered is not worth sending."""
        return max(self._end - self._pace.clock(), 1.0)

    def pause(self, retry_after: float | None = None) -> Pause | None:
        """How long to wait before the next try; None when that would pass the deadline."""
        self.failures += 1
        seconds = self._pace.delay(self.failures, retry_after)
        return Pause(seconds=seconds) if self._pace.clock() + seconds < self._end else None


def received(reply: Answer | NoAnswer | None) -> Answer | NoAnswer:
    """What the driver owes after a Send."""
    assert reply is not None, "the driver answers every Send"
    return reply


def exchange(call: Call[T], pace: Pace, problem_of: Callable[[Answer], ProblemError]) -> Exchange[T]:
    """Carry out a call; what may be resent is, on no answer, 429 and 502 to 504.

    The deadline ends the trying, not a try: a slow answer to a read is still worth having.
    """
    attempts = Attempts(pace)
    while True:
        reply = received((yield Send(request=call.request, timeout=pace.timeout)))
        failure: TarnlogError
        if isinstance(reply, NoAnswer):
            failure = unreachable(call, reply)
            again = True
        elif reply.status < 300 or reply.status in call.accept:
            return call.read(reply)
        else:
            problem = problem_of(reply)
            failure = error_from(problem, reply.status)
            again = problem.code.kind is Kind.UNAVAILABLE and reply.status != 500
        pause = attempts.pause(failure.retry_after) if again and call.resend else None
        if pause is None:
            raise failure
        yield pause


def unreachable(call: Call[Any], reply: NoAnswer) -> Unreachable:
    """The exception for a call that got no answer."""
    advice = "Check that the service runs and that the URL is right."
    if reply.sent and not call.resend:
        advice = "It may have been carried out: look before you send it again."
    return Unreachable(f"No answer from the service ({reply.reason}). {advice}", sent=reply.sent, reason=reply.reason)
