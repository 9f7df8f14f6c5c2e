"""Which files a read takes: the one place that asks the service for them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tarnlog import Client, InvalidRequest, Reads
from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.predicates import to_builtins


class Plan(Struct, frozen=True, kw_only=True):
    """The files of one version that may hold matching rows, and the table as it was then.

    `reads` is what a commit that rests on this plan must declare.
    """

    version: int
    meta_data: MetaData
    files: tuple[Add, ...]
    reads: Reads = Reads(whole_table=True)


def plan_files(
    client: Client,
    table: str,
    *,
    filter: Any = None,  # noqa: A002 (the API's word)
    version: int | None = None,
    timestamp: int | str | None = None,
) -> Plan:
    """The files at a version or time, by default the newest. A filter leaves out only what cannot match.

    A filter that the service does not understand (a function, say) leaves nothing out: Spark applies it to the rows.
    """
    snapshot = client.snapshot(table, version=version, timestamp=timestamp)
    try:
        plan = client.plan(table, filter, version=snapshot.version)
    except InvalidRequest as error:
        if filter is None or error.slug != "filter-invalid":
            raise
        plan = client.plan(table, version=snapshot.version)
    reads = Reads(whole_table=True) if plan.filter is None else Reads(filters=(to_builtins(plan.filter),))
    return Plan(version=snapshot.version, meta_data=snapshot.meta_data, files=plan.files, reads=reads)
