"""Noticing that other software still writes to a log that is ours.

A writer that creates version files by put-if-absent is a competitor like another replica, and its states are welcome.
One that tells its versions by states alone does not see ours, nor we its: what it committed would be lost for readers
of the log, and ours for it. Its traces are a state whose version file is absent or ours, or a hint to a version that
is not there. Then writing stops until somebody decides; nothing of it is touched.
"""

from __future__ import annotations

import dataclasses

from tarnlog_server.codec.last_checkpoint import decode_last_checkpoint
from tarnlog_server.codec.state_avro import written_here
from tarnlog_server.codec.state_manifest_avro import decode_state_manifest_avro
from tarnlog_server.codec.version_file import CorruptObject, put_id_of
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing
from tarnlog_server.usecases.table_log import TableLog

PAGE = 1000
RECENT = 4


def is_foreign_state(key: str, version: int, data: bytes) -> bool:
    """Whether a `_manifest.avro` is another writer's. Ours is known by its marker; a damaged one is nobody's word."""
    if written_here(data):
        return False
    try:
        decode_state_manifest_avro(key, version, data)
    except CorruptObject:
        return False
    return True


@dataclasses.dataclass(slots=True)
class _Directory:
    """What was listed of a state."""

    ours: ObjectInfo | None = None
    others: ObjectInfo | None = None

    def suspect(self, recent: bool) -> ObjectInfo | None:
        """The object for other readers, where it is alone, or newer than the one that we write after it.

        Some stores tell only seconds, so among the `recent` ones the same time is no proof either.
        """
        if self.others is None or self.ours is None:
            return self.others
        newest = self.ours.modified_ms + (0 if recent else 1)
        return self.others if self.others.modified_ms >= newest else None


class ForeignWriters:
    """Looks for traces in one log. Remembers which suspects turned out well, so that a look stays cheap."""

    def __init__(self, log: TableLog) -> None:
        self._log = log
        self._cleared: set[tuple[str, int, int]] = set()

    async def trace(self, after: int) -> str | None:
        """The object that another writer left above a version, the last that was its own; None when there is none.

        Costs a GET, a LIST per thousand objects in states, and a GET for each suspect not seen before. StoreError.
        """
        directories = await self._directories(after)
        recent = sorted(directories)[-RECENT:]
        for version, directory in directories.items():
            suspect = directory.suspect(version in recent)
            if suspect is not None and await self._is_trace(version, suspect):
                return suspect.key
        return await self._hint_ahead(after)

    async def _directories(self, after: int) -> dict[int, _Directory]:
        paths = self._log.paths
        found: dict[int, _Directory] = {}
        start = f"{paths.state_prefix(after)[:-1]}0" if after >= 0 else None
        while True:
            page = await self._log.store.list(f"{paths.root}state-v", start_after=start, limit=PAGE)
            for info in page:
                version = paths.parse_state(info.key)
                if version is None:
                    continue
                directory = found.setdefault(version, _Directory())
                if info.key == paths.state_manifest(version):
                    directory.ours = info
                elif info.key == paths.state_manifest_avro(version):
                    directory.others = info
            if len(page) < PAGE:
                return found
            start = page[-1].key

    async def _is_trace(self, version: int, suspect: ObjectInfo) -> bool:
        seen = (suspect.key, suspect.size, suspect.modified_ms)
        if seen in self._cleared:
            return False
        try:
            data = await self._log.store.get(suspect.key)
            if is_foreign_state(suspect.key, version, data) and await self._tells_alone(version):
                return True
        except (ObjectMissing, CorruptObject):
            pass
        self._cleared.add(seen)
        return False

    async def _tells_alone(self, version: int) -> bool:
        """Whether a version of another writer is nowhere but in its state: no file, or one that is ours."""
        key = self._log.paths.version(version)
        try:
            return put_id_of(key, await self._log.store.get(key)) is not None
        except ObjectMissing:
            # What was cleaned away was ours, or another replica's cleanup runs: below the floor nothing is told.
            return version >= await self._log.floor()

    async def _hint_ahead(self, after: int) -> str | None:
        key = self._log.paths.last_checkpoint
        try:
            hint = decode_last_checkpoint(key, await self._log.store.get(key))
        except (ObjectMissing, CorruptObject):
            return None
        # A hint of ours is written after its version, so a version that is looked for after the hint is there.
        if hint.version <= after or await self._log.exists(hint.version) or hint.version < await self._log.floor():
            return None
        return key
