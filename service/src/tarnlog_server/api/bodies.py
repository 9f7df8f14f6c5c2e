"""Reading request bodies: bounded while they arrive, and while they are inflated. A Content-Length is only a claim."""

from __future__ import annotations

import asyncio
import zlib

from msgspec import Struct
from starlette.requests import Request
from starlette.types import Receive

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.world import World

OFF_LOOP_ABOVE = 64 * 1024
DRAIN_SECONDS = 5.0
_JSON = b"application/json"
_PLAIN = b"identity"
MAX_MEMBERS = 100
"""Gzip members in one body: what follows each is copied, so a body of nothing but members would take hours."""
_GZIP = 16 + zlib.MAX_WBITS


class ClientGone(Exception):
    """The client hung up before its request was complete: there is nobody to answer."""


class BodyLimits(Struct, frozen=True, kw_only=True):
    """How many bytes a body may have, as sent and inflated; `slug` is what a larger one is refused as."""

    sent: int
    inflated: int
    slug: str = "request-too-large"

    def refusal(self, problem: str) -> ProblemError:
        """The 413 for a body that is too large."""
        return ProblemError(self.slug, f"{problem}: split the request into several")


async def read_body(request: Request, limits: BodyLimits, world: World) -> bytes:
    """The body of a JSON request. ProblemError: 413, 415, or 400 when it cannot be inflated. Raises ClientGone."""
    headers: dict[bytes, bytes] = dict(request.scope["headers"])  # one pass; Starlette's own lookup makes one for each
    media = headers.get(b"content-type", b"")
    if media and media != _JSON and not _is_json(media):
        # A web page of another site can send a form to a service on loopback, but not JSON: this is its lock.
        raise ProblemError("unsupported-encoding", "send the body as JSON, with Content-Type: application/json")
    encoding = headers.get(b"content-encoding", _PLAIN).strip().lower()
    if encoding not in (_PLAIN, b"gzip", b"x-gzip"):
        raise ProblemError("unsupported-encoding", "send the body as it is, or with Content-Encoding: gzip")
    claimed = headers.get(b"content-length", b"")
    if claimed.isdigit() and (len(claimed) > 18 or int(claimed) > limits.sent):
        await drain(request.receive, limits.sent)
        raise _too_large(limits)
    body = await _received(request, limits)
    if not media and body:
        raise ProblemError("unsupported-encoding", "say what the body is, with Content-Type: application/json")
    if encoding == _PLAIN:
        return body
    if len(body) > OFF_LOOP_ABOVE:
        return await world.run_blocking(lambda: inflate(body, limits))
    return inflate(body, limits)


def inflate(body: bytes, limits: BodyLimits) -> bytes:
    """Gunzip within the limit; members that follow one another are one text, as gzip allows."""
    parts: list[bytes] = []
    size = 0
    while body:
        if len(parts) == MAX_MEMBERS:
            raise ProblemError("bad-request", f"the gzip body has more than {MAX_MEMBERS} members; compress it as one")
        unzip = zlib.decompressobj(_GZIP)
        try:
            part = unzip.decompress(body, limits.inflated - size + 1)
        except zlib.error as error:
            raise ProblemError("bad-request", "the body is not valid gzip; send it again, or uncompressed") from error
        size += len(part)
        parts.append(part)
        if size > limits.inflated:
            raise limits.refusal(f"the body inflates to more than {limits.inflated} bytes")
        if not unzip.eof:
            raise ProblemError("bad-request", "the gzip body breaks off; send it again")
        body = unzip.unused_data
    return b"".join(parts)


async def _received(request: Request, limits: BodyLimits) -> bytes:
    limit = limits.sent
    first = await request.receive()
    if first["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = first.get("body", b"")
    if not first.get("more_body", False):
        if len(body) > limit:
            raise _too_large(limits)
        return body
    parts, size = [body], len(body)
    while True:
        if size > limit:
            await drain(request.receive, limit)
            raise _too_large(limits)
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            if size > limit:
                raise _too_large(limits)
            return b"".join(parts)


async def drain(receive: Receive, limit: int) -> None:
    """Let a client that is still sending finish, within bounds: else it sees a broken connection, not the answer."""
    left = limit
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(limits: BodyLimits) -> ProblemError:
    return limits.refusal(f"a body has at most {limits.sent} bytes")


def _is_json(media: bytes) -> bool:
    kind = media.split(b";", 1)[0].strip().lower()
    return kind == _JSON or (kind.startswith(b"application/") and kind.endswith(b"+json"))
