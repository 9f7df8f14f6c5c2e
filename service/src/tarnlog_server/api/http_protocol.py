"""HTTP as uvicorn speaks it, with three differences: the head of a request is bounded, what is not HTTP gets a problem
document, and an answer is sent whole. The first two are decided before the application, and so before authentication,
sees anything."""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import problem_answer
from tarnlog_server.api.joined_writes import JoinedWrites

MAX_HEAD_BYTES = 64 * 1024
"""Of the target and all header lines together: eight times what usual servers and proxies allow."""


LINGER_SECONDS = 1.0


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    in_head = True
    head_bytes = 0
    """Of a head that has not ended: the parser keeps an endless header line to itself."""

    refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, JoinedWrites(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        began_in_head = self.in_head
        super().data_received(data)
        if began_in_head and self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > MAX_HEAD_BYTES and not self.refused:
                self.send_400_response("")

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.head_bytes = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if self.head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # the parser stops, and the connection is told
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.in_head = True
        self.head_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.head_bytes > MAX_HEAD_BYTES:
            detail = f"the target and the headers have at most {MAX_HEAD_BYTES} bytes together"
            self._refuse(ProblemError("headers-too-large", detail))
        else:
            self._refuse(ProblemError("bad-request", "this is not an HTTP/1.1 request that can be read"))

    def _refuse(self, problem: ProblemError) -> None:
        answer = problem_answer(problem)
        lines = [f"HTTP/1.1 {problem.code.status} {problem.code.title}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers if name != b"connection"]
        self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)]))
        self.transport.write_eof()
        # A client that is still sending would see a reset instead of the answer: what it sends is dropped for a while.
        self.refused = True
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
