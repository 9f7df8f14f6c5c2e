"""Write sessions that extend themselves: vacuum leaves a writer's files alone for as long as the block lasts.

    with client.write_session("sales.orders", "day=2024-01-01/") as session:
        ...                                     # write files, which may take hours
        session.check()                         # still covered: now it is safe to commit
        with client.transaction("sales.orders") as tx:
            tx.add(...)

A block that ends well ends the session. After an exception the session is left to expire by itself: a commit whose
outcome is not known may still need its files.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from tarnlog._errors import Expired, TarnlogError
from tarnlog._results import SessionInfo

if TYPE_CHECKING:
    from tarnlog._api import TableApi
    from tarnlog._async_client import AsyncClient

TTL_SECONDS = 900
TRIES_PER_TTL = 3.0
"""A session is extended so often that a failed try or two do not matter."""


def _now() -> tuple[float, float]:
    """Both clocks: one stands still while a machine sleeps, the other may be set."""
    return time.monotonic(), time.time()


class _Covered:
    """What both kinds know: the session, and until when it surely lasts, by this machine's own clocks."""

    def __init__(self, table: str, prefix: str, ttl_seconds: int) -> None:
        self.table = table
        self.prefix = prefix
        self.ttl_seconds = ttl_seconds
        self.info: SessionInfo | None = None
        self.failure: TarnlogError | None = None
        """Why the last try to extend it failed; None when it did not."""
        self._asked_at = _now()

    @property
    def id(self) -> str:
        """The id of the session. RuntimeError before the block began."""
        if self.info is None:
            raise RuntimeError("the session has not begun: use it in a `with` block")
        return self.info.id

    def check(self) -> None:
        """Raise Expired when the session may have run out: files that it covered may be gone."""
        if self.info is None or any(
            now - asked >= self.ttl_seconds for now, asked in zip(_now(), self._asked_at, strict=True)
        ):
            why = f" ({self.failure.detail})" if self.failure is not None else ""
            raise Expired(
                f"The write session of {self.table} could not be extended in time{why}: files that are not committed "
                "may have been deleted. Check them, or write them again, in a new session.",
                slug="session-expired",
                status=410,
            )

    def _took(self, info: SessionInfo, asked_at: tuple[float, float]) -> None:
        # From when it was asked for: the service's clock began to run later, never earlier.
        self.info, self.failure, self._asked_at = info, None, asked_at

    @property
    def _pause(self) -> float:
        return self.ttl_seconds / TRIES_PER_TTL


class WriteSession(_Covered):
    """A session in a `with` block; made by `Client.write_session`. A thread extends it."""

    def __init__(self, api: TableApi, table: str, prefix: str, ttl_seconds: int) -> None:
        super().__init__(table, prefix, ttl_seconds)
        self._api = api
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> WriteSession:
        asked_at = _now()
        self._took(self._api.begin_session(self.table, self.prefix, ttl_seconds=self.ttl_seconds), asked_at)
        self._thread = threading.Thread(target=self._extend, name=f"tarnlog session {self.id}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=self.ttl_seconds)
        if kind is None:
            with contextlib.suppress(TarnlogError):  # it expires by itself
                self._api.end_session(self.table, self.id)

    def _extend(self) -> None:
        while not self._done.wait(self._pause):
            asked_at = _now()
            try:
                self._took(self._api.extend_session(self.table, self.id, ttl_seconds=self.ttl_seconds), asked_at)
            except TarnlogError as error:
                self.failure = error


class AsyncWriteSession(_Covered):
    """A session in an `async with` block; made by `AsyncClient.write_session`. A task extends it."""

    def __init__(self, api: AsyncClient, table: str, prefix: str, ttl_seconds: int) -> None:
        super().__init__(table, prefix, ttl_seconds)
        self._api = api
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncWriteSession:
        asked_at = _now()
        self._took(await self._api.begin_session(self.table, self.prefix, ttl_seconds=self.ttl_seconds), asked_at)
        self._task = asyncio.create_task(self._extend(), name=f"tarnlog session {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if kind is None:
            with contextlib.suppress(TarnlogError):  # it expires by itself
                await self._api.end_session(self.table, self.id)

    async def _extend(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            asked_at = _now()
            try:
                self._took(await self._api.extend_session(self.table, self.id, ttl_seconds=self.ttl_seconds), asked_at)
            except TarnlogError as error:
                self.failure = error
