"""A table at one version, as every state and checkpoint format stores it.

The value knows no format. `StateFacts` is everything but the live files, small enough to be held whole; the files are
an iterable, because a table may have millions. Facts that only our own states tell have defaults, and a state that
lacks them is foreign: it may be read, but never anchors a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import overload

import msgspec
from msgspec import Struct

from tarnlog.protocol.actions import Add, MetaData, Protocol, Remove, Skip, Txn

UNKNOWN_VERSION = 0
"""What other writers say about a file when they do not know which version added it."""


class StateFile(Struct, frozen=True, gc=False):
    """A live file; `added_at_version` is 0 when nobody knows."""

    add: Add
    added_at_version: int
    added_at_timestamp: int


class StateRemove(Struct, frozen=True, gc=False):
    """A removed file that vacuum must still see. `deletion_timestamp` is the effective one: an action may lack it."""

    path: str
    version: int
    deletion_timestamp: int
    remove: Remove

    def timed(self) -> Remove:
        """The action with its effective time, which it may lack."""
        if self.remove.deletion_timestamp is not None:
            return self.remove
        return msgspec.structs.replace(self.remove, deletion_timestamp=self.deletion_timestamp)


class LaterRemoves(Sequence[StateRemove]):
    """Removes of a state whose bytes were checked, decoded when somebody asks: most who open a table never do."""

    def __init__(self, decode: Callable[[], Iterable[StateRemove]]) -> None:
        self._decode: Callable[[], Iterable[StateRemove]] | None = decode
        self._found: tuple[StateRemove, ...] | None = None

    def _all(self) -> tuple[StateRemove, ...]:
        decode, found = self._decode, self._found  # in this order: another thread sets them in the other
        if found is None:
            assert decode is not None  # it goes only when they are found
            found = self._found = tuple(decode())
            self._decode = None
        return found

    @overload
    def __getitem__(self, index: int) -> StateRemove: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[StateRemove, ...]: ...
    def __getitem__(self, index: int | slice) -> StateRemove | tuple[StateRemove, ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, LaterRemoves) else other)

    __hash__ = None  # type: ignore[assignment]


class StateFacts(Struct, frozen=True, kw_only=True):
    """What replay needs besides the live files.

    `version_put_id` and `version_sha256` name the version file that the state describes; `version_timestamps` are the
    (version, timestamp) of retained version files that tell no time themselves.
    """

    version: int
    timestamp: int
    protocol: Protocol
    metadata: MetaData | None
    txns: tuple[tuple[Txn, int], ...] = ()
    skips: tuple[Skip, ...] = ()
    removes: Sequence[StateRemove] = ()
    truncation_length: int | None = None
    version_put_id: str | None = None
    version_sha256: str | None = None
    dropped: bool = False
    adopted_from: int | None = None
    version_timestamps: tuple[tuple[int, int], ...] = ()


class State(Struct, frozen=True):
    """A state that was read. `files` can be iterated once when it comes straight from a decoder."""

    facts: StateFacts
    files: Iterable[StateFile]
    ours: bool
