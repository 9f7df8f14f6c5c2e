"""Reading request bodies: bounded while they arrive, and while they are inflated. A Content-Length is only a claim.

A body of several parts takes its share of the budget as it arrives: what was claimed and not sent takes nothing.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.types import Receive

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.body_budget import MIB, BodyBudget, BodyShare
from tarnlog_server.api.decoding import body_as
from tarnlog_server.ports.world import World

T = TypeVar("T", bound=Struct)
OFF_LOOP_ABOVE = 64 * 1024
"""Bytes of a body that are inflated and decoded on the event loop: four milliseconds of the costliest JSON."""
SMALL_BODY = MIB
"""The largest body of a request that is not a commit."""
FREE_RATIO_BYTES = MIB
INFLATED_AT_ONCE = 4 * MIB
MAX_RATIO = 250
"""How much larger than sent a body may get beyond the first MiB. Real commits reach 132: thousands of files with the
same document mapping in each. Gzip can do 1,030."""
DRAIN_SECONDS = 5.0
_JSON = b"application/json"
_PLAIN = b"identity"
MAX_MEMBERS = 100
"""Gzip members in one body: what follows each is copied, so a body of nothing but members would take hours."""
_GZIP = 16 + zlib.MAX_WBITS


class ClientGone(Exception):
    """The client hung up before its request was complete: there is nobody to answer."""


class BodyLimits(Struct, frozen=True, kw_only=True):
    """How many bytes a body may have, as sent and inflated; `slug` is what a larger one is refused as.

    `budget` is shared by all requests of an application.
    """

    sent: int
    inflated: int
    slug: str = "request-too-large"
    budget: BodyBudget = msgspec.field(default_factory=BodyBudget)

    def small(self) -> BodyLimits:
        """The limits of requests that carry no data, in the same budget."""
        return msgspec.structs.replace(self, sent=min(SMALL_BODY, self.sent), inflated=min(SMALL_BODY, self.inflated))

    def share(self, request: Request) -> BodyShare:
        """What a request holds of the budget."""
        return self.budget.share(request.scope, self.slug)

    def refusal(self, problem: str) -> ProblemError:
        """The 413 for a body that is too large."""
        return ProblemError(self.slug, f"{problem}: split the request into several")


async def read_as(
    request: Request, decoder: msgspec.json.Decoder[T], limits: BodyLimits, world: World, *, empty: T | None = None
) -> T:
    """The body of a request as a struct; `empty` is what no body at all means. ProblemError as `read_body`, or 422."""
    body = await read_body(request, limits, world)
    if not body and empty is not None:
        return empty
    if len(body) > OFF_LOOP_ABOVE:
        return await world.run_blocking(lambda: body_as(decoder, body))
    return body_as(decoder, body)


async def read_body(request: Request, limits: BodyLimits, world: World) -> bytes:
    """The body of a JSON request. ProblemError: 413, 415, 429, or 400 when it cannot be inflated. Raises ClientGone."""
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
    return await _inflated(body, limits, limits.share(request), world)


async def _inflated(body: bytes, limits: BodyLimits, share: BodyShare, world: World) -> bytes:
    """Gunzip: the first part on the event loop, which is all of a usual body, the rest beside it."""
    steps = inflating(body, limits)
    parts = [next(steps, b"")]
    while len(parts[-1]) >= OFF_LOOP_ABOVE:
        share.take(INFLATED_AT_ONCE)
        part = await world.run_blocking(lambda: next(steps, b""))
        share.take(len(part) - INFLATED_AT_ONCE)
        parts.append(part)
    return b"".join(parts)


def inflating(body: bytes, limits: BodyLimits) -> Iterator[bytes]:
    """The text of a gzip body in parts, within the limits: one of at most OFF_LOOP_ABOVE bytes, then larger ones.

    Only the last part is smaller than OFF_LOOP_ABOVE. Members that follow one another are one text, as gzip allows.
    """
    by_ratio = FREE_RATIO_BYTES + MAX_RATIO * len(body)
    limit = min(limits.inflated, by_ratio)
    size, wanted = 0, OFF_LOOP_ABOVE
    gathered: list[bytes] = []
    for member in range(MAX_MEMBERS + 1):
        if not body:
            break
        if member == MAX_MEMBERS:
            raise ProblemError("bad-request", f"the gzip body has more than {MAX_MEMBERS} members; compress it as one")
        unzip: Any = zlib.decompressobj(_GZIP)
        while not unzip.eof:
            part = _decompressed(unzip, body, wanted)
            body = unzip.unconsumed_tail
            size += len(part)
            if size > limit:
                raise _inflates_too_far(limits, limit)
            gathered.append(part)
            wanted -= len(part)
            if not wanted:
                yield b"".join(gathered)
                gathered, wanted = [], INFLATED_AT_ONCE
            elif not unzip.eof and not body:
                raise ProblemError("bad-request", "the gzip body breaks off; send it again")
        body = unzip.unused_data
    yield b"".join(gathered)


def _decompressed(unzip: Any, body: bytes, most: int) -> bytes:
    try:
        part: bytes = unzip.decompress(body, most)
    except zlib.error as error:
        raise ProblemError("bad-request", "the body is not valid gzip; send it again, or uncompressed") from error
    return part


def _inflates_too_far(limits: BodyLimits, limit: int) -> ProblemError:
    if limit == limits.inflated:
        return limits.refusal(f"the body inflates to more than {limit} bytes")
    detail = f"the body inflates to more than {MAX_RATIO} times what was sent: send it uncompressed, or in several"
    return ProblemError(limits.slug, detail)


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
    share = limits.share(request)
    share.take(size)
    while True:
        if size > limit:
            await drain(request.receive, limit)
            raise _too_large(limits)
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        share.take(len(parts[-1]))
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
