"""Other software that writes logs, one class for all its generations: what each left in storage, made here.

- A: a version file each commit, a JSON checkpoint every ten.
- B: version 0 as a file; every later commit is a state directory and the hint.
- C: a version file (raw gzip) each commit, then a state beside it.
"""

from __future__ import annotations

import gzip
import io
from typing import Any, Literal

import fastavro
import msgspec

from tarnlog_server.codec.paths import LogPaths, state_dir
from tarnlog_server.codec.state_manifest_avro import SCHEMA
from tarnlog_server.ports.object_store import ObjectStore

Generation = Literal["A", "B", "C"]

MAPPING = '[{"name":"id"}]'
METADATA = {
    "id": "field-id",
    "name": "events",
    "format": {"provider": "indextables", "options": {}},
    "schemaString": '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}',
    "partitionColumns": [],
    "configuration": {"made.by": "field"},
    "createdTime": 5,
}
_TEXTS = {"type": "map", "values": "string"}
_ENTRY = fastavro.parse_schema(
    {
        "type": "record",
        "name": "io.indextables.state.FileEntry",
        "fields": [
            {"name": "path", "type": "string"},
            {"name": "partitionValues", "type": _TEXTS},
            {"name": "size", "type": "long"},
            {"name": "modificationTime", "type": "long"},
            {"name": "dataChange", "type": "boolean"},
            {"name": "numRecords", "type": ["null", "long"], "default": None},
            {"name": "hasFooterOffsets", "type": "boolean", "default": False},
            {"name": "docMappingRef", "type": ["null", "string"], "default": None},
            {"name": "addedAtVersion", "type": "long"},
            {"name": "addedAtTimestamp", "type": "long"},
        ],
    }
)


def field_add(path: str, size: int = 10) -> dict[str, Any]:
    return {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
        "numRecords": 2,
        "docMappingRef": "h1",
    }


def _avro(schema: Any, records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="zstandard")
    return out.getvalue()


class FieldWriter:
    """One writer that remembers what it wrote, as a job that is still running does. `protocol` is the table's.

    `metadata` says when a state tells the table's metaData: never, as many do, or always.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: str,
        generation: Generation,
        *,
        protocol: int = 4,
        metadata: bool = False,
        registry_prefix: str = "",
    ) -> None:
        self.store = store
        self.log = LogPaths(table)
        self.generation = generation
        self.version = -1
        self.files: dict[str, dict[str, Any]] = {}
        self._protocol = protocol
        self._metadata = metadata
        self._prefix = registry_prefix
        self._manifests: list[dict[str, Any]] = []
        self._tombstones: list[str] = []

    async def create(self) -> None:
        configuration = METADATA["configuration"]
        if self.generation != "B":
            configuration = {**configuration, "docMappingSchema.h1": MAPPING}  # type: ignore[dict-item]
        actions: list[dict[str, Any]] = [
            {"protocol": {"minReaderVersion": self._protocol, "minWriterVersion": self._protocol}},
            {"metaData": {**METADATA, "configuration": configuration}},
        ]
        self.version = 0
        await self._version_file(actions)

    async def commit(self, *adds: str, removes: tuple[str, ...] = (), others: tuple[dict[str, Any], ...] = ()) -> int:
        """The next commit, as this generation makes one; `others` only where there are version files."""
        self.version += 1
        for path in removes:
            self.files.pop(path)
        self.files.update({path: field_add(path) for path in adds})
        if self.generation != "B":
            removed = [{"remove": {"path": path, "dataChange": True}} for path in removes]
            await self._version_file([*removed, *({"add": field_add(path)} for path in adds), *others])
        if self.generation == "A":
            await self._checkpoint()
        else:
            await self.state(adds, removes)
        return self.version

    async def state(self, adds: tuple[str, ...], removes: tuple[str, ...] = ()) -> None:
        """A state of the current version: its new files in a manifest of their own."""
        self._tombstones += removes
        if adds:
            name = f"manifests/manifest-{self.version:08x}.avro"
            known = {"addedAtVersion": self.version, "addedAtTimestamp": 7}
            await self.store.put(self.log.root + name, _avro(_ENTRY, [{**field_add(path), **known} for path in adds]))
            span = {"minAddedAtVersion": self.version, "maxAddedAtVersion": self.version}
            self._manifests.append({"path": name, "numEntries": len(adds), **span})
        record = {
            "formatVersion": 1,
            "stateVersion": self.version,
            "createdAt": 1_704_000_000_000 + self.version,
            "numFiles": len(self.files),
            "totalBytes": sum(add["size"] for add in self.files.values()),
            "manifests": self._manifests,
            "tombstones": self._tombstones,
            "schemaRegistry": {f"{self._prefix}h1": MAPPING},
            "protocolVersion": self._protocol,
            "metadata": msgspec.json.encode({"metaData": METADATA}).decode() if self._metadata else None,
        }
        await self.store.put(self.log.state_manifest_avro(self.version), _avro(SCHEMA, [record]))
        await self._hint("avro-state", state_dir(self.version))

    async def _version_file(self, actions: list[dict[str, Any]]) -> None:
        text = b"\n".join(map(msgspec.json.encode, actions)) + b"\n"
        packed = {"A": text, "B": b"\x01\x01" + gzip.compress(text), "C": gzip.compress(text)}[self.generation]
        await self.store.put_if_absent(self.log.version(self.version), packed)

    async def _checkpoint(self) -> None:
        if self.version % 10:
            return
        lines = [
            {"protocol": {"minReaderVersion": self._protocol, "minWriterVersion": self._protocol}},
            {"metaData": {**METADATA, "configuration": {"docMappingSchema.h1": MAPPING}}},
            *({"add": add} for add in self.files.values()),
        ]
        text = b"\n".join(map(msgspec.json.encode, lines))
        await self.store.put(self.log.checkpoint_json(self.version), b"\x01\x01" + gzip.compress(text))
        await self._hint("json", None)

    async def _hint(self, form: str, directory: str | None) -> None:
        hint = {
            "version": self.version,
            "size": len(self.files),
            "sizeInBytes": 1,
            "numFiles": len(self.files),
            "createdTime": 9,
            "parts": None,
            "checkpointId": None,
            "format": form,
            "stateDir": directory,
        }
        await self.store.put(self.log.last_checkpoint, msgspec.json.encode(hint))


async def field_table(store: ObjectStore, table: str, generation: Generation, **how: Any) -> FieldWriter:
    """A table with a history: twelve versions, of which some remove files."""
    writer = FieldWriter(store, table, generation, **how)
    await writer.create()
    for number in range(1, 12):
        removes = (f"f{number - 3}.split",) if number % 4 == 0 else ()
        await writer.commit(f"f{number}.split", removes=removes)
    return writer
