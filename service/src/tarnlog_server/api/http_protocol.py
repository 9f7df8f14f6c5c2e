"""HTTP/1.1 by uvicorn and httptools, with limits that neither of them has: on the size of a head, on the time that a
head or a body may take, and on the number of connections.

A request has one answerer. Until its head is complete it is this protocol; from then on only the application, which
learns from `receive` that the rest of its request will not come. Bytes of a body never count towards the limit of a
head. Trailers are bounded like a head and dropped.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
from collections.abc import Awaitable
from typing import Any, cast

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import problem_answer

MAX_HEAD_BYTES = 64 * 1024
"""Of the target and all header lines together, and of all trailers: eight times what usual servers allow."""
LINE_BYTES = 4
"""Colon, space and line end, which httptools does not report."""
MAX_PIPELINED = 100
"""Requests that wait on one connection for the answer to an earlier one: each is in memory."""
PROGRESS_BYTES = 16 * 1024
"""What a body has to bring in each period of `body_seconds` until it is complete."""
STALL_SECONDS = 0.5
"""A timer that fires so late was held up with the whole process: what the client has sent meanwhile is not read yet."""
LINGER_SECONDS = 1.0
LINGER_BYTES = 1024 * 1024
"""How long, and for how many bytes, a client that is still sending may take to read its last answer."""
LOOPBACK_RESERVE = 16
"""Connections beyond the cap for this machine itself: health checks while every other connection has a request."""
REFUSED_POLITELY = 64
"""Connections beyond the cap that get an answer; further ones are closed without a word."""


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """How long a request may take to arrive, in seconds, and how many connections there may be."""

    head_seconds: float
    body_seconds: float
    connections: int


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._in_head = True
        """Whether the next byte belongs to a head, begun or not; else to a body or its trailers."""
        self._unfinished_bytes = 0
        """Of reads that contain a part of one head, or of one body's trailers, and nothing else."""
        self._passed = False
        """Whether the present read contains the end of a head or a message, or a part of a body."""
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        """When the connection was made, or its last answer was complete."""
        self._served = False
        self._ended = False
        """Nothing more is parsed; what still arrives is dropped."""
        self._lingering = False
        """The last answer was sent as well."""
        self._dropped_bytes = 0
        self._fault: ProblemError | None = None
        """Raised in a callback: the parser passes on only that there was something."""
        self._refusal: ProblemError | None = None
        """For a request that has no application; it is sent after the answers that are under way."""
        self._failure: ProblemError | None = None
        """For the application whose request broke off."""
        self._running: RequestResponseCycle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        room = self._limits.connections
        if len(self.connections) > room and not self._make_room():
            beyond = len(self.connections) - room
            if beyond > REFUSED_POLITELY:
                self._ended = True
                transport.abort()
                return
            if beyond > LOOPBACK_RESERVE or not self._is_loopback():
                detail = f"the service has {room} connections, and each of them has a request; try again"
                self._end(ProblemError("too-many-connections", detail, retry_after=1.0))
                return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        running = self._running
        super().connection_lost(exc)
        if running is not None and running is not self.cycle and not running.response_complete:
            # uvicorn reports it to the newest request alone, and pipelined ones may wait behind this one.
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._is_ended():
            self._dropped_bytes += len(data)
            if self._lingering and self._dropped_bytes > LINGER_BYTES:
                self.transport.close()
            return
        self._passed = False
        super().data_received(data)
        if self._is_ended():
            return
        if self._passed:
            self._unfinished_bytes = 0
        else:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                self._end(_head_too_large())
                return
        if self._timer is None:
            self._watch()

    def _make_room(self) -> bool:
        """Close the connection without a request that waits for longest, first one that never had a request."""
        others = [each for each in self.connections if isinstance(each, BoundedHttp) and each is not self]
        victim = min(
            (each for each in others if each._is_idle()), key=lambda each: (each._served, each._since), default=None
        )
        if victim is None:
            return False
        self.connections.discard(victim)
        victim._ended = True
        victim.transport.close()
        return True

    def _is_ended(self) -> bool:
        return self._ended

    def _is_answered(self) -> bool:
        newest = cast(RequestResponseCycle | None, self.cycle)
        return newest is None or newest.response_complete

    def _is_idle(self) -> bool:
        return self._is_answered() and not self._ended and self.transport.get_write_buffer_size() == 0

    def _is_loopback(self) -> bool:
        try:
            return self.client is not None and ipaddress.ip_address(self.client[0]).is_loopback
        except ValueError:
            return False

    # What the parser reports

    def on_headers_complete(self) -> None:
        self._passed = True
        if len(self.url) + sum([len(name) + len(value) + LINE_BYTES for name, value in self.headers]) > MAX_HEAD_BYTES:
            raise self._found(_head_too_large())
        upgrade = self.parser.should_upgrade()
        if upgrade and any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
            # httptools would take the body for another protocol, and then for the next request.
            detail = "this service speaks HTTP/1.1 alone: send a body without `Upgrade` (HTTP/2 off in the client)"
            raise self._found(ProblemError("bad-request", detail))
        if len(self.pipeline) >= MAX_PIPELINED:
            detail = f"more than {MAX_PIPELINED} requests wait on this connection; read answers before sending more"
            raise self._found(ProblemError("bad-request", detail))
        super().on_headers_complete()
        if upgrade:
            self.cycle.keep_alive = False
        self._unwatch()
        self._in_head = False
        self._body_bytes = 0
        self.headers = []  # of trailers, which are dropped: the application was let in by the headers

    def on_body(self, body: bytes) -> None:
        self._passed = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._passed = True
        self._unwatch()
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's reaction to an error of the parser."""
        unreadable = ProblemError("bad-request", "this is not an HTTP/1.1 request that can be read")
        self._end(self._fault or unreadable)

    def _found(self, problem: ProblemError) -> ProblemError:
        self._fault = problem
        return problem

    # Time

    def _watch(self) -> None:
        """Set the timer of the head or body that is incomplete. An idle connection has uvicorn's timer, but for a new
        one and one that sends nothing but empty lines."""
        if not self._in_head:
            self._body_bytes = 0
            self._timer = self.loop.call_later(self._limits.body_seconds, self._body_is_late)
        elif self._has_begun() or (self.timeout_keep_alive_task is None and self._is_answered()):
            self._timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _is_held_up(self) -> bool:
        """Whether the timer that fires now is no fault of the client; then it is set again."""
        assert self._timer is not None
        late = self.loop.time() - self._timer.when()
        self._timer = None
        held_up = self.flow.read_paused or late > STALL_SECONDS
        if not self._in_head:
            expecting = self.cycle.waiting_for_100_continue and not self.cycle.response_complete
            held_up = held_up or expecting or self._body_bytes >= PROGRESS_BYTES
        if held_up:
            self._watch()
        return held_up

    def _has_begun(self) -> bool:
        """Whether a part of the next head is here: uvicorn then has a scope that is of no request yet."""
        scope, newest = cast(Any, self.scope), cast(RequestResponseCycle | None, self.cycle)
        return scope is not None and (newest is None or newest.scope is not scope)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        if self._is_held_up():
            return
        if self._has_begun():
            seconds = self._limits.head_seconds
            self._end(ProblemError("request-timeout", f"the head did not arrive within {seconds:g} s", retry_after=1.0))
        else:
            self._ended = True
            self.transport.close()

    def _body_is_late(self) -> None:
        if self._is_held_up():
            return
        seconds = self._limits.body_seconds
        detail = f"fewer than {PROGRESS_BYTES} bytes of the body arrived in {seconds:g} s; nothing was done"
        self._end(ProblemError("request-timeout", detail, retry_after=1.0))

    # Answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, cast(Any, functools.partial(self._run, app, cycle)))

    def _run(
        self, app: ASGIApp, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send
    ) -> Awaitable[None]:
        """Call the application, with a `receive` that raises once its request has broken off."""

        async def unless_broken_off() -> Message:
            if self.flow.read_paused or cycle.waiting_for_100_continue:
                self._body_bytes += PROGRESS_BYTES  # the client could not send until now
            message = await receive()
            if self._failure is None or cycle is not self.cycle or cycle.disconnected:
                return message
            if cycle.response_started:
                return {"type": "http.disconnect"}
            raise self._failure

        async def without_closing(message: Message) -> None:
            await send(message)
            if self._failure is not None and cycle is self.cycle:
                cycle.keep_alive = True  # it said `close` where it could; the connection ends after lingering

        return app(scope, unless_broken_off, without_closing)

    def on_response_complete(self) -> None:
        self._served = True
        self._since = self.loop.time()
        last = not self.pipeline
        super().on_response_complete()
        if not last or self.transport.is_closing():
            return
        if self._refusal is not None:
            self._answer(self._refusal)
        elif self._failure is not None:
            self._linger()

    def _end(self, problem: ProblemError) -> None:
        """Parse nothing more, and have the request that this is about answered once, after those before it."""
        self._ended = True
        self._unwatch()
        cycle = self.cycle
        if self._in_head:
            if self._is_answered():
                self._answer(problem)
            else:
                self._refusal = problem
        elif cycle.response_complete:
            self.transport.close()
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()  # it never got an application
            self._refusal = problem
        else:
            self._failure = problem
            cycle.keep_alive = cycle.response_started
            cycle.message_event.set()

    def _answer(self, problem: ProblemError) -> None:
        if self.transport.is_closing():
            return
        answer = problem_answer(problem)
        lines = [f"HTTP/1.1 {problem.code.status} {problem.code.title}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers if name != b"connection"]
        self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)]))
        self._linger()

    def _linger(self) -> None:
        """Close later: a client that is still sending would see a reset instead of its answer."""
        self._lingering = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


def bounded_http(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The protocol with its limits, for uvicorn's `http`, which only calls it."""
    return cast(type[asyncio.Protocol], functools.partial(BoundedHttp, limits=limits))


def _head_too_large() -> ProblemError:
    detail = f"the target and the headers have at most {MAX_HEAD_BYTES} bytes together"
    return ProblemError("headers-too-large", detail)
