"""Parsers of objects in storage: version files, states, checkpoints, hints, catalog entries and sessions."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import zlib

import msgspec

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import CommitInfo, Protocol, SubCommit
from tarnlog.protocol.schema import SchemaError, parse_schema_string
from tarnlog_server.adapters.datafusion_columns import column_reader
from tarnlog_server.codec import sealed_lines, version_file
from tarnlog_server.codec.checkpoint_json import encode_checkpoint, encode_checkpoint_parts, encode_parts_manifest
from tarnlog_server.codec.checkpoint_json_read import decode_checkpoint, decode_part
from tarnlog_server.codec.checkpoint_parquet import (
    decode_parquet_info,
    decode_parquet_part,
    encode_parquet,
    encode_parquet_checksums,
    tell_parquet,
    told_part,
)
from tarnlog_server.codec.checkpoint_parts import PartsManifest, join_parts
from tarnlog_server.codec.damage import NO_SHA256, seal_document, sha256_hex
from tarnlog_server.codec.file_columns import FileColumns, UnexpectedColumns
from tarnlog_server.codec.ids_file import decode_ids, encode_ids, make_run
from tarnlog_server.codec.last_checkpoint import LastCheckpoint, decode_last_checkpoint, encode_last_checkpoint
from tarnlog_server.codec.partition_bounds import BoundsBuilder, partition_fields
from tarnlog_server.codec.session_file import SessionFile, decode_session, encode_session
from tarnlog_server.codec.state_avro import decode_manifest, encode_manifest
from tarnlog_server.codec.state_manifest import decode_state_manifest, encode_state_manifest
from tarnlog_server.codec.state_manifest_avro import decode_state_manifest_avro, encode_state_manifest_avro
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import FACTS, FILES, METADATA, PARTITION_COLUMNS, VERSION, plain_add, unchanged, unchanged_files
from tests.codec.test_state_manifest import MANIFEST
from tests.fuzz.harness import Target, touched

KEY = "t/_transaction_log/object"
_SEAL = b'{"sha256":"'
_IDS_DIGEST = slice(48, 80)
"""Where ids.bin has its checksum."""


def _actions() -> list[bytes]:
    protocol = Protocol(min_reader_version=4, min_writer_version=4)
    return [encode_action(action) for action in (protocol, METADATA, *(file.add for file in FILES))]


@functools.cache
def version_files() -> list[bytes]:
    """Plain, raw gzip, framed gzip, and another writer's."""
    lines = _actions()
    sub = SubCommit(commit_id="018cc251-f400-7000-8000-00000000abcd", seq=0, operation="WRITE", action_count=len(lines))
    info = CommitInfo(timestamp=1, put_id="p", engine_info="e", sub_commits=(sub,))
    plain = version_file.encode(info, lines, compress=False)
    many = [encode_action(plain_add(f"day=2024-01-02/n=10/{n}.parquet")) for n in range(60)]
    packed = version_file.encode(CommitInfo(timestamp=1, put_id="p"), many, compress=True)
    assert packed.startswith(b"\x01\x01")
    return [plain, gzip.compress(plain), packed, b"\n".join(lines), b'{"commitInfo":{"operation":[1]}}\n' + lines[2]]


def unpacked(data: bytes) -> bytes:
    return sealed_lines.inflate(KEY, data)


def resealed_lines(data: bytes) -> bytes:
    """The text with its own checksum, where it has the place of one."""
    try:
        text = sealed_lines.inflate(KEY, data)
    except CorruptObject:
        return data
    start = len(sealed_lines.START)
    if not text.startswith(sealed_lines.START) or len(text) < start + 8:
        return data
    blank = sealed_lines.UNSEALED + text[start + 8 :]
    return sealed_lines.START + b"%08x" % zlib.crc32(blank) + text[start + 8 :]


def resealed_document(data: bytes) -> bytes:
    """The document with its own checksum."""
    end = len(_SEAL) + 64
    if not data.startswith(_SEAL) or len(data) < end:
        return data
    return seal_document(_SEAL + NO_SHA256.encode() + data[end:])


def resealed_ids(data: bytes) -> bytes:
    if len(data) < _IDS_DIGEST.stop:
        return data
    blank = data[: _IDS_DIGEST.start] + bytes(32) + data[_IDS_DIGEST.stop :]
    return data[: _IDS_DIGEST.start] + hashlib.sha256(blank).digest() + data[_IDS_DIGEST.stop :]


@functools.cache
def state_documents() -> list[bytes]:
    """Ours with and without its files, and another writer's."""
    foreign = {
        "formatVersion": 1,
        "stateVersion": VERSION,
        "createdAt": 5,
        "numFiles": 1,
        "totalBytes": 7,
        "manifests": [{"path": "m.avro", "numEntries": 1}],
        "tombstones": ["a.parquet"],
        "schemaRegistry": {"ab": "[]"},
        "protocolVersion": 4,
        "metadata": encode_action(METADATA).decode(),
    }
    few = msgspec.structs.replace(MANIFEST, few=unchanged_files(FILES))
    return [encode_state_manifest(MANIFEST), encode_state_manifest(few), json.dumps(foreign).encode()]


@functools.cache
def manifests() -> list[bytes]:
    files = [*FILES, *(msgspec.structs.replace(FILES[1], add=plain_add(f"p{n}.parquet")) for n in range(5))]
    bounds = BoundsBuilder(partition_fields(METADATA))
    return [encode_manifest(files, bounds=bounds, compression=codec).data for codec in ("none", "zstd", "snappy")]


@functools.cache
def json_checkpoints() -> list[bytes]:
    facts, files = unchanged(FACTS), unchanged_files(FILES)
    oldest = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 1},
        "metaData": json.loads(encode_action(METADATA))["metaData"],
        "add": [json.loads(encode_action(file.add))["add"] for file in files],
    }
    parts = list(encode_checkpoint_parts(facts, files, checkpoint_id="01ab", actions_per_part=3, compress=False))
    parts_manifest = encode_parts_manifest(VERSION, "01ab", ["a", "b"], 7)
    whole = encode_checkpoint(facts, files, compress=True).data
    return [whole, parts[0].data, parts_manifest, json.dumps(oldest).encode(), b"\n".join(_actions())]


def _json_checkpoint(data: bytes) -> object:
    found = decode_checkpoint(KEY, VERSION, data)
    return found if isinstance(found, PartsManifest) else touched(found)


def _json_part(data: bytes) -> object:
    part = decode_part(KEY, data)
    return touched(join_parts(KEY, VERSION, None, [part]))


@functools.cache
def parquet_checkpoints() -> list[bytes]:
    facts, files = unchanged(FACTS), unchanged_files(FILES)
    return [next(iter(encode_parquet(facts, files, compression=codec))).data for codec in ("snappy", "zstd", "none")]


def _parquet(data: bytes) -> object:
    """As other writers' are read, and as ours are whose checksum is known."""
    for sha256 in (None, sha256_hex(data)):
        found = touched(join_parts(KEY, VERSION, None, [decode_parquet_part(KEY, data, sha256=sha256)]))
    return found


@functools.cache
def parquet_infos() -> list[bytes]:
    facts, files = unchanged(FACTS), unchanged_files(FILES)
    encoded = list(encode_parquet(facts, files, compression="snappy"))
    told = tell_parquet(facts, files)
    checksums = [sha256_hex(encoded[0].data)]
    return [
        encode_parquet_checksums(VERSION, 5, [sha256_hex(file.data) for file in encoded], 7),
        encode_parquet_checksums(VERSION, 5, checksums, 7, told),
        json.dumps({"version": VERSION, "size": 3, "parts": 2}).encode(),
    ]


def _parquet_info(data: bytes) -> object:
    info = decode_parquet_info(KEY, VERSION, data)
    if info.told is None:
        return info
    file = parquet_checkpoints()[0]
    part = told_part(KEY, VERSION, info.told, file, sha256_hex(file))
    return part if part is None else touched(join_parts(KEY, VERSION, None, [part]))


def _columns(data: bytes) -> object:
    """Manifests as columns: only what has the right checksum comes here, so no more than no crash is asked for."""
    reader = column_reader()
    assert reader is not None
    files = FileColumns.live(reader.read_avro(data), {})
    return [file.add for file in files]


def _hint() -> list[bytes]:
    hint = LastCheckpoint(version=3, size=4, size_in_bytes=5, num_files=6, created_time=7, parts=2, format="parquet")
    return [encode_last_checkpoint(hint), gzip.compress(encode_last_checkpoint(hint))]


def _session() -> list[bytes]:
    return [encode_session(SessionFile(id="x", prefix="day=1/", expires_at=1704067200000, created_at=5))]


CORRUPT = (CorruptObject,)
TARGETS: tuple[Target, ...] = (
    Target(
        "version-file",
        version_files,
        lambda data: version_file.decode(KEY, 5, data, 1),
        CORRUPT,
        "lines",
        resealed_lines,
        unpacked,
    ),
    Target(
        "version-file-owner",
        version_files,
        lambda data: version_file.put_id_of(KEY, data),
        CORRUPT,
        "lines",
        resealed_lines,
        unpacked,
    ),
    Target(
        "state-document",
        state_documents,
        lambda data: touched(decode_state_manifest(KEY, VERSION, data)),
        CORRUPT,
        "json",
        resealed_document,
        unpacked,
    ),
    Target(
        "state-record",
        lambda: [encode_state_manifest_avro(MANIFEST, compression=codec) for codec in ("none", "zstd", "snappy")],
        lambda data: touched(decode_state_manifest_avro(KEY, VERSION, data)),
        CORRUPT,
    ),
    Target(
        "manifest",
        manifests,
        lambda data: decode_manifest(KEY, data, partition_columns=PARTITION_COLUMNS),
        CORRUPT,
    ),
    Target("manifest-columns", manifests, _columns, (ValueError, UnexpectedColumns)),
    Target(
        "commit-ids",
        lambda: [encode_ids(make_run(5, 1, 2, [(n * 7, n, 0) for n in range(count)])) for count in (0, 1, 20)],
        lambda data: decode_ids(KEY, data),
        CORRUPT,
        reseal=resealed_ids,
    ),
    Target("json-checkpoint", json_checkpoints, _json_checkpoint, CORRUPT, "lines", resealed_lines, unpacked, False),
    Target(
        "json-checkpoint-manifest",
        lambda: json_checkpoints()[2:4],
        _json_checkpoint,
        CORRUPT,
        "json",
    ),
    Target("json-checkpoint-part", json_checkpoints, _json_part, CORRUPT, "lines", resealed_lines, unpacked, False),
    Target("parquet-checkpoint", parquet_checkpoints, _parquet, CORRUPT),
    Target("parquet-checkpoint-info", parquet_infos, _parquet_info, CORRUPT, "json", resealed_document),
    Target("last-checkpoint", _hint, lambda data: decode_last_checkpoint(KEY, data), CORRUPT, "json", None, unpacked),
    Target("session", _session, lambda data: decode_session(KEY, data), CORRUPT, "json"),
    Target(
        "schema-text",
        lambda: [METADATA.schema_string.encode()],
        parse_schema_string,
        (SchemaError,),
        "json",
    ),
)
