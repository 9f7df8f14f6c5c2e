"""What another writer's state leaves out and a table needs: its metaData, its document mappings, its time.

Their states often hold no metaData. The newest older state that does is the best witness, then version 0.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from tarnlog.protocol.actions import MetaData
from tarnlog_server.codec import doc_mapping_registry
from tarnlog_server.codec.state_manifest_avro import decode_state_manifest_avro
from tarnlog_server.codec.table_state import StateFacts
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.ports.object_store import ObjectMissing
from tarnlog_server.usecases.table_log import PARALLEL_READS, TableLog

PAGE = 1000


class ForeignFacts:
    """Completes the facts of other writers' states of one log. Remembers what it found, for the next newer state."""

    def __init__(self, log: TableLog) -> None:
        self._log = log
        self._known: tuple[int, MetaData | None] = (-1, None)
        """The metaData that was in force at a version."""

    async def completed(self, key: str, facts: StateFacts, registry: dict[str, str]) -> StateFacts:
        """The facts with what they lack; `key` is the object that tells the time of a state without one.

        Costs nothing for a state that tells all; without metaData, the manifests of the older states once.
        """
        if facts.timestamp < 0:
            facts = msgspec.structs.replace(facts, timestamp=(await self._log.store.head(key)).modified_ms)
        metadata = facts.metadata
        if metadata is None:
            metadata = await self._older_metadata(facts.version)
        self._known = (facts.version, metadata)
        if metadata is not None and registry:
            mappings = doc_mapping_registry.to_configuration(registry)
            metadata = msgspec.structs.replace(metadata, configuration={**mappings, **metadata.configuration})
        return msgspec.structs.replace(facts, metadata=metadata)

    async def _older_metadata(self, version: int) -> MetaData | None:
        since, known = self._known if self._known[0] <= version else (-1, None)
        older = [number for number in await self._states_below(version) if number > since]
        for start in range(0, len(older), PARALLEL_READS):
            window = older[start : start + PARALLEL_READS]
            for found in await asyncio.gather(*(self._metadata_of(number) for number in window)):
                if found is not None:
                    return found
        return known if known is not None else await self._first_metadata()

    async def _states_below(self, version: int) -> list[int]:
        """Versions with a state, newest first."""
        paths = self._log.paths
        found: set[int] = set()
        after: str | None = None
        while True:
            page = await self._log.store.list(f"{paths.root}state-v", start_after=after, limit=PAGE)
            found.update(number for info in page if (number := paths.parse_state(info.key)) is not None)
            if len(page) < PAGE:
                return sorted((number for number in found if number < version), reverse=True)
            after = page[-1].key

    async def _metadata_of(self, version: int) -> MetaData | None:
        key = self._log.paths.state_manifest_avro(version)
        with contextlib.suppress(CorruptObject, ObjectMissing):
            return decode_state_manifest_avro(key, version, await self._log.store.get(key)).facts.metadata
        return None

    async def _first_metadata(self) -> MetaData | None:
        try:
            first = await self._log.read(0)
        except ObjectMissing:
            return None
        return next((action for action in reversed(first.actions) if isinstance(action, MetaData)), None)
