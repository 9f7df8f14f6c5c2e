"""News among replicas: a table has a new version. Losing some, or all, costs a poll interval and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct


class FeedUnavailable(Exception):
    """The way is broken: connect again. What was told meanwhile by others is not heard."""


class News(Struct, frozen=True):
    """The table at a location has this version, written by this replica."""

    location: str
    version: int
    replica: str


class FeedSession(Protocol):
    """A connection that hears and tells."""

    async def tell(self, news: Iterable[News]) -> None:
        """Tell every session, this one too. News that does not fit is left out. Raises FeedUnavailable."""
        ...

    async def check(self) -> None:
        """Raises FeedUnavailable when the connection is gone, which a quiet one does not show by itself."""
        ...


class ChangeFeed(Protocol):
    """Where replicas tell each other about new versions."""

    def session(
        self, heard: Callable[[News], None], lost: Callable[[], None]
    ) -> AbstractAsyncContextManager[FeedSession]:
        """Connect. From then on `heard` is called for what anyone tells, and `lost` once when the connection breaks.

        Raises FeedUnavailable. What is not news is passed over.
        """
        ...
