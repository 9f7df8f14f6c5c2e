"""The protocol below the application: each request has one answer, whatever its size and however it is cut up."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import problem_answer
from tarnlog_server.api.http_protocol import MAX_HEAD_BYTES, MAX_PIPELINED, ConnectionLimits
from tests.api.served import FedConnection, Reply, replies, served

HASTY = ConnectionLimits(head_seconds=0.05, body_seconds=0.05, connections=1000)

PROMPT = ConnectionLimits(head_seconds=0.25, body_seconds=0.25, connections=1000)
"""For clients that keep to them, with time for a machine that is busy."""


class Recorder:
    """An application that notes each request whole and answers with a digest of its body."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[tuple[bytes, bytes]], bytes]] = []
        self.broken_off: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._more = asyncio.Event()

    async def has_seen(self, count: int) -> None:
        """Return once so many requests were received whole."""
        while len(self.seen) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 30)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._body(receive)
        except ProblemError as problem:
            self.broken_off.append(problem.slug)
            await problem_answer(problem)(scope, receive, send)
            return
        if body is None:
            self.broken_off.append("disconnect")
            return
        self.seen.append((scope["path"], list(scope["headers"]), body))
        self._more.set()
        await self.go_on.wait()
        await answer_with(send, 200, hashlib.sha256(body).hexdigest().encode())

    async def _body(self, receive: Receive) -> bytes | None:
        body: bytes = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message["body"]
            if not message.get("more_body"):
                return body


async def answer_with(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def posted(path: str, body: bytes, *, chunk: int = 0, trailer: bytes = b"", more: bytes = b"") -> bytes:
    """A POST; with `chunk`, in chunks of that size."""
    head = b"POST %s HTTP/1.1\r\nhost: x\r\n%s" % (path.encode(), more)
    if not chunk:
        return head + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"


def broken_off(path: str) -> bytes:
    """A POST whose second chunk is none."""
    return posted(path, b"x" * 50, chunk=50).removesuffix(b"0\r\n\r\n") + b"no chunk\r\n\r\n"


def slug_of(reply: Reply) -> str:
    document = json.loads(reply.body)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.status == document["status"]
    return str(document["type"].rsplit("/", 1)[-1])


def cut(wire: bytes, places: list[float]) -> list[bytes]:
    """The bytes in pieces, cut at these fractions of their length."""
    ends = sorted({int(place * len(wire)) for place in places} | {len(wire)})
    starts = [0, *ends[:-1]]
    return [piece for start, end in zip(starts, ends, strict=True) if (piece := wire[start:end])]


SIZES = st.sampled_from([0, 1, 17, 5000, 65_000, 65_536, 66_000, 130_000, 190_000, 300_000])
REQUESTS = st.lists(
    st.tuples(SIZES, st.sampled_from([0, 0, 100, 70_000]), st.sampled_from([0, 100, 30_000]), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(REQUESTS, st.lists(st.floats(0, 1, exclude_max=True), max_size=6))
def test_requests_cut_anywhere_are_answered_once_each(
    requests: list[tuple[int, int, int, bool]], places: list[float]
) -> None:
    """Joined, split, pipelined, in chunks: the head's limit counts neither bodies nor other requests."""
    bodies = [bytes([65 + number]) * size for number, (size, *_) in enumerate(requests)]
    wire = b"".join(
        posted(
            f"/{number}",
            bodies[number],
            chunk=chunk,
            more=b"x-padding: " + b"p" * padding + b"\r\n",
            trailer=b"authorization: trailer\r\n" if trailer else b"",
        )
        for number, (_, chunk, padding, trailer) in enumerate(requests)
    )

    async def run() -> None:
        app = Recorder()
        connection = FedConnection(app)
        await connection.feed(*cut(wire, places))
        answers = await connection.settle()
        assert [(reply.status, reply.body) for reply in answers] == [(200, digest(body)) for body in bodies]
        assert [path for path, _, _ in app.seen] == [f"/{number}" for number in range(len(bodies))]
        for _, headers, _ in app.seen:
            assert b"authorization" not in dict(headers), "a trailer is no header"
        connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("piece", [1_000, 60_000, 1_000_000])
@pytest.mark.parametrize(
    "unfinished",
    [
        b"GET / HTTP/1.1\r\nendless: " + b"x" * 300_000,
        b"GET /" + b"x" * 300_000,
        b"GET / HTTP/1.1\r\n" + b"many: x\r\n" * 30_000,
        b"\r\n" * 100_000,
    ],
    ids=["line", "target", "lines", "empty lines"],
)
async def test_a_head_without_end_is_refused(unfinished: bytes, piece: int) -> None:
    app = Recorder()
    for before in (b"", posted("/before", b"b" * 70_000)):
        connection = FedConnection(app)
        if before:
            await connection.feed(before)
            await connection.settle()
        pieces = [unfinished[start : start + piece] for start in range(0, len(unfinished), piece)]
        await connection.feed(*pieces)
        *_, refused = await connection.settle()
        assert (refused.status, slug_of(refused)) == (431, "headers-too-large")
    assert [path for path, _, _ in app.seen] == ["/before"]


async def test_a_head_just_below_the_limit_is_served() -> None:
    connection = FedConnection(Recorder())
    await connection.feed(posted("/", b"b", more=b"x: " + b"x" * (MAX_HEAD_BYTES - 200) + b"\r\n"))
    assert [reply.status for reply in await connection.settle()] == [200]


@pytest.mark.parametrize("trailer", [b"t: x\r\n" * 200_000, b"t: " + b"x" * 1_000_000], ids=["many", "one line"])
async def test_trailers_without_end_are_refused_by_the_application_that_runs(trailer: bytes) -> None:
    app = Recorder()
    connection = FedConnection(app)
    wire = posted("/", b"body", chunk=4, trailer=trailer)
    await connection.feed(*(wire[start : start + 50_000] for start in range(0, len(wire), 50_000)))
    (refused,) = await connection.settle()
    assert (refused.status, slug_of(refused)) == (431, "headers-too-large")
    assert (app.seen, app.broken_off) == ([], ["headers-too-large"])
    assert connection.ended


BROKEN = [b"broken\r\n\r\n", b"GET / HTTP/1.1\r\nbroken header\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * 200_000]


@pytest.mark.parametrize("broken", BROKEN, ids=["no http", "no header", "too large"])
async def test_what_follows_a_request_never_answers_it(broken: bytes) -> None:
    """A client takes the first answer for its first request: what is wrong with the second waits for it."""
    app = Recorder()
    app.go_on.clear()
    connection = FedConnection(app)
    await connection.feed(posted("/commit", b"body") + broken[:10], broken[10:])
    assert (len(app.seen), bytes(connection.sent)) == (1, b"")
    app.go_on.set()
    first, second = await connection.settle()
    assert (first.status, first.body) == (200, digest(b"body"))
    assert second.status in (400, 431)
    assert second.headers["connection"] == "close"


async def test_a_body_that_breaks_gets_the_applications_answer() -> None:
    app = Recorder()
    connection = FedConnection(app)
    await connection.feed(broken_off("/"))
    (reply,) = await connection.settle()
    assert (reply.status, slug_of(reply), reply.headers["connection"]) == (400, "bad-request", "close")
    assert (app.seen, connection.ended) == ([], True)


async def test_a_body_that_breaks_behind_a_running_request_gets_no_application() -> None:
    app = Recorder()
    app.go_on.clear()
    connection = FedConnection(app)
    await connection.feed(posted("/1", b"body") + broken_off("/2"))
    app.go_on.set()
    first, second = await connection.settle()
    assert (first.status, first.body) == (200, digest(b"body"))
    assert (second.status, slug_of(second)) == (400, "bad-request")
    assert [path for path, _, _ in app.seen] == ["/1"]


async def test_a_body_that_breaks_after_its_answer_ends_the_connection_without_another() -> None:
    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_with(send, 401, b"no")

    connection = FedConnection(refuses)
    begun, rest = broken_off("/")[:-12], broken_off("/")[-12:]
    await connection.feed(begun)
    await connection.settle()
    await connection.feed(rest)
    assert [reply.status for reply in await connection.settle()] == [401]
    assert connection.closed


async def test_an_application_that_does_not_read_answers_for_itself() -> None:
    go_on = asyncio.Event()

    async def maintains(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await answer_with(send, 200, b"done")

    connection = FedConnection(maintains)
    await connection.feed(broken_off("/checkpoint"))
    assert connection.sent == b""
    go_on.set()
    assert [(reply.status, reply.body) for reply in await connection.settle()] == [(200, b"done")]


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
TWO_MEANINGS = {
    "two lengths": b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "equal lengths": b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "list of lengths": b"content-length: 5, 5\r\n\r\nhello",
    "signed length": b"content-length: +5\r\n\r\nhello",
    "length and chunks": b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
    "chunks twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks not last": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "space before colon": b"content-length : 5\r\n\r\nhello",
    "folded line": b"content-length:\r\n 5\r\n\r\nhello",
    "bare line feed": b"content-length: 5\n\nhello",
    "upgrade with a body": b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\nhello",
    "upgrade with chunks": b"connection: upgrade\r\nupgrade: h2c\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("head", TWO_MEANINGS.values(), ids=TWO_MEANINGS.keys())
async def test_a_request_with_two_meanings_is_refused_and_nothing_after_it_is_read(head: bytes) -> None:
    app = Recorder()
    connection = FedConnection(app)
    await connection.feed(b"POST / HTTP/1.1\r\nhost: x\r\n" + head, SMUGGLED)
    (reply,) = await connection.settle()
    assert (reply.status, slug_of(reply)) == (400, "bad-request")
    assert app.seen == []


async def test_an_upgrade_without_a_body_is_passed_over() -> None:
    connection = FedConnection(Recorder())
    await connection.feed(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    (reply,) = await connection.settle()
    assert (reply.status, reply.headers["connection"]) == (200, "close")


async def test_requests_that_wait_on_a_connection_are_bounded() -> None:
    app = Recorder()
    app.go_on.clear()
    connection = FedConnection(app)
    await connection.feed(b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n" * 5000)
    app.go_on.set()
    *answered, refused = await connection.settle()
    assert [reply.status for reply in answered] == [200] * (MAX_PIPELINED + 1)
    assert slug_of(refused) == "bad-request"


async def test_a_request_with_others_behind_it_hears_that_its_client_is_gone() -> None:
    heard: list[Message] = []

    async def follows(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        heard.append(await receive())

    connection = FedConnection(follows)
    await connection.feed(posted("/events", b"") + posted("/other", b""))
    connection.close()
    await connection.settle()
    assert [message["type"] for message in heard] == ["http.disconnect"]


# Time and number, over real sockets


async def open_to(port: int, *pieces: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(pieces))
    await writer.drain()
    return reader, writer


async def said_to(port: int, *pieces: bytes) -> bytes:
    """All that comes back until the other side ends."""
    reader, writer = await open_to(port, *pieces)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


async def test_a_head_that_does_not_end_is_cut_off() -> None:
    app = Recorder()
    async with served(app, HASTY) as port:
        answer = await said_to(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-le")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"/problems/request-timeout" in answer
        assert await said_to(port) == b"", "a connection that never said anything is only closed"
        assert await said_to(port, b"\r\n") == b""
    assert app.seen == []


async def test_a_head_that_trickles_is_cut_off() -> None:
    """Bytes are no reason to wait longer: the head has one time limit in all."""
    app = Recorder()
    async with served(app, HASTY) as port:
        reader, writer = await open_to(port, b"GET / HTTP/1.1\r\nslow: ")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.01)
        assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.parametrize("body", [b"", b"x"])
async def test_a_body_that_does_not_come_is_cut_off(body: bytes) -> None:
    app = Recorder()
    async with served(app, HASTY) as port:
        answer = await said_to(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n", body)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert (app.seen, app.broken_off) == ([], ["request-timeout"])


async def test_a_body_that_trickles_is_cut_off() -> None:
    app = Recorder()
    async with served(app, HASTY) as port:
        reader, writer = await open_to(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.01)
        assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()
    assert app.seen == []


async def test_a_client_that_may_not_send_is_not_late() -> None:
    """The application reads late: until then the client was held up, or waits for `100 Continue`."""
    begin = asyncio.Event()
    app = Recorder()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await begin.wait()
        await app(scope, receive, send)

    async with served(late, PROMPT) as port:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n"
        body = b"x" * 3_000_000
        _, waiting = held_up = await open_to(port, head + b"\r\n", body[:100_000])
        expecting = await open_to(port, head + b"expect: 100-continue\r\n\r\n")
        await asyncio.sleep(0.6)
        begin.set()
        assert (await expecting[0].readline()).startswith(b"HTTP/1.1 100 ")
        waiting.write(body[100_000:])
        expecting[1].write(body)
        assert (await held_up[0].readline()).startswith(b"HTTP/1.1 200 ")
        await expecting[0].readline()
        assert (await expecting[0].readline()).startswith(b"HTTP/1.1 200 ")
        for _, writer in (held_up, expecting):
            writer.close()
    assert [len(body) for _, _, body in app.seen] == [3_000_000, 3_000_000]


async def test_an_answer_may_take_as_long_as_it_takes() -> None:
    """Neither a long call nor a stream of events has a limit: the request is complete."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.6)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"ok", "more_body": True})
            await asyncio.sleep(0.15)
        await send({"type": "http.response.body"})

    async with served(slow, PROMPT) as port:
        for request in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", posted("/", b"body")):
            reader, writer = await open_to(port, request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            assert await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(8) == b"okokokok"
            writer.close()


async def test_a_service_that_was_held_up_itself_cuts_nobody_off() -> None:
    """After a stall of the process, timers fire before what has arrived meanwhile is read."""
    app = Recorder()
    whole = posted("/", b"body" * 10)
    for begun in (10, len(whole) - 3):
        connection = FedConnection(app, HASTY)
        await connection.feed(whole[:begun])
        time.sleep(0.7)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
        await connection.feed(whole[begun:])
        assert [reply.status for reply in await connection.settle()] == [200]


def capped(connections: int, **seconds: float) -> ConnectionLimits:
    return ConnectionLimits(**{"head_seconds": 60.0, "body_seconds": 60.0, **seconds}, connections=connections)


async def test_half_sent_heads_make_room_for_requests() -> None:
    """The one that waits for longest is closed, so that new clients are served although none of the others goes."""
    async with served(Recorder(), capped(20)) as port:
        halves = [await open_to(port, b"GET / HTTP/1.1\r\nhalf: ") for _ in range(50)]
        for _ in range(3):
            _, writer = client = await open_to(port, posted("/", b"body"))
            assert (await client[0].readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        assert await asyncio.wait_for(halves[0][0].read(), 30) == b""
        for _, writer in halves:
            writer.close()


async def test_a_connection_with_a_request_is_never_closed_for_another() -> None:
    app = Recorder()
    app.go_on.clear()
    state: Any = None
    connections = []
    for number in range(3):
        connection = FedConnection(app, capped(3), state)
        state = connection.state
        await connection.feed(posted(f"/{number}", b"body"))
        connections.append(connection)
    beyond = FedConnection(app, capped(3), state)
    await beyond.feed(posted("/beyond", b"body"))
    (refused,) = replies(bytes(beyond.sent))
    assert (refused.status, slug_of(refused)) == (503, "too-many-connections")
    assert refused.headers["retry-after"] == "1"
    app.go_on.set()
    for connection in connections:
        assert [reply.status for reply in await connection.settle()] == [200]
    assert "/beyond" not in [path for path, _, _ in app.seen]
    again = FedConnection(app, capped(3), state)
    await again.feed(posted("/again", b"body"))
    assert [reply.status for reply in await again.settle()] == [200]


async def test_this_machine_has_connections_in_reserve() -> None:
    app = Recorder()
    app.go_on.clear()
    async with served(app, capped(2)) as port:
        busy = [await open_to(port, posted("/", b"body")) for _ in range(2)]
        await app.has_seen(2)
        check = await open_to(port, posted("/health", b""))
        await app.has_seen(3)
        app.go_on.set()
        for reader, writer in (*busy, check):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
