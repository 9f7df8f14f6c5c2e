"""When a table gets a new state, and which kind: decided from counters, before anything is read.

A state is due by versions (`checkpoint.interval`), by the bytes of the versions since the last one, by their age, or
because compaction is asked for. `checkpoint.enabled=false` leaves only what somebody asks for by hand. It is a
compaction when tombstones or manifests have piled up, after a large removal, after OPTIMIZE and MERGE, when forced,
and whenever there is no state of ours in the same format to build on.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

import msgspec

from tarnlog.protocol.actions import Protocol
from tarnlog_server.core.compaction_plan import manifest_limit
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.core.table_settings import setting

MERGING_OPERATIONS = frozenset({"OPTIMIZE", "MERGE"})
MAX_BYTES_SINCE = 32 * 2**20
"""Bytes of version files after which a state is due, however few versions they are: what an open may have to read."""
MAX_AGE_MS = HOUR
"""How long a version may wait for a state. A quiet table then opens without replaying, and its log can be cleaned."""
AVRO_PROTOCOL = 4


class StateSettings(msgspec.Struct, frozen=True):
    """The properties of a table that decide here."""

    enabled: bool = True
    interval: int = 10
    format: str = "avro"
    actions_per_part: int = 100_000
    entries_per_manifest: int = 50_000
    tombstone_threshold: float = 0.10
    max_manifests: int = 20
    large_remove_threshold: int = 2**31 - 1
    after_merge: bool = True


def state_settings(configuration: Mapping[str, str], service: Mapping[str, str] | None = None) -> StateSettings:
    """What is in force for a table."""

    def value(name: str) -> object:
        return setting(configuration, name, service)

    return msgspec.convert(
        {
            "enabled": value("checkpoint.enabled"),
            "interval": value("checkpoint.interval"),
            "format": value("state.format"),
            "actions_per_part": value("checkpoint.actionsPerPart"),
            "entries_per_manifest": value("state.entriesPerManifest"),
            "tombstone_threshold": value("state.compaction.tombstoneThreshold"),
            "max_manifests": value("state.compaction.maxManifests"),
            "large_remove_threshold": value("state.compaction.largeRemoveThreshold"),
            "after_merge": value("state.compaction.afterMerge"),
        },
        StateSettings,
    )


class Since(msgspec.Struct, frozen=True):
    """What happened after the newest state: `age_ms` is that of the oldest version since, `removes` counts actions."""

    versions: int
    bytes: int = 0
    age_ms: int = 0
    removes: int = 0
    operations: Collection[str] = ()


class Reason(enum.Enum):
    """Why a state is written, or why it is a compaction; the value is for logs and metrics."""

    INTERVAL = "interval"
    SIZE = "size"
    AGE = "age"
    LARGE_REMOVE = "large-remove"
    MERGE = "merge"
    FORCED = "forced"
    TOMBSTONES = "tombstones"
    MANIFESTS = "manifests"
    NO_BASE = "no-base"
    REPAIR = "repair"


def due(since: Since, settings: StateSettings, *, forced: bool = False) -> Reason | None:
    """Why a state should be written now; None when it should not. Without a version since, only by force."""
    if forced:
        return Reason.FORCED
    if not settings.enabled or since.versions <= 0:
        return None
    asked = _asked_by_changes(since, settings)
    if asked is not None:
        return asked
    if since.versions >= settings.interval:
        return Reason.INTERVAL
    if since.bytes >= MAX_BYTES_SINCE:
        return Reason.SIZE
    return Reason.AGE if since.age_ms >= MAX_AGE_MS else None


class AvroBase(msgspec.Struct, frozen=True):
    """A valid Avro state of ours, with the numbers that the next state would have if it were incremental."""

    num_files: int
    num_tombstones: int
    num_manifests: int


def compaction(base: AvroBase | None, since: Since, settings: StateSettings, *, forced: bool = False) -> Reason | None:
    """Why the next Avro state must be a compaction; None when it can be incremental."""
    if base is None:
        return Reason.NO_BASE
    if forced:
        return Reason.FORCED
    return _asked_by_changes(since, settings) or needs_compaction(base, settings)


def needs_compaction(base: AvroBase, settings: StateSettings) -> Reason | None:
    """Why a state as it stands should be compacted: what describing it answers too."""
    if base.num_tombstones > settings.tombstone_threshold * base.num_files:
        return Reason.TOMBSTONES
    limit = manifest_limit(settings.max_manifests, base.num_files, settings.entries_per_manifest)
    return Reason.MANIFESTS if base.num_manifests > limit else None


def _asked_by_changes(since: Since, settings: StateSettings) -> Reason | None:
    if since.removes > settings.large_remove_threshold:
        return Reason.LARGE_REMOVE
    merged = settings.after_merge and any(name.upper() in MERGING_OPERATIONS for name in since.operations)
    return Reason.MERGE if merged else None


class Layout(msgspec.Struct, frozen=True):
    """The format as `_last_checkpoint` names it, and how many parts; a Parquet writer finds its own parts by size."""

    format: str
    parts: int = 1


def layout(num_actions: int, settings: StateSettings) -> Layout:
    """How so many actions (protocol, metaData, txns, adds, removes) are laid out."""
    if settings.format == "avro":
        return Layout("avro-state")
    if settings.format == "parquet":
        return Layout("parquet")
    parts = -(-num_actions // settings.actions_per_part)
    return Layout("json-multipart", parts) if parts > 1 else Layout("json")


def raised_protocol(protocol: Protocol, state_format: str) -> Protocol | None:
    """The protocol that a commit must set before the first state of this format; None when it is enough as it is.

    A table that lists features gets the one it now uses; a table without lists stays without.
    """
    enough = min(protocol.min_reader_version, protocol.min_writer_version) >= AVRO_PROTOCOL
    if state_format != "avro" or enough:
        return None
    return msgspec.structs.replace(
        protocol,
        min_reader_version=max(protocol.min_reader_version, AVRO_PROTOCOL),
        min_writer_version=max(protocol.min_writer_version, AVRO_PROTOCOL),
        reader_features=_with_avro(protocol.reader_features),
        writer_features=_with_avro(protocol.writer_features),
    )


def _with_avro(features: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if features is None or "avroState" in features:
        return features
    return (*features, "avroState")
