"""Reading JSON and Parquet checkpoints: parts some at a time, none waited for longer than the table allows.

The table's settings are inside the checkpoint. So the first part, which holds its metaData, is read by the defaults;
how many of the others are read at the same time, and how long each may take, is what it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tarnlog.protocol.actions import MetaData
from tarnlog_server.codec.checkpoint_json_read import decode_checkpoint, decode_part
from tarnlog_server.codec.checkpoint_parquet import Told, decode_parquet_info, decode_parquet_part, told_part
from tarnlog_server.codec.checkpoint_parts import CheckpointPart, PartsManifest, join_parts
from tarnlog_server.codec.table_state import State
from tarnlog_server.codec.told_files import same_files
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.table_settings import setting
from tarnlog_server.ports.object_store import ObjectStore, StoreUnavailable
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.lanes import some_at_a_time
from tarnlog_server.usecases.table_log import DECODE_OFF_LOOP_ABOVE, TableLog

TIMEOUT = "checkpoint.read.timeoutSeconds"
AT_ONCE_BYTES = 16 * 1024
"""Up to which decoding takes no longer than the way to a thread and back; a compressed one may be larger inside."""
AT_ONCE_ROWS, AT_ONCE_PARQUET_BYTES = 250, 32 * 1024
"""The same for Parquet, most of which are the names of its columns: a sealed checkpoint tells its rows before."""
Decode = Callable[[int, bytes], CheckpointPart]
"""A part from its place among the parts and its bytes."""


async def arrived(store: ObjectStore, key: str, configuration: Mapping[str, str], defaults: Mapping[str, str]) -> bytes:
    """An object of a state, within the time that the table or the service gives it. Raises StoreError."""
    seconds = int(setting(configuration, TIMEOUT, defaults))
    try:
        async with asyncio.timeout(seconds):
            return await store.get(key)
    except TimeoutError as error:
        raise StoreUnavailable(f"{key} did not arrive within {TIMEOUT} = {seconds}", key=key) from error


class CheckpointReader:
    """Reads the checkpoints of one table's log."""

    def __init__(self, log: TableLog, world: World) -> None:
        self._store = log.store
        self._paths = log.paths
        self._defaults = log.defaults
        self._world = world

    async def json(self, version: int) -> State:
        """A JSON checkpoint, in one object or in parts. Raises CorruptObject, StoreError."""
        key = self._paths.checkpoint_json(version)
        data = await arrived(self._store, key, {}, self._defaults)
        if len(data) <= AT_ONCE_BYTES:
            found = decode_checkpoint(key, version, data)
        else:
            found = await self._world.run_blocking(lambda: decode_checkpoint(key, version, data))
        if not isinstance(found, PartsManifest):
            return found
        keys = [f"{self._paths.root}{name.rsplit('/', 1)[-1]}" for name in found.parts]
        parts = await self._parts(keys, lambda place, body: decode_part(keys[place], body))
        return await self._world.run_blocking(lambda: join_parts(key, version, found, parts))

    async def parquet(self, version: int, *, thorough: bool = True) -> State:
        """A Parquet checkpoint. Raises CorruptObject, StoreError.

        A small one is told besides its columns: both are compared where the reader is thorough.
        """
        key = self._paths.checkpoint_parquet_info(version)
        info = decode_parquet_info(key, version, await arrived(self._store, key, {}, self._defaults))
        numbers = [None] if info.parts is None else list(range(1, info.parts + 1))
        keys = [self._paths.checkpoint_parquet(version, number) for number in numbers]
        checksums: list[str | None] = [*info.checksums] or [None] * len(keys)

        def decode(place: int, body: bytes) -> CheckpointPart:
            return decode_parquet_part(keys[place], body, sha256=checksums[place])

        if info.told is not None:
            return await self._told(key, version, info.told, keys[0], info.checksums, thorough)
        if info.checksums and len(keys) == 1 and info.size <= AT_ONCE_ROWS:
            body = await arrived(self._store, keys[0], {}, self._defaults)
            if len(body) <= AT_ONCE_PARQUET_BYTES:
                return join_parts(key, version, None, [decode(0, body)])
            return await self._world.run_blocking(lambda: join_parts(key, version, None, [decode(0, body)]))
        parts = await self._parts(keys, decode)
        return await self._world.run_blocking(lambda: join_parts(key, version, None, parts))

    async def _told(
        self, key: str, version: int, told: Told, place: str, checksums: Sequence[str], thorough: bool
    ) -> State:
        if len(checksums) != 1:
            raise CorruptObject(key, "it tells a checkpoint that is not in one file")
        data = await arrived(self._store, place, {}, self._defaults)

        def by_columns() -> State:
            return join_parts(key, version, None, [decode_parquet_part(place, data, sha256=checksums[0])])

        def quickly() -> State | None:
            part = told_part(place, version, told, data, checksums[0])
            return None if part is None else join_parts(key, version, None, [part])

        def thoroughly() -> State:
            state, other = by_columns(), quickly()
            if other is not None and (state.facts != other.facts or not same_files(state.files, other.files)):
                raise CorruptObject(key, f"what it tells is not what {place} holds")
            return state

        if thorough:
            return await self._world.run_blocking(thoroughly)
        # What is told is small, but removes may make the file large.
        at_once = len(data) <= DECODE_OFF_LOOP_ABOVE
        found = quickly() if at_once else await self._world.run_blocking(quickly)
        return found if found is not None else await self._world.run_blocking(by_columns)

    async def _parts(self, keys: Sequence[str], decode: Decode) -> list[CheckpointPart]:
        """Every part, decoded as it arrives: the bytes of no more than are being read are in memory."""

        async def read(place: int, configuration: Mapping[str, str]) -> CheckpointPart:
            body = await arrived(self._store, keys[place], configuration, self._defaults)
            return await self._world.run_blocking(lambda: decode(place, body))

        if not keys:
            return []
        first = await read(0, {})
        metadata = next((action for action in first.actions if isinstance(action, MetaData)), None)
        configuration = metadata.configuration if metadata is not None else {}
        rest = await some_at_a_time(
            int(setting(configuration, "checkpoint.parallelism", self._defaults)),
            [lambda place=place: read(place, configuration) for place in range(1, len(keys))],  # type: ignore[misc]
        )
        return [first, *rest]
