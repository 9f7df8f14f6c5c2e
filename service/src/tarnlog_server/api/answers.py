"""Answers as bytes: JSON, problem documents, entity tags, and gzip for what is large."""

from __future__ import annotations

import gzip
import math
import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import WIRE_NAMES
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.codec.arrow_stream import MEDIA_TYPE
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.plans import ArrowPlan

JSON = "application/json"
PROBLEM = "application/problem+json"
COMPRESS_ABOVE = 4096
OFF_LOOP_ABOVE = 128 * 1024
MAX_DETAIL = 4096
"""Characters of a problem's texts."""

_ENCODER = msgspec.json.Encoder()
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?", re.ASCII)


class Plain:
    """A JSON answer without further headers, at a fraction of the cost of a Response: what a commit is told with."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body = body
        self.status_code = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A small answer, as it is."""
    return Response(_ENCODER.encode(content), status, headers, JSON)


async def large_answer(request: Request, world: World, content: Any, headers: dict[str, str] | None = None) -> Response:
    """An answer that may be large: gzipped where the client can read that, off the loop where it takes long."""
    body = _ENCODER.encode(content)
    headers = {**(headers or {}), "vary": "Accept-Encoding"}
    if len(body) >= COMPRESS_ABOVE and accepts_gzip(request.headers.get("accept-encoding", "")):
        if len(body) > OFF_LOOP_ABOVE:
            body = await world.run_blocking(lambda: gzip.compress(body, 1, mtime=0))
        else:
            body = gzip.compress(body, 1, mtime=0)
        headers["content-encoding"] = "gzip"
        if "etag" in headers:
            headers["etag"] = headers["etag"][:-1] + '-gzip"'  # other bytes, so another strong tag
    return Response(body, 200, headers, JSON)


def wants_arrow(request: Request) -> bool:
    """Whether a client asks for an Arrow stream, and does not like JSON better."""
    weights = {MEDIA_TYPE: 0.0, JSON: 0.0}
    for item in request.headers.get("accept", "").lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        if name in weights:
            weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            weights[name] = float(weight) if _WEIGHT.fullmatch(weight) else 1.0
    return weights[MEDIA_TYPE] > 0 and weights[MEDIA_TYPE] >= weights[JSON]


def arrow_answer(plan: ArrowPlan) -> Response:
    """Files as an Arrow stream, sent while it is made. A connection that breaks before its end is how a fault shows."""
    return StreamingResponse(plan.chunks, 200, {"vary": "Accept"}, MEDIA_TYPE)


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        if name.strip() in ("gzip", "*"):
            weight = parameters.strip().removeprefix("q=")
            return weight.rstrip("0.") != "" if parameters else True
    return False


def problem_answer(problem: ProblemError) -> Response:
    """A problem as its document. Retry-After is in whole seconds, at least one."""
    headers = {}
    if problem.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(problem.retry_after)))
    if problem.code.status == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.code.status == 413:
        headers["connection"] = "close"  # the rest of the body may still be on its way
    problem = _brief(problem)
    try:
        body = _ENCODER.encode(problem.document())
    except (UnicodeEncodeError, OverflowError):  # a client's own text, repeated in the detail
        safe = problem.detail.encode("utf-8", "replace").decode()
        body = _ENCODER.encode(ProblemError(problem.slug, safe).document())
    return Response(body, problem.code.status, headers, PROBLEM)


def _brief(problem: ProblemError) -> ProblemError:
    """A problem whose texts are short: a fault may repeat what was sent, which may be megabytes."""
    faults = problem.fields.get("errors", ())
    if len(problem.detail) <= MAX_DETAIL and not any(
        isinstance(text, str) and len(text) > MAX_DETAIL for fault in faults for text in fault.values()
    ):
        return problem
    fields = {**problem.fields}
    if faults:
        fields["errors"] = [{name: _cut(value) for name, value in fault.items()} for fault in faults]
    return ProblemError(problem.slug, _cut(problem.detail), retry_after=problem.retry_after, **fields)


def _cut(value: Any) -> Any:
    return value[:MAX_DETAIL] + "..." if isinstance(value, str) and len(value) > MAX_DETAIL else value


def entity_tag(table_id: str, version: int) -> str:
    """The strong tag of what a table is at a version."""
    return f'"{table_id}.{version}"'


def not_modified(request: Request, tag: str) -> Response | None:
    """304 when the client has this already."""
    wanted = request.headers.get("if-none-match")
    if wanted is None:
        return None
    known = {item.strip().removeprefix("W/").replace('-gzip"', '"') for item in wanted.split(",")}
    return Response(status_code=304, headers={"etag": tag}) if "*" in known or tag in known else None


def flat(action: msgspec.Struct) -> msgspec.Struct | msgspec.Raw:
    """An action as it goes into a list: unknown fields lie flat beside the known ones, as in the log."""
    if type(action) in WIRE_NAMES:
        return action
    wrapped = encode_action(action)
    return msgspec.Raw(wrapped[wrapped.index(b":") + 1 : -1])
