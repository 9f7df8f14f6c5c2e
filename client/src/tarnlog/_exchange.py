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
CHECK = "Check that the service runs there, and that the URL (TARNLOG_URL, or the url that was given) is right."
"""What to do about a service that does not answer."""


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
    """Wait before going on. `notice` is a line for the user, to be logged before the wait; empty for none."""

    seconds: float
    notice: str = ""


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
    """How long to try and how long to wait between tries: exponential with jitter, never less than Retry-After.

    `url` is that of the service, for messages.
    """

    deadline: float
    timeout: float
    clock: Callable[[], float]
    rng: random.Random
    url: str = "the service"
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


NOTICE_AFTER_SECONDS = 2.0
"""A service that is away for less is no news: it was restarted, or a connection was cut."""
NOTICE_EVERY_SECONDS = 10.0


class Attempts:
    """The tries of one exchange: what time is left, whether another try is worth waiting for, and what to say of it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._end = pace.clock() + pace.deadline
        self._failing_since: float | None = None
        self._noticed_at: float | None = None
        self.failures = 0

    @property
    def left(self) -> float:
        """Seconds until the deadline, never less than one: a try that cannot be answered is not worth sending."""
        return max(self._end - self._pace.clock(), 1.0)

    def pause(self, retry_after: float | None = None, trouble: str = "", took: float = 0.0) -> Pause | None:
        """How long to wait before the next try; None when that would pass the deadline.

        `trouble` is why the service could not serve the try, which took `took` seconds. Once that lasts longer than
        NOTICE_AFTER_SECONDS, or is about to, the pause carries a notice, and another every NOTICE_EVERY_SECONDS.
        """
        self.failures += 1
        seconds = self._pace.delay(self.failures, retry_after)
        now = self._pace.clock()
        if now + seconds >= self._end:
            return None
        return Pause(seconds=seconds, notice=self._notice(now, seconds, trouble, took))

    def _notice(self, now: float, seconds: float, trouble: str, took: float) -> str:
        if not trouble:
            return ""
        self._failing_since = now - took if self._failing_since is None else self._failing_since
        due = (
            now + seconds - self._failing_since > NOTICE_AFTER_SECONDS
            if self._noticed_at is None
            else now - self._noticed_at >= NOTICE_EVERY_SECONDS
        )
        if not due:
            return ""
        self._noticed_at = now
        return f"{trouble} Trying again for {max(self._end - now, 1.0):.0f} s more."


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
        began = pace.clock()
        reply = received((yield Send(request=call.request, timeout=pace.timeout)))
        failure: TarnlogError
        if isinstance(reply, NoAnswer):
            failure = unreachable(call, reply, pace)
            again = True
        elif reply.status < 300 or reply.status in call.accept:
            return call.read(reply)
        else:
            problem = problem_of(reply)
            failure = error_from(problem, reply.status)
            again = problem.code.kind is Kind.UNAVAILABLE and reply.status != 500
        trouble = no_answer_text(pace, reply) if isinstance(reply, NoAnswer) else not_now_text(pace, failure.detail)
        took = pace.clock() - began
        pause = attempts.pause(failure.retry_after, trouble, took) if again and call.resend else None
        if pause is None:
            raise failure
        yield pause


def no_answer_text(pace: Pace, reply: NoAnswer) -> str:
    """What happened to a request without an answer."""
    return f"No answer from {pace.url} ({reply.reason})."


def not_now_text(pace: Pace, detail: str) -> str:
    """What a service said that cannot serve a request at the moment."""
    return f"{pace.url} cannot serve this now ({detail.rstrip('.')})."


def unreachable(call: Call[Any], reply: NoAnswer, pace: Pace) -> Unreachable:
    """The exception for a call that got no answer."""
    advice = (
        "It may have been carried out: check before you send it again." if reply.sent and not call.resend else CHECK
    )
    detail = f"{no_answer_text(pace, reply)} {advice}"
    return Unreachable(detail, sent=reply.sent, reason=reply.reason, url=pace.url)
