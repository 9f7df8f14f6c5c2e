"""Opaque cursors: where a paged answer goes on, in a form that any replica understands."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.replay import Snapshot

T = TypeVar("T")


def encode_cursor(value: msgspec.Struct) -> str:
    """A cursor as URL-safe text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def decode_cursor(text: str, kind: type[T]) -> T:
    """The cursor's content; ProblemError when it is not one of ours."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _refused("the cursor is not one this call returned; start again without a cursor") from error


def check_table(table_id: str, head: Snapshot) -> None:
    """ProblemError when a cursor is of another table: pages of two tables would look like one listing."""
    if table_id != (head.table_id or ""):
        raise _refused("the cursor is of another table, or the table was created anew; start again without a cursor")


def check_told(told: int, here: int) -> None:
    """ProblemError when a listing has another order here: a page that goes on would lose files, or tell them twice.

    Only logs of other writers do that: which version added a file is not known once their checkpoint is all there is.
    """
    if told != here:
        raise _refused("the files of this version are in another order now; start again without a cursor")


def _refused(detail: str) -> ProblemError:
    return ProblemError("request-invalid", detail, errors=[{"pointer": "/cursor", "message": detail}])
