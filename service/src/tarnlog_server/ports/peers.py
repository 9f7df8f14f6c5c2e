"""Other replicas, as far as a commit is sent to them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from tarnlog_server.core.routing import Owner


class PeerSilent(Exception):
    """No answer. `sent` says whether any of the request may have arrived: then the commit may be written there."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class PeerAnswer(Struct, frozen=True):
    """What a replica answered, as it is."""

    status: int
    body: bytes
    media_type: str
    retry_after: str | None = None


class Peers(Protocol):
    """The way to other replicas."""

    async def commit(self, owner: Owner, table: str, body: bytes, headers: dict[str, str]) -> PeerAnswer:
        """Have a commit written by exactly this replica: whoever else listens there must refuse it, and write nothing.

        Raises PeerSilent after a short time; it never sends twice.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
