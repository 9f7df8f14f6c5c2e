"""Which files a read takes: the one place that asks the service for them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tarnlog import Client
from tarnlog.protocol.actions import Add, MetaData


class Plan(Struct, frozen=True, kw_only=True):
    """The files of one version that may hold matching rows, and the table as it was then.

    `by_filter` says that the service understood the filter: it may be named in the reads of a commit.
    """

    version: int
    meta_data: MetaData
    files: tuple[Add, ...]
    by_filter: bool = False


def plan_files(
    client: Client,
    table: str,
    *,
    filter: Any = None,  # noqa: A002 (the API's word)
    version: int | None = None,
    timestamp: int | str | None = None,
) -> Plan:
    """The files at a version or time, by default the newest. A filter leaves out only what cannot match."""
    snapshot = client.snapshot(table, version=version, timestamp=timestamp)
    files = tuple(client.files(table, version=snapshot.version))
    return Plan(version=snapshot.version, meta_data=snapshot.meta_data, files=files)
