"""The storage port: everything tarnlog asks of a disk or an object store.

The contract, kept by every adapter and proved by one suite (tests/contracts/test_object_store.py):

- Keys are relative `a/b/c` strings; an adapter is bound to one root and never reaches outside it.
- `put_if_absent` is the only operation with a winner: of any number of concurrent creates of one key, at most one
  answers CREATED, and the object is durable and complete before it does. It never retries by itself: a retry inside
  an SDK turns a lost reply into a false EXISTS, so whoever calls it owns the retry.
- Errors say what is known. `OutcomeUnknown` after a write means that it may have happened or may still happen;
  `StoreRefused` means that it certainly did not and that trying the same again is pointless until someone acts.
- Reads see every completed write (read-after-write and list-after-write consistency).
"""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec


class PutResult(enum.Enum):
    """How a conditional create ended, when that is known."""

    CREATED = "created"
    EXISTS = "exists"


class ObjectInfo(msgspec.Struct, frozen=True):
    """What a store says of an object without its bytes. `modified_ms` is the store's own clock."""

    key: str
    size: int
    modified_ms: int


class StoreError(Exception):
    """Base of everything a store raises; `key` is the object or prefix that was asked for."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class ObjectMissing(StoreError):
    """There is no object of that name now."""


class OutcomeUnknown(StoreError):
    """A write whose result never arrived (timeout, reset, 409, 5xx): it may have landed, or may land later."""


class StoreUnavailable(StoreError):
    """A read, list or delete failed for a reason that passes (timeout, 5xx, throttling, a short body)."""


class StoreRefused(StoreError):
    """The store said no (permission, disk full, no such bucket): nothing was written, and someone must act."""


class KeyRefused(StoreRefused):
    """The key itself is not usable here, whatever the state of the store: malformed, or out of the root by a link."""


class ObjectStore(Protocol):
    """A flat namespace of immutable-by-convention objects below one root."""

    @property
    def uri(self) -> str:
        """The root as people write it: `file:///data`, `s3://bucket/prefix`, `memory://name`."""
        ...

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Create `key`, or learn that it exists. Raises OutcomeUnknown, StoreRefused."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Create or replace `key` atomically: readers see the old or the new bytes. Raises as `put_if_absent`."""
        ...

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes, or `length` of them from `start`. Raises ObjectMissing, StoreUnavailable, StoreRefused."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Size and time of an object. Raises ObjectMissing, StoreUnavailable, StoreRefused."""
        ...

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        """Up to `limit` objects whose key starts with `prefix` and sorts after `start_after`, in code-point order.

        `prefix` is a plain string prefix of whole keys and may end anywhere. Fewer than `limit` is the end.
        Raises StoreUnavailable, StoreRefused.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; a missing one is fine. Raises StoreUnavailable, StoreRefused."""
        ...

    async def close(self) -> None:
        """Release connections and threads. The store is not used after this."""
        ...
