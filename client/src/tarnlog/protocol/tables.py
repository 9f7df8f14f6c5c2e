"""Requests about tables as clients send them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from tarnlog.protocol.actions import Count

StateFormat: TypeAlias = Literal["avro", "json", "parquet"]
Description = Annotated[str, Meta(max_length=16_384)]


class CreateTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A new table; `schema` is a Spark StructType as a JSON object.

    A `location` must be empty, unless an admin sets `adopt_existing_files`: files that are there stay, and are never
    deleted by vacuum or purge.
    """

    name: str
    schema: dict[str, Any]
    partition_columns: tuple[str, ...] = ()
    location: str | None = None
    properties: dict[str, str] = {}
    description: Description | None = None
    adopt_existing_files: bool = False


class RegisterTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A log that is already there, under a name. It is served read-only unless its other writers have stopped."""

    name: str
    location: str
    foreign_writers_stopped: bool = False


class PropertyChanges(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Properties to set and to remove; a key in neither stays as it is."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()


class AlterTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A change of a table's metadata; what is left out stays. A null description removes it."""

    commit_id: str | None = None
    read_version: Count | None = None
    properties: PropertyChanges | None = None
    schema: dict[str, Any] | None = None
    description: Description | UnsetType | None = UNSET


class RecordSkip(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A live file that an operation could not process; it is left alone for `cooldown_hours`."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)]
    reason: Annotated[str, Meta(max_length=16_384)]
    operation: Annotated[str, Meta(min_length=1, max_length=128)]
    partition_values: dict[str, str | None] | None = None
    size: Count | None = None
    cooldown_hours: Annotated[float, Meta(ge=0, le=24 * 365)] | None = None


MAX_SESSION_SECONDS = 7 * 24 * 3600
TtlSeconds = Annotated[int, Meta(ge=1, le=MAX_SESSION_SECONDS)]


class BeginSession(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A writer begins to work below a prefix; the empty one is the whole table."""

    ttl_seconds: TtlSeconds
    prefix: Annotated[str, Meta(max_length=1024)] = ""


class ExtendSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A writer is still at work."""

    ttl_seconds: TtlSeconds


class AuditTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Check a table whole, or repair it; there is nothing to choose."""


class RebuildIndex(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make the index of a table again; there is nothing to choose."""


class VacuumTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Which data files to delete, or only to find. Less than 24 hours needs the override, which an admin may set."""

    dry_run: bool = True
    retention_hours: Annotated[float, Meta(ge=0, le=24 * 3650)] | None = None
    override_minimum: bool = False


class EraseTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """An erase of what versions up to now removed; a dry run only lists what would go."""

    dry_run: bool = False


class WriteCheckpoint(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A state to be written now; without a format, in the table's own (`state.format`)."""

    format: StateFormat | None = None


class CleanUp(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A cleanup of a table's log; a dry run only tells what would go."""

    dry_run: bool = False


class WriteCompaction(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A state to be written from scratch. There is nothing to choose yet."""
