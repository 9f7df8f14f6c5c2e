"""Which files a read takes: the one place that asks the service for them.

A plan comes as one Arrow table, and for a scan it stays one: a hundred thousand files as objects would take longer to
make than to plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from tarnlog import Client, InvalidRequest, Reads
from tarnlog.arrow_files import adds_of
from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.predicates import to_builtins
from tarnlog_spark._kept_plans import KeptPlans, key_of


class Plan:
    """The files of one version that may hold matching rows, and the table as it was then.

    `reads` is what a commit that rests on this plan must declare.
    """

    def __init__(
        self,
        *,
        version: int,
        meta_data: MetaData,
        listing: pa.Table | None = None,
        files: tuple[Add, ...] = (),
        reads: Reads | None = None,
    ) -> None:
        self.version = version
        self.meta_data = meta_data
        self.listing = listing
        self.reads = reads or Reads(whole_table=True)
        self.scanned: tuple[str, Any] | None = None
        """How its files were scanned, and what `_scanning.scan_again` takes for that; only of a plan that is kept."""
        self._given = files

    @property
    def num_files(self) -> int:
        return len(self._given) if self.listing is None else self.listing.num_rows

    @cached_property
    def files(self) -> tuple[Add, ...]:
        """The files as actions; made when they are first asked for."""
        if self.listing is None:
            return self._given
        return tuple(add for batch in self.listing.to_batches() for add in adds_of(batch))


def plan_files(
    client: Client,
    table: str,
    *,
    filter: Any = None,  # noqa: A002 (the API's word)
    version: int | None = None,
    timestamp: int | str | None = None,
    kept: KeptPlans | None = None,
    fields: Sequence[str] | None = None,
) -> Plan:
    """The files at a version or time, by default the newest. A filter leaves out only what cannot match.

    A filter that the service does not understand (a function, say) leaves nothing out: Spark applies it to the rows.
    With `kept`, a plan of many files that was made before costs one small request. With `fields`, its listing has no
    others: enough to scan the files, not to make actions of them.
    """
    snapshot = client.snapshot(table, version=version, timestamp=timestamp)
    known = kept.find(key_of(snapshot, filter)) if kept is not None else None
    if known is not None:
        return known
    try:
        plan = client.plan_arrow(table, filter, version=snapshot.version, fields=fields)
    except InvalidRequest as error:
        if filter is None or error.slug != "filter-invalid":
            raise
        plan = client.plan_arrow(table, version=snapshot.version, fields=fields)
    reads = Reads(whole_table=True) if plan.filter is None else Reads(filters=(to_builtins(plan.filter),))
    found = Plan(version=snapshot.version, meta_data=snapshot.meta_data, listing=plan.files, reads=reads)
    if kept is not None:
        kept.keep(key_of(snapshot, filter), found)
    return found
