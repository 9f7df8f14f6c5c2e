"""Deleting many objects of a log, a few at a time, in order; what a failure does to the rest is the table's choice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from tarnlog_server.ports.object_store import ObjectStore, StoreError
from tarnlog_server.usecases.operations import Progress, unheard

_log = logging.getLogger(__name__)
AT_ONCE = 16


class StoreGaveUp(Exception):
    """Many deletions in a row failed: going on would only wait for the same answer."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Deleting:
    """Deletes groups of objects. A missing object is fine: another replica may do the same."""

    def __init__(self, store: ObjectStore, *, stop_at_failure: bool, progress: Progress = unheard) -> None:
        self.failures = 0
        self._store = store
        self._stop = stop_at_failure
        self._progress = progress
        self._done = 0
        self._in_a_row = 0

    async def each(self, keys: Iterable[str], unit: str) -> int:
        """Delete single objects, sixteen at a time; how many went. Raises StoreError, StoreGaveUp."""
        return await self.groups(([key] for key in keys), unit)

    async def groups(self, groups: Iterable[Iterable[str]], unit: str) -> int:
        """Delete groups, sixteen at a time, the objects of each in its order; how many groups went whole."""
        waiting = [list(group) for group in groups]
        gone = 0
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            errors = [one for one in await asyncio.gather(*map(self._group, some)) if one is not None]
            gone += len(some) - len(errors)
            self._done += len(some) - len(errors)
            self._progress(self._done, None, unit)
            self.failures += len(errors)
            if errors and self._stop:
                raise errors[0]
            self._in_a_row = self._in_a_row + len(errors) if len(errors) == len(some) else 0
            if self._in_a_row >= AT_ONCE:
                raise StoreGaveUp(errors[0])
        return gone

    async def _group(self, keys: list[str]) -> StoreError | None:
        for key in keys:
            try:
                await self._store.delete(key)
            except StoreError as error:
                _log.warning("%s could not be deleted: %s", key, error)
                return error
        return None
