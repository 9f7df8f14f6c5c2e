"""Which name is which table: numbered entries in storage, the highest counts, none is ever changed or deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import Kind, ProblemError
from tarnlog_server.codec.paths import CATALOG, PROBE, catalog_entry, catalog_prefix, parse_catalog_entry
from tarnlog_server.core.locations import LocationError, parse_location
from tarnlog_server.ports.object_store import (
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreError,
    StoreRefused,
)
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.live_table import storage_problem

_log = logging.getLogger(__name__)
SETTLE_ATTEMPTS = 6
PARALLEL_READS = 32


Sees = Callable[[str], bool]
"""Whether a caller may see a namespace."""


def everything(_: str) -> bool:
    """For callers that see every namespace."""
    return True


class Entry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a catalog object says: a table's id and location, or that the name is free again."""

    id: str
    location: str = ""
    dropped: bool = False
    read_only: bool = False

    def fault(self) -> str | None:
        """Why this cannot be what a catalog object says; None when it can."""
        if not self.id:
            return "its id is empty"
        if self.dropped:
            return None
        if not self.location:
            return "it has no location"
        try:
            # A location without a scheme is inside the warehouse; the rules for its parts are the same.
            parse_location(self.location if "://" in self.location else f"w://{self.location}")
        except LocationError as error:
            return f"its location cannot be one: {error}"
        if self.location.endswith("/") or self.location.split("/")[0] in (CATALOG, PROBE):
            return "its location is not a folder of a table"
        return None


_ENTRY = msgspec.json.Decoder(Entry)


class Named(Struct, frozen=True):
    """An entry with its name and number."""

    name: TableName
    number: int
    entry: Entry


class Catalog:
    """Reads and writes the catalog of one warehouse. Lookups are cached for as long as the caller tolerates."""

    def __init__(self, store: ObjectStore, world: World) -> None:
        self._store = store
        self._world = world
        self._seen: dict[TableName, tuple[float, Named]] = {}
        self._entries: dict[str, Entry] = {}

    async def find(self, name: TableName, max_age: float) -> Named | None:
        """The newest entry of a name, dropped or not; None if there never was one. A LIST when older than `max_age`."""
        seen = self._seen.get(name)
        now = self._world.monotonic()
        if seen is not None and seen[0] >= now - max_age:
            return seen[1]
        after = catalog_entry(name, seen[1].number) if seen is not None else None
        found = seen[1] if seen is not None else None
        try:
            while True:
                page = await self._store.list(catalog_prefix(name), start_after=after, limit=1000)
                numbers = [parsed for info in page if (parsed := parse_catalog_entry(info.key)) is not None]
                if numbers:
                    found = Named(name, numbers[-1][1], await self._read(catalog_entry(name, numbers[-1][1])))
                if len(page) < 1000:
                    break
                after = page[-1].key
        except StoreError as error:
            raise storage_problem(error) from error
        if found is not None:
            self._seen[name] = (now, found)
        return found

    async def entry(self, name: TableName, number: int) -> Named:
        """An older entry of a name by its number, which must be there. Raises ProblemError."""
        try:
            return Named(name, number, await self._read(catalog_entry(name, number)))
        except StoreError as error:
            raise storage_problem(error) from error

    def forget(self, name: TableName) -> None:
        """Look the name up again next time."""
        self._seen.pop(name, None)

    async def all(self, namespace: str | None = None, sees: Sees = everything) -> list[Named]:
        """The newest entry of every name, dropped ones included; only of namespaces for which `sees` is true.

        I/O: 1 LIST for each 1000 entries, 1 GET for each new one. Entries of other namespaces are not read, so that no
        error names them.
        """
        newest: dict[TableName, int] = {}
        after: str | None = None
        try:
            while True:
                page = await self._store.list(catalog_prefix(namespace=namespace), start_after=after, limit=1000)
                for info in page:
                    parsed = parse_catalog_entry(info.key)
                    if parsed is not None and sees(parsed[0].namespace):
                        newest[parsed[0]] = max(parsed[1], newest.get(parsed[0], -1))
                if len(page) < 1000:
                    break
                after = page[-1].key
            named = sorted(newest.items())
            found: list[Named] = []
            for start in range(0, len(named), PARALLEL_READS):
                window = named[start : start + PARALLEL_READS]
                found += [
                    one for one in await asyncio.gather(*(self._named(*key) for key in window)) if one is not None
                ]
            return found
        except StoreError as error:
            raise storage_problem(error) from error

    async def write(self, name: TableName, number: int, entry: Entry) -> bool:
        """Create entry `number`: True when it is ours, False when another was first. ProblemError when nobody knows."""
        key = catalog_entry(name, number)
        data = msgspec.json.encode(entry)
        for attempt in range(SETTLE_ATTEMPTS):
            try:
                result = await self._store.put_if_absent(key, data)
            except OutcomeUnknown:
                await self._world.sleep(0.1 * 2**attempt)
                continue
            except StoreRefused as error:
                if attempt == 0:
                    raise storage_problem(error) from error
                continue
            self.forget(name)
            return result is PutResult.CREATED or await self._is_ours(key, data)
        raise ProblemError(
            "commit-unknown",
            f"the store did not say whether the catalog entry of {name} was written; look at the table, then try again",
            retry_after=2.0,
        )

    async def _named(self, name: TableName, number: int) -> Named | None:
        """One entry of a listing. A damaged one stops only its own name: whoever asks for that is told."""
        try:
            return Named(name, number, await self._read(catalog_entry(name, number)))
        except ProblemError as problem:
            if problem.code.kind is not Kind.CORRUPT:
                raise
            _log.error("table %s is left out of the catalog: %s", name, problem.detail)
            return None

    async def _is_ours(self, key: str, data: bytes) -> bool:
        try:
            return await self._store.get(key) == data
        except StoreError as error:
            raise storage_problem(error) from error

    async def _read(self, key: str) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            try:
                entry = _ENTRY.decode(await self._store.get(key))
                fault, cause = entry.fault(), None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                fault, cause = str(error), error
            except ObjectMissing as error:
                raise storage_problem(error) from error
            if fault is not None or entry is None:
                detail = f"catalog object {key} is corrupt: {fault}; restore it from a copy"
                raise ProblemError("log-corrupt", detail, object=key) from cause
            self._entries[key] = entry
        return entry
