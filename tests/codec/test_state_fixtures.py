"""Tables that other software wrote, read as they should be: one made here in their manner, and real ones if present."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tarnlog_server.codec import version_file
from tarnlog_server.codec.last_checkpoint import decode_last_checkpoint
from tarnlog_server.codec.paths import LogPaths, state_dir
from tarnlog_server.codec.state_avro import decode_manifest
from tarnlog_server.codec.state_manifest import StateManifest, live_files
from tarnlog_server.codec.state_manifest_avro import SCHEMA, decode_state_manifest_avro
from tarnlog_server.codec.table_state import StateFile

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "indextables-0.5.4"
TEXTS = {"type": "map", "values": "string"}
# The fields that such a writer knows, fewer than ours.
ENTRY = {
    "type": "record",
    "name": "io.indextables.state.FileEntry",
    "fields": [
        {"name": "path", "type": "string", "field-id": 100},
        {"name": "partitionValues", "type": TEXTS, "field-id": 101},
        {"name": "size", "type": "long", "field-id": 102},
        {"name": "modificationTime", "type": "long", "field-id": 103},
        {"name": "dataChange", "type": "boolean", "field-id": 104},
        {"name": "minValues", "type": ["null", TEXTS], "default": None, "field-id": 111},
        {"name": "numRecords", "type": ["null", "long"], "default": None, "field-id": 113},
        {"name": "hasFooterOffsets", "type": "boolean", "default": False, "field-id": 124},
        {"name": "docMappingRef", "type": ["null", "string"], "default": None, "field-id": 135},
        {"name": "addedAtVersion", "type": "long", "field-id": 140},
        {"name": "addedAtTimestamp", "type": "long", "field-id": 141},
    ],
}

Get = Callable[[str], bytes]


def read_state(log: LogPaths, get: Get, version: int) -> tuple[StateManifest, list[StateFile]]:
    key = log.state_manifest_avro(version)
    manifest = decode_state_manifest_avro(key, version, get(key))
    entries: list[StateFile] = []
    for info in manifest.manifests:
        name = log.resolve_manifest(info.path, version)
        entries += decode_manifest(name, get(name), num_entries=info.num_entries)
    return manifest, list(live_files(manifest.tombstones, entries))


def avro(schema: Any, records: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec="zstandard")
    return out.getvalue()


def entry(name: str) -> dict[str, Any]:
    return {
        "path": name,
        "partitionValues": {},
        "size": 100,
        "modificationTime": 5,
        "dataChange": True,
        "minValues": {"id": "1"},
        "hasFooterOffsets": True,
        "docMappingRef": "h1",
        "addedAtVersion": 0,
        "addedAtTimestamp": 6,
    }


def a_table_in_their_manner() -> tuple[LogPaths, dict[str, bytes]]:
    """Version 0 as a file, versions 1 to 3 as states only; the last one removes a file. Manifest paths in all forms."""
    log = LogPaths("t")
    first = (
        b'{"protocol":{"minReaderVersion":4,"minWriterVersion":4}}\n'
        b'{"metaData":{"id":"i","name":null,"format":{"provider":"indextables","options":{}},"schemaString":"{}",'
        b'"partitionColumns":[],"configuration":{},"createdTime":1}}\n'
    )
    objects = {
        log.version(0): b"\x01\x01" + gzip.compress(first),
        log.last_checkpoint: b'{"version":3,"size":3,"sizeInBytes":300,"numFiles":3,"createdTime":9,"parts":null,'
        b'"checkpointId":null,"format":"avro-state","stateDir":"%s"}' % state_dir(3).encode(),
        f"{log.root}manifests/manifest-aa.avro": avro(ENTRY, [entry("a.split"), entry("b.split")]),
        f"{log.state_prefix(2)}manifest-bb.avro": avro(ENTRY, [entry("c.split")]),
        f"{log.state_prefix(3)}manifest-cc.avro": avro(ENTRY, [entry("d.split")]),
    }
    paths = ["manifests/manifest-aa.avro", f"{state_dir(2)}/manifest-bb.avro", "manifest-cc.avro"]
    for version in (1, 2, 3):
        record = {
            "formatVersion": 1,
            "stateVersion": version,
            "createdAt": version,
            "numFiles": 3,
            "totalBytes": 300,
            "manifests": [
                {"path": path, "numEntries": 2 if "aa" in path else 1, "minAddedAtVersion": 0, "maxAddedAtVersion": 0}
                for path in paths[:version]
            ],
            "tombstones": ["b.split"] if version == 3 else [],
            "schemaRegistry": {"docMappingSchema.h1": "[]"} if version == 3 else {"h1": "[]"},
            "metadata": None,
        }
        objects[log.state_manifest_avro(version)] = avro(SCHEMA, [record])
    return log, objects


@pytest.mark.parametrize(
    "version, files",
    [(1, ["a.split", "b.split"]), (2, ["a.split", "b.split", "c.split"]), (3, ["a.split", "c.split", "d.split"])],
)
def test_a_table_in_their_manner(version: int, files: list[str]) -> None:
    log, objects = a_table_in_their_manner()
    manifest, live = read_state(log, objects.__getitem__, version)
    assert [file.add.path for file in live] == files
    assert not manifest.ours
    assert manifest.facts.metadata is None, "version 0 has it"
    assert manifest.schema_registry == {"h1": "[]"}
    assert {(file.added_at_version, file.added_at_timestamp) for file in live} == {(0, 6)}
    last = decode_last_checkpoint(log.last_checkpoint, objects[log.last_checkpoint])
    assert (last.version, last.format, last.state_dir) == (3, "avro-state", state_dir(3))
    assert len(version_file.decode(log.version(0), 0, objects[log.version(0)], 1).actions) == 2


@pytest.mark.skipif(not REAL.is_dir(), reason="the real tables are not beside this checkout")
@pytest.mark.parametrize(
    "table, version, files",
    [
        ("02_five_appends", 5, 10),
        ("04_partitioned", 1, 3),
        ("06_schema_dedup", 12, 24),
        ("14_after_merge", 5, 1),
        ("17_truncated_log", 9, 16),
    ],
)
def test_real_tables(table: str, version: int, files: int) -> None:
    log = LogPaths(str(REAL / table))
    last = decode_last_checkpoint(log.last_checkpoint, Path(log.last_checkpoint).read_bytes())
    assert last.version == version
    manifest, live = read_state(log, lambda key: Path(key).read_bytes(), version)
    assert len(live) == manifest.num_files == last.num_files == files
    assert sum(file.add.size for file in live) == manifest.total_bytes
    assert {file.add.doc_mapping_ref for file in live} <= set(manifest.schema_registry)
    zero = version_file.decode(log.version(0), 0, Path(log.version(0)).read_bytes(), 1)
    assert len(zero.actions) == 2
    for key in sorted(Path(log.root).glob("state-v*/_manifest.avro")):
        older = log.parse_state(str(key))
        assert older is not None
        found, some = read_state(log, lambda key: Path(key).read_bytes(), older)
        assert len(some) == found.num_files
