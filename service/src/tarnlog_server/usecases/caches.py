"""The in-process caches of reads: what each holds, when it is dropped, and how often it helped.

| cache | holds | dropped |
|---|---|---|
| protocol, metadata | the rendered protocol or metaData of a table | when a version changes them, TTL |
| versions | decoded version files (they never change) | TTL, size |
| files | snapshots rebuilt for time travel (they never change) | TTL, size |
| versionsList | the oldest version that can be read | when a cleanup moves it, TTL |

Versions and snapshots differ a thousandfold in size, so a large one takes the room of many, up to the whole cache.
A table may have its entries kept for another time, and fewer of its versions, than the service has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from cachetools import TLRUCache
from msgspec import UNSET, Struct, UnsetType

from tarnlog.protocol.actions import MetaData
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.table_settings import own_value
from tarnlog_server.core.version_record import VersionRecord
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.load_times import LoadTime

V = TypeVar("V")
Key = tuple[str, int]
ACTIONS_A_PLACE = 100
FILES_A_PLACE = 10_000


class CacheStats(Struct, frozen=True, rename="camel"):
    """How one cache is doing since the start."""

    hits: int
    misses: int
    hit_rate: float
    size: int
    max_size: int
    ttl_seconds: float
    bytes: int | UnsetType = UNSET
    """The memory it takes, where that is bounded."""
    max_bytes: int | UnsetType = UNSET
    evictions: int | UnsetType = UNSET
    """How many entries made room for others."""
    loads: dict[str, LoadTime] | UnsetType = UNSET
    """How long loading took, by source."""


class TableLimits(Struct, frozen=True):
    """What a table's properties say of its entries; None leaves it to the service."""

    ttl_seconds: float | None = None
    max_versions: int | None = None


def limits_of(metadata: MetaData | None, defaults: Mapping[str, str]) -> TableLimits:
    """The limits of a table. A service's cache holds no more for all tables than the service says."""
    properties = metadata.configuration if metadata is not None else {}
    return TableLimits(
        own_value(properties, "cache.expirationSeconds", defaults), own_value(properties, "cache.maxVersions", defaults)
    )


class _Entry(Generic[V]):
    __slots__ = ("ttl", "value")

    def __init__(self, value: V, ttl: float) -> None:
        self.value = value
        self.ttl = ttl


class CountedCache(Generic[V]):
    """A bounded TTL cache keyed by (table location, version) that counts its hits."""

    def __init__(
        self,
        name: str,
        max_size: int,
        ttl: float,
        timer: Callable[[], float],
        telemetry: Telemetry,
        places: Callable[[V], int] = lambda _: 1,
    ) -> None:
        self.name = name
        self._telemetry = telemetry
        self._ttl = ttl
        self._entries: TLRUCache[Key, _Entry[V]] = TLRUCache(
            max_size,
            lambda _, entry, now: now + entry.ttl,
            timer=timer,
            getsizeof=lambda entry: min(max_size, places(entry.value)),
        )
        self._hits = 0
        self._misses = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> V | None:
        found = self._entries.get(key)
        if found is None:
            self._misses += 1
        else:
            self._hits += 1
        self._telemetry.cache_lookup(self.name, found is not None)
        return None if found is None else found.value

    def put(self, key: Key, value: V, ttl: float | None = None, most: int | None = None) -> None:
        """Keep a value; for `ttl` seconds instead of the usual, beside at most `most` - 1 others of its table.

        A bound for one table costs a look at every key.
        """
        if most == 0:
            return
        self._entries[key] = _Entry(value, self._ttl if ttl is None else ttl)
        if most is not None:
            own = [other for other in list(self._entries) if other[0] == key[0] and other != key]
            for other in own[: max(0, len(own) + 1 - most)]:
                self._entries.pop(other, None)

    def expire(self) -> None:
        """Let go of what is too old now: without a look, nobody would before the next entry comes."""
        self._entries.expire()

    def drop(self, location: str | None = None) -> int:
        """Forget one table, or everything; how many entries went."""
        keys = [key for key in list(self._entries) if location is None or key[0] == location]
        for key in keys:
            self._entries.pop(key, None)
        return len(keys)

    def stats(self) -> CacheStats:
        total = self._hits + self._misses
        rate = self._hits / total if total else 0.0
        return CacheStats(
            self._hits, self._misses, round(rate, 4), len(self._entries), int(self._entries.maxsize), self._ttl
        )


class Caches:
    """All of them. Each is safe to drop at any time."""

    def __init__(
        self, world: World, telemetry: Telemetry, *, ttl_seconds: float = 300, max_versions: int = 1000
    ) -> None:
        def make(name: str, size: int, places: Callable[[V], int] = lambda _: 1) -> CountedCache[V]:
            return CountedCache(name, size, ttl_seconds, world.monotonic, telemetry, places)

        self.protocol: CountedCache[dict[str, object]] = make("protocol", 1000)
        self.metadata: CountedCache[dict[str, object]] = make("metadata", 1000)
        self.versions: CountedCache[VersionRecord] = make("versions", max_versions, _version_places)
        self.files: CountedCache[Snapshot] = make("files", 32, _snapshot_places)
        self.versions_list: CountedCache[int] = make("versionsList", 1000)

    @property
    def _all(self) -> tuple[CountedCache[object], ...]:
        return (self.protocol, self.metadata, self.versions, self.files, self.versions_list)  # type: ignore[return-value]

    def stats(self) -> dict[str, CacheStats]:
        """Every cache's statistics by name."""
        return {cache.name: cache.stats() for cache in self._all}

    def expire(self) -> None:
        """Let go of what is too old: a snapshot may hold a whole table that is closed."""
        for cache in self._all:
            cache.expire()

    def invalidate(self, location: str | None = None) -> dict[str, int]:
        """Drop everything of one table, or of all; how many entries went from each cache."""
        return {cache.name: cache.drop(location) for cache in self._all}


def _version_places(record: VersionRecord) -> int:
    return 1 + len(record.actions) // ACTIONS_A_PLACE


def _snapshot_places(snapshot: Snapshot) -> int:
    return 1 + snapshot.length // FILES_A_PLACE
