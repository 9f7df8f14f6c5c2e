"""What the index keeps of a table: rows as values. How they are made and checked is `codec.index_rows`."""

from __future__ import annotations

from msgspec import Struct


class IndexWrong(Exception):
    """What is stored differs from what was put, or from itself: forget the table, and put it again."""


class VersionRow(Struct, frozen=True):
    """One version. `commits` is JSON for people and programs; `checksum` covers all of it, and its table."""

    version: int
    timestamp: int
    commits: str
    checksum: int


class Change(Struct, frozen=True):
    """What one version adds to the index."""

    row: VersionRow
    commit_ids: tuple[tuple[str, int], ...] = ()
    """Each with its seq."""


class TableFacts(Struct, frozen=True):
    """What is told about a table as a whole, as of its version `version`. A newer one replaces an older one."""

    location: str
    name: str
    table_id: str
    version: int
    timestamp: int
    num_files: int
    total_bytes: int
    num_records: int | None
    dropped: bool = False


class IndexedTable(Struct, frozen=True):
    """A table in the index: its rows are exactly the versions first..last. `content` is the sum of their checksums."""

    facts: TableFacts
    first: int
    last: int
    content: int
