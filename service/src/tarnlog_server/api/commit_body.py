"""Commits from bytes. Small ones are decoded in one call on the event loop; large ones beside it, action by action.

The JSON decoder holds the interpreter for as long as one call takes, in a thread too. A large body is therefore taken
apart in steps that are short: the values are counted, the envelope is read with its parts as they are, the free-form
parts are measured, and each action is decoded by a call of its own. What a commit means is the same on both ways.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from tarnlog.protocol.actions import ActionLine, Count
from tarnlog.protocol.commits import CommitRequest, Isolation, Operation, Reads
from tarnlog_server.api.bodies import OFF_LOOP_ABOVE
from tarnlog_server.api.body_budget import BodyShare
from tarnlog_server.api.decoding import body_as, refused
from tarnlog_server.core.free_form import MAX_BYTES
from tarnlog_server.ports.world import World

T = TypeVar("T")
SLUG = "commit-invalid"
BYTES_PER_VALUE = 64
"""What a decoded JSON value takes besides its text, roughly: between a number (32) and a small object (230)."""
COUNTED_AT_ONCE = 4 * 1024 * 1024
MAX_FILTER_BYTES = 16 * 1024 * 1024
_NOTHING = Raw(b"{}")


class _Envelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A CommitRequest whose parts are not decoded yet."""

    actions: Annotated[list[Raw], Meta(min_length=1)]
    commit_id: str | None = None
    read_version: Count | None = None
    isolation: Isolation = "write-serializable"
    coalesce: bool | None = None
    reads: Raw = _NOTHING
    operation: Operation = "WRITE"
    operation_parameters: Raw = _NOTHING
    operation_metrics: Raw = _NOTHING


_WHOLE = msgspec.json.Decoder(CommitRequest)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ACTION = msgspec.json.Decoder(ActionLine)
_READS = msgspec.json.Decoder(Reads)
_FREE = msgspec.json.Decoder(dict[str, Any])


async def decoded_commit(body: bytes, share: BodyShare, world: World) -> CommitRequest:
    """The commit in a body. ProblemError `commit-invalid` with pointers, or what `share` refuses with."""
    if len(body) <= OFF_LOOP_ABOVE:
        return body_as(_WHOLE, body, SLUG)
    share.take(BYTES_PER_VALUE * await world.run_blocking(lambda: count_values(body)))
    return await world.run_blocking(lambda: decode_in_steps(body))


def count_values(body: bytes) -> int:
    """At least as many as there are JSON values in a text; separators inside of strings count too."""
    return sum(
        body.count(separator, start, start + COUNTED_AT_ONCE)
        for start in range(0, len(body), COUNTED_AT_ONCE)
        for separator in (b",", b"{", b"[")
    )


def decode_in_steps(body: bytes) -> CommitRequest:
    """A commit, decoded by many short calls. ProblemError `commit-invalid`."""
    envelope = body_as(_ENVELOPE, body, SLUG)
    _bounded(envelope.operation_parameters, "/operationParameters", MAX_BYTES)
    _bounded(envelope.operation_metrics, "/operationMetrics", MAX_BYTES)
    _bounded(envelope.reads, "/reads", MAX_FILTER_BYTES)
    return CommitRequest(
        actions=tuple(
            body_as(_ACTION, raw, SLUG, pointer=f"/actions/{index}") for index, raw in enumerate(envelope.actions)
        ),
        commit_id=envelope.commit_id,
        read_version=envelope.read_version,
        isolation=envelope.isolation,
        coalesce=envelope.coalesce,
        reads=body_as(_READS, envelope.reads, SLUG, pointer="/reads"),
        operation=envelope.operation,
        operation_parameters=body_as(_FREE, envelope.operation_parameters, SLUG, pointer="/operationParameters"),
        operation_metrics=body_as(_FREE, envelope.operation_metrics, SLUG, pointer="/operationMetrics"),
    )


def _bounded(raw: Raw, pointer: str, limit: int) -> None:
    size = len(memoryview(raw))
    if size > limit:
        raise refused(SLUG, pointer, f"it has {size} bytes of JSON: use at most {limit}")
