"""Folders that belong to other tables, found in storage: the I/O behind core.protected_files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tarnlog_server.core.protected_files import (
    SURROUNDING,
    DataObject,
    folders_above,
    is_table_metadata,
    markers_in,
)
from tarnlog_server.ports.object_store import ObjectInfo, ObjectStore

KNOWN_FOLDERS = 10_000
LOOKED_AT = 100


class ForeignFolders:
    """Answers for one table's folder which objects are in or beside another table's metadata. Answers are kept."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self._store = store
        self._table = table
        self._known: dict[str, bool] = {}
        self._surrounded: bool | None = None

    async def divided(self, objects: Iterable[DataObject]) -> tuple[list[DataObject], int]:
        """The objects that are not another table's, and how many are. I/O: up to 5 LISTs for each new folder."""
        everything = list(objects)
        if everything and await self._is_surrounded():
            return [], len(everything)
        mine = [one for one in everything if not await self._is_foreign(one.path)]
        return mine, len(everything) - len(mine)

    async def _is_surrounded(self) -> bool:
        if self._surrounded is None:
            self._surrounded = await surrounding(self._store, self._table) is not None
        return self._surrounded

    async def _is_foreign(self, path: str) -> bool:
        for folder in folders_above(path):
            if await self._has_metadata(folder):
                return True
        return False

    async def _has_metadata(self, folder: str) -> bool:
        known = self._known.get(folder)
        if known is None:
            place = "/".join(part for part in (self._table, folder) if part)
            base = f"{place}/" if place else ""
            pages = await asyncio.gather(
                *(self._store.list(f"{base}{marker}/", limit=1) for marker in markers_in(folder))
            )
            known = any(pages)
            if len(self._known) >= KNOWN_FOLDERS:
                self._known.clear()
            self._known[folder] = known
        return known


async def surrounding(store: ObjectStore, table: str) -> ObjectInfo | None:
    """An object of a table's metadata in a folder above `table`; None when no folder above it is a table's.

    What such a table writes below its folder would be an orphan of this one. I/O: 4 LISTs for each folder above, which
    are few. The store's root itself is not checked: it may be a warehouse or a bucket with metadata of its own.
    """
    for folder in folders_above(table)[1:]:
        pages = await asyncio.gather(*(store.list(f"{folder}/{marker}/", limit=LOOKED_AT) for marker in SURROUNDING))
        for marker, page in zip(SURROUNDING, pages, strict=True):
            for info in page:
                if is_table_metadata(marker, info.key.rsplit("/", 1)[-1]):
                    return info
    return None


async def first_object(store: ObjectStore, table: str) -> ObjectInfo | None:
    """An object at a location; None when it is empty. The empty object that stands for a folder does not count.

    I/O: 1 LIST.
    """
    prefix = f"{table}/" if table else ""
    page = await store.list(prefix, limit=2)
    return next((info for info in page if info.key != prefix or info.size), None)
