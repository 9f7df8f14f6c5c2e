"""`_manifest.avro`: a state as readers and writers in the field know it, one StateManifest record.

We write it for them before `_manifest.json` and never read our own: it has no room for what replay needs. What others
wrote is read here, and is foreign by definition.
"""

from __future__ import annotations

from typing import Any

import fastavro
import msgspec
from msgspec import Struct

from tarnlog.protocol.action_json import encode_action
from tarnlog_server.codec import doc_mapping_registry
from tarnlog_server.codec.damage import names_object
from tarnlog_server.codec.file_entry import NAMESPACE
from tarnlog_server.codec.partition_bounds import for_other_readers, partition_fields
from tarnlog_server.codec.state_avro import Compression, read_container, write_container
from tarnlog_server.codec.state_manifest import ManifestInfo, StateManifest, Tombstone, foreign_facts
from tarnlog_server.codec.version_file import CorruptObject

MAX_LONG = 2**63 - 1
_BOUNDS = {
    "type": "record",
    "name": "PartitionBoundsItem",
    "fields": [
        {"name": "min", "type": ["null", "string"], "default": None},
        {"name": "max", "type": ["null", "string"], "default": None},
    ],
}
_MANIFEST_INFO = {
    "type": "record",
    "name": "ManifestInfoItem",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "numEntries", "type": "long"},
        {"name": "minAddedAtVersion", "type": "long"},
        {"name": "maxAddedAtVersion", "type": "long"},
        {"name": "partitionBounds", "type": ["null", {"type": "map", "values": _BOUNDS}], "default": None},
        {"name": "tombstoneCount", "type": "long", "default": 0},
        {"name": "liveEntryCount", "type": "long", "default": -1},
    ],
}
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "StateManifest",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "formatVersion", "type": "int"},
            {"name": "stateVersion", "type": "long"},
            {"name": "createdAt", "type": "long"},
            {"name": "numFiles", "type": "long"},
            {"name": "totalBytes", "type": "long"},
            {"name": "manifests", "type": {"type": "array", "items": _MANIFEST_INFO}},
            {"name": "tombstones", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "schemaRegistry", "type": {"type": "map", "values": "string"}, "default": {}},
            {"name": "protocolVersion", "type": "int", "default": 4},
            {"name": "metadata", "type": ["null", "string"], "default": None},
        ],
    }
)


class _Record(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that some writers leave out have their meaning as a default."""

    format_version: int = 1
    state_version: int
    created_at: int = 0
    num_files: int = -1
    total_bytes: int = -1
    manifests: tuple[ManifestInfo, ...]
    tombstones: list[str] | None = None
    schema_registry: dict[str, str] | None = None
    protocol_version: int = 4
    metadata: str | None = None


def encode_state_manifest_avro(manifest: StateManifest, *, compression: Compression = "zstd", level: int = 3) -> bytes:
    """The record for other readers. They hide every entry of a tombstone's path, so no such path may live again."""
    metadata = manifest.facts.metadata
    fields = partition_fields(metadata)
    record: dict[str, Any] = {
        "formatVersion": manifest.format_version,
        "stateVersion": manifest.facts.version,
        "createdAt": manifest.created_at,
        "numFiles": manifest.num_files,
        "totalBytes": min(manifest.total_bytes, MAX_LONG),  # a sum of claimed sizes may be more than a long holds
        "manifests": [
            {
                "path": info.path,
                "numEntries": info.num_entries,
                "minAddedAtVersion": info.min_added_at_version,
                "maxAddedAtVersion": info.max_added_at_version,
                "partitionBounds": for_other_readers(info.partition_bounds, fields),
                "tombstoneCount": info.tombstone_count,
                "liveEntryCount": info.live_entry_count,
            }
            for info in manifest.manifests
        ],
        "tombstones": [stone.path for stone in manifest.tombstones],
        "schemaRegistry": doc_mapping_registry.bare(manifest.schema_registry),
        "protocolVersion": manifest.protocol_version,
        "metadata": None if metadata is None else encode_action(metadata).decode(),
    }
    return write_container(SCHEMA, [record], compression, level)


def decode_state_manifest_avro(key: str, version: int, data: bytes) -> StateManifest:
    """Another writer's state of `version`; CorruptObject names the object."""
    records = list(read_container(key, data, "StateManifest"))
    if len(records) != 1:
        raise CorruptObject(key, f"it holds {len(records)} records where one belongs")
    with names_object(key, "its record"):
        record = msgspec.convert(records[0], _Record)
        if record.state_version != version:
            raise CorruptObject(key, f"it describes version {record.state_version} in the place of {version}")
        return StateManifest(
            facts=foreign_facts(version, record.created_at, record.protocol_version, record.metadata),
            created_at=record.created_at,
            num_files=record.num_files,
            total_bytes=record.total_bytes,
            manifests=record.manifests,
            tombstones=tuple(Tombstone(path, None) for path in record.tombstones or ()),
            schema_registry=doc_mapping_registry.bare(record.schema_registry or {}),
            protocol_version=record.protocol_version,
            format_version=record.format_version,
            ours=False,
        )
