"""What an Avro state consists of: its manifests, its tombstones, its registry and the facts of replay.

`StateManifest` is the value; this module also writes and reads it as `_manifest.json`, whose existence completes a
state. The document starts with a SHA-256 of itself, taken with zeros in its place, so every flipped bit is noticed.
A document without our facts is another writer's and is read as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from tarnlog.protocol.action_json import encode_action, from_object
from tarnlog.protocol.actions import MetaData, Protocol, Remove, Txn
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec import doc_mapping_registry
from tarnlog_server.codec.damage import NO_SHA256, check_document, names_object, seal_document
from tarnlog_server.codec.partition_bounds import PartitionBounds
from tarnlog_server.codec.side_facts import SideFacts, body, from_body, side_facts, with_side_facts
from tarnlog_server.codec.table_state import LaterRemoves, StateFacts, StateFile, StateRemove
from tarnlog_server.codec.told_files import NOT_TOLD, tell, told
from tarnlog_server.codec.version_file import CorruptObject, inflate

FORMAT_VERSION = 1


class Tombstone(Struct, frozen=True, gc=False):
    """Hides a path's entries that are older than `version`; all of them for None, as foreign tombstones do.

    `added_at` is the version that added the hidden entry, where that is known: it tells which manifest holds it.
    """

    path: str
    version: int | None
    added_at: int | None = None


class ManifestInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a state says about one of its manifests. `sha256` None is a foreign one; -1 live entries are unknown.

    `column_bounds` are the least and greatest values of data columns; other readers do not know them.
    """

    path: str
    num_entries: int
    min_added_at_version: int = 0
    max_added_at_version: int = 0
    partition_bounds: dict[str, PartitionBounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = -1
    sha256: str | None = None
    column_bounds: dict[str, tuple[str, str]] | None = None


class StateManifest(Struct, frozen=True, kw_only=True):
    """An Avro state without its entries. `num_files` and `total_bytes` are exact only when it is `ours`.

    `few` are the files that it shows, where they are few enough to be told besides.
    """

    facts: StateFacts
    created_at: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: tuple[Tombstone, ...] = ()
    schema_registry: dict[str, str] = {}
    protocol_version: int = 4
    format_version: int = FORMAT_VERSION
    ours: bool = True
    few: Sequence[StateFile] | None = None


def live_files(tombstones: Iterable[Tombstone], files: Iterable[StateFile]) -> Iterator[StateFile]:
    """The files that no tombstone hides. A file added at a tombstone's version or later is the path's new life."""
    hidden = hidden_below(tombstones)
    if not hidden:
        yield from files
        return
    for file in files:
        below = hidden.get(path_key(file.add.path), -1)
        if below is not None and file.added_at_version >= below:
            yield file


def hidden_below(tombstones: Iterable[Tombstone]) -> dict[str, int | None]:
    """By path key, the version below which its entries are hidden; None hides all of them."""
    hidden: dict[str, int | None] = {}
    for stone in tombstones:
        key = path_key(stone.path)
        known = hidden.get(key, -1)
        if known is not None:
            hidden[key] = None if stone.version is None else max(known, stone.version)
    return hidden


class _Remove(Struct, frozen=True, kw_only=True, rename="camel"):
    """`remove` holds the action's other members, and those of these three that differ there."""

    path: str
    version: int
    deletion_timestamp: int
    remove: dict[str, Any] = {}


_NO_REMOVES = Raw(b"[]")


class _Document(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The members without a default are in every writer's document. `metadata` is the metaData action as text, which
    other readers look for; from what this service wrote, `meta_data` is read."""

    sha256: str | None = msgspec.field(default=None, name="sha256")
    format_version: int
    state_version: int
    created_at: int
    num_files: int
    total_bytes: int
    protocol_version: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: list[str]
    schema_registry: dict[str, str]
    metadata: str | None = None
    timestamp: int | None = None
    put_id: str | None = None
    version_sha256: str | None = msgspec.field(default=None, name="versionSha256")
    truncation_length: int | None = None
    protocol: dict[str, Any] | None = None
    meta_data: dict[str, Any] | None = None
    txns: list[Raw] = []
    txn_versions: list[int] = []
    skips: list[Raw] = []
    removes: Raw = _NO_REMOVES
    tombstone_versions: list[int] = []
    tombstones_added_at: list[int | None] = []
    dropped: bool = False
    adopted_from: int | None = None
    version_timestamps: list[tuple[int, int]] = []
    files: Raw = NOT_TOLD


_DOCUMENT = msgspec.json.Decoder(_Document)
_REMOVES = msgspec.json.Decoder(list[_Remove])


def encode_state_manifest(manifest: StateManifest) -> bytes:
    """The bytes of `_manifest.json`; ValueError when something is missing that makes a state ours."""
    facts = manifest.facts
    if any(info.sha256 is None for info in manifest.manifests):
        raise ValueError("a state knows the SHA-256 of each of its manifests: set ManifestInfo.sha256")
    versions = [stone.version for stone in manifest.tombstones if stone.version is not None]
    if len(versions) != len(manifest.tombstones):
        raise ValueError("a tombstone of ours says from which version on it hides: set Tombstone.version")
    side = side_facts(facts)
    document = _Document(
        sha256=NO_SHA256,
        format_version=manifest.format_version,
        state_version=facts.version,
        created_at=manifest.created_at,
        num_files=manifest.num_files,
        total_bytes=manifest.total_bytes,
        protocol_version=manifest.protocol_version,
        manifests=manifest.manifests,
        tombstones=[stone.path for stone in manifest.tombstones],
        schema_registry=manifest.schema_registry,
        protocol=msgspec.json.decode(body(facts.protocol)),
        metadata=None if facts.metadata is None else encode_action(facts.metadata).decode(),
        meta_data=None if facts.metadata is None else msgspec.json.decode(body(facts.metadata)),
        txns=[body(txn) for txn, _ in facts.txns],
        removes=_removes_to_json(facts.removes),
        tombstone_versions=versions,
        tombstones_added_at=_added_at(manifest.tombstones),
        files=NOT_TOLD if manifest.few is None else tell(manifest.few, _partition_columns(facts)),
        **{name: getattr(side, name) for name in SideFacts.__struct_fields__},
    )
    return seal_document(msgspec.json.encode(document))


def _partition_columns(facts: StateFacts) -> tuple[str, ...]:
    return facts.metadata.partition_columns if facts.metadata is not None else ()


def _added_at(tombstones: Iterable[Tombstone]) -> list[int | None]:
    """The member that says where dead entries are; left out where nothing is known."""
    found = [stone.added_at for stone in tombstones]
    return found if any(added is not None for added in found) else []


def decode_state_manifest(key: str, version: int, data: bytes) -> StateManifest:
    """A state of `version` from its `_manifest.json`; CorruptObject names the object."""
    text = inflate(key, data)
    with names_object(key, "it"):
        document = _DOCUMENT.decode(text)
        if document.state_version != version:
            raise CorruptObject(key, f"it describes version {document.state_version} in the place of {version}")
        if document.sha256 is None:
            if document.version_sha256 is not None or document.protocol is not None:
                raise CorruptObject(key, "its checksum is missing")
            return _from_others(document)
        check_document(key, text, document.sha256)
        return _from_ours(key, document)


def _from_ours(key: str, document: _Document) -> StateManifest:
    side = SideFacts(**{name: getattr(document, name) for name in SideFacts.__struct_fields__})
    facts = with_side_facts(
        side,
        document.state_version,
        cast(Protocol, from_object(Protocol, document.protocol)),
        None if document.meta_data is None else cast(MetaData, from_object(MetaData, document.meta_data)),
        [from_body(Txn, txn) for txn in document.txns],
        LaterRemoves(lambda: _removes_from_json(key, document.removes)) if document.removes != _NO_REMOVES else (),
    )
    # Documents of before this member was written do not have it.
    added = document.tombstones_added_at or [None] * len(document.tombstones)
    stones = zip(document.tombstones, document.tombstone_versions, added, strict=True)
    few = told(document.files) if document.files != NOT_TOLD else None
    return _manifest(document, facts, tuple(Tombstone(*stone) for stone in stones), few, ours=True)


def _from_others(document: _Document) -> StateManifest:
    facts = foreign_facts(document.state_version, document.created_at, document.protocol_version, document.metadata)
    return _manifest(document, facts, tuple(Tombstone(path, None) for path in document.tombstones), None, ours=False)


def _manifest(
    document: _Document,
    facts: StateFacts,
    tombstones: tuple[Tombstone, ...],
    few: Sequence[StateFile] | None,
    *,
    ours: bool,
) -> StateManifest:
    return StateManifest(
        facts=facts,
        created_at=document.created_at,
        num_files=document.num_files,
        total_bytes=document.total_bytes,
        manifests=document.manifests,
        tombstones=tombstones,
        schema_registry=doc_mapping_registry.bare(document.schema_registry),
        protocol_version=document.protocol_version,
        format_version=document.format_version,
        ours=ours,
        few=few,
    )


def foreign_facts(version: int, created_at: int, protocol_version: int, metadata: str | None) -> StateFacts:
    """What another writer's state tells: a protocol version, and often not even metadata (then look further back)."""
    action: MetaData | None = None
    if metadata:
        found = msgspec.json.decode(metadata)
        inner = found.get("metaData", found) if isinstance(found, dict) else found
        action = cast(MetaData, from_object(MetaData, inner))
    protocol = Protocol(min_reader_version=protocol_version, min_writer_version=protocol_version)
    return StateFacts(version=version, timestamp=created_at, protocol=protocol, metadata=action)


def _removes_to_json(removes: Iterable[StateRemove]) -> Raw:
    stored = [_remove_to_json(remove) for remove in removes]
    return Raw(msgspec.json.encode(stored)) if stored else _NO_REMOVES


def _removes_from_json(key: str, stored: Raw) -> list[StateRemove]:
    with names_object(key, "a remove"):
        return [_remove_from_json(remove) for remove in _REMOVES.decode(stored)]


def _remove_to_json(remove: StateRemove) -> _Remove:
    rest: dict[str, Any] = msgspec.json.decode(body(remove.remove))
    own = {"path": remove.path, "deletionTimestamp": remove.deletion_timestamp}
    # Null says that the action has no such member; what is equal is not said twice.
    other = {name: rest.pop(name, None) for name, value in own.items() if rest.get(name) != value}
    for name in own:
        rest.pop(name, None)
    return _Remove(
        path=remove.path,
        version=remove.version,
        deletion_timestamp=remove.deletion_timestamp,
        remove=rest | other,
    )


def _remove_from_json(stored: _Remove) -> StateRemove:
    members = {"path": stored.path, "deletionTimestamp": stored.deletion_timestamp} | stored.remove
    try:
        action = msgspec.convert(members, Remove)
    except msgspec.ValidationError:  # fields that we do not know are carried on
        action = cast(Remove, from_object(Remove, members))
    return StateRemove(stored.path, stored.version, stored.deletion_timestamp, action)
