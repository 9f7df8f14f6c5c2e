"""Deleting many objects of a log, a few at a time, in order; what a failure does to the rest is the table's choice."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
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


class Stopped(Exception):
    """A deletion failed, and the table says that nothing more is to be deleted then."""

    def __init__(self, error: StoreError, key: str) -> None:
        super().__init__(f"{key} could not be deleted ({error})")


class Deleting:
    """Deletes groups of objects, and counts those that went whole, by unit. A missing object is fine: another replica
    may do the same."""

    def __init__(self, store: ObjectStore, *, stop_at_failure: bool, progress: Progress = unheard) -> None:
        self.failures = 0
        self.gone: Counter[str] = Counter()
        self._store = store
        self._stop = stop_at_failure
        self._progress = progress
        self._in_a_row = 0

    async def each(self, keys: Iterable[str], unit: str) -> None:
        """Delete single objects, sixteen at a time. Raises StoreGaveUp, Stopped."""
        await self.groups(([key] for key in keys), unit)

    async def groups(self, groups: Iterable[Iterable[str]], unit: str) -> None:
        """Delete groups, sixteen at a time, the objects of each in its order.

        One at a time where a failure stops it: else others would go after the one that failed. Raises as `each` does.
        """
        waiting = [list(group) for group in groups]
        at_once = 1 if self._stop else AT_ONCE
        for start in range(0, len(waiting), at_once):
            some = waiting[start : start + at_once]
            errors = [one for one in await asyncio.gather(*map(self._group, some)) if one is not None]
            self.gone[unit] += len(some) - len(errors)
            self._progress(self.gone.total(), None, unit)
            self.failures += len(errors)
            if errors and self._stop:
                raise Stopped(*errors[0])
            self._in_a_row = self._in_a_row + len(errors) if len(errors) == len(some) else 0
            if self._in_a_row >= AT_ONCE:
                raise StoreGaveUp(errors[0][0])

    async def _group(self, keys: list[str]) -> tuple[StoreError, str] | None:
        for key in keys:
            try:
                await self._store.delete(key)
            except StoreError as error:
                _log.warning("%s could not be deleted: %s", key, error)
                return error, key
        return None
