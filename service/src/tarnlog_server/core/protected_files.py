"""Objects in a table's folder that vacuum, purge and erase never delete, whatever the log records about them.

Two rules. An object that storage modified before the table was created belongs to someone else: a table may be created
over existing files. An object in or beside another table's metadata belongs to that table: a folder that contains
`_delta_log`, an Iceberg `metadata`, `.hoodie`, another `_transaction_log` or a `_catalog` is that table's, with all
folders below it. The rules hold for files that a version once added too: a writer could add a foreign file and remove
it again.
"""

from __future__ import annotations

import enum
import re

import msgspec

from tarnlog.protocol.paths import path_key

OWN_LOG = "_transaction_log"
MARKERS = (OWN_LOG, "_delta_log", "metadata", ".hoodie", "_catalog")
"""Folders in which tables keep their metadata: Tarnlog, Delta Lake, Iceberg, Hudi, and the catalog of a warehouse."""
SURROUNDING = (OWN_LOG, "_delta_log", "metadata", ".hoodie")
"""The same above a table's folder, where `_catalog` is this warehouse's own."""
_STAGED = re.compile(r"write-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/")
_ICEBERG = re.compile(r"(?:.*\.metadata\.json(?:\.gz)?|version-hint\.text|snap-.*\.avro)\Z")


class Why(enum.Enum):
    """Reasons to keep an object."""

    NOT_DATA = "not-data"
    REFERENCED = "referenced"
    YOUNG = "young"
    SESSION = "session"
    REWRITTEN = "written-again"
    """A version removed a file of this name, and the object was written after that: a commit may be on its way."""
    OTHER_TABLE = "other-table"
    """It is in or beside the metadata of another table."""
    OLDER = "older-than-table"
    """It was there before the table was created."""


class DataObject(msgspec.Struct, frozen=True):
    """An object in the table's folder; `path` is its name below that folder, exactly as stored."""

    path: str
    size: int
    modified_ms: int


def created_at(created_time_ms: int | None, first_version_ms: int | None) -> int:
    """The time before which an object is older than the table; 0 where nothing is known of the table's creation.

    `first_version_ms` is the store's time of version 0, by the clock that stamps the other objects too; None once that
    version was cleaned up. Then the metadata's `created_time_ms` counts, by the clock of the replica that created it,
    from its second on: a store may count whole seconds.
    """
    if first_version_ms is not None:
        return first_version_ms
    return 0 if created_time_ms is None else created_time_ms - created_time_ms % 1000


def why_protected(one: DataObject, created_ms: int) -> Why | None:
    """Why an object is not the table's to delete, as far as its name and time show; None when it may be."""
    key = path_key(one.path)
    if not is_data(one.path) or not is_data(key):
        return Why.NOT_DATA
    if any(folder in MARKERS for spelling in (one.path, key) for folder in spelling.split("/")[:-1]):
        return Why.OTHER_TABLE
    return Why.OLDER if one.modified_ms < created_ms else None


def folders_above(path: str) -> list[str]:
    """The folders that contain an object, from the table's own (`""`) down."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def markers_in(folder: str) -> tuple[str, ...]:
    """The names below a folder of the table that make it another table's; the table's own log is none of them."""
    return MARKERS[1:] if folder == "" else MARKERS


def is_table_metadata(marker: str, name: str) -> bool:
    """Whether an object in a folder of that name shows that the folder is a table's metadata, seen from far below.

    `metadata` is an ordinary word, so above a table's location only Iceberg's own file names count there.
    """
    return marker != "metadata" or _ICEBERG.match(name) is not None


def is_data(path: str) -> bool:
    """Whether a name can be a data file's: no part of it starts with `_` or `.`, and it does not end as a folder."""
    parts = path.split("/")
    if _STAGED.match(path):
        parts = [part for part in parts if part != "_temporary"]
    return parts[-1] != "" and not any(part.startswith(("_", ".")) for part in parts)
