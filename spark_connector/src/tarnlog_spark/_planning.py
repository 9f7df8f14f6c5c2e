"""Which files a read takes: the one place that asks the service for them.

A plan comes as one Arrow table, and for a scan it stays one: a hundred thousand files as objects would take longer to
make than to plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tarnlog import ArrowPlan, InvalidRequest, Reads, SnapshotInfo
from tarnlog.arrow_files import adds_of
from tarnlog.protocol.actions import Add, MetaData
from tarnlog.protocol.predicates import Predicate, to_builtins
from tarnlog_spark._kept_plans import KeptPlans, PlanKey, key_of
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    from tarnlog import Client

MOST_PIECES = 64
"""Of columns: each version that an older plan was changed for adds one."""


class PlanFilter(Struct, frozen=True):
    """A filter as the service takes it: a predicate, or SQL text with the zone of its times that name none."""

    filter: Predicate | str
    time_zone: str | None = None


FilterOf: TypeAlias = Callable[[MetaData], PlanFilter | None]
"""The filter over a table as it is at the version of a plan; None for all files."""


class Change(Struct, frozen=True):
    """How a plan came from an older one, for who holds a scan of that."""

    scanned: tuple[str, Any] | None
    """`Plan.scanned` of the older plan."""
    gone: pa.Array
    """The places of its files that are not in the new one, ascending; the others come first there."""
    came: pa.Table
    """The files of the new one that it does not have."""


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
        total_files: int | None = None,
    ) -> None:
        self.version = version
        self.meta_data = meta_data
        self.listing = listing
        self.reads = reads or Reads(whole_table=True)
        self.total_files = total_files
        """How many files the version has, those included that cannot match."""
        self.scanned: tuple[str, Any] | None = None
        """How its files were scanned, and what `_scanning.scan_again` takes for that; only of a plan that is kept."""
        self.change: Change | None = None
        """Where the plan is an older one with some changes, these; only until its files were scanned."""
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
    filter_of: FilterOf,
    version: int | None = None,
    timestamp: int | str | None = None,
) -> Plan:
    """The files at a version or time, by default the newest. A filter leaves out only what cannot match.

    A filter that the service does not understand leaves nothing out: Spark applies it to the rows.
    """
    snapshot = client.snapshot(table, version=version, timestamp=timestamp)
    return _whole(snapshot, _asked(client, table, filter_of(snapshot.meta_data), snapshot.version))


def plan_scan(
    client: Client,
    table: str,
    kept: KeptPlans,
    storage: Storage,
    *,
    filter_of: FilterOf,
    version: int | None,
    timestamp: int | str | None,
    fields: Sequence[str],
) -> Plan:
    """The same to scan the files and not to make actions of them: its listing has no fields but those.

    A plan of many files that was made before costs one small request, and of one that was made for an older version
    only what changed since is asked for.
    """
    snapshot = client.snapshot(table, version=version, timestamp=timestamp)
    wanted = filter_of(snapshot.meta_data)
    key = key_of(storage, snapshot, wanted)
    if (known := kept.find(key)) is not None:
        return known
    found = None
    if (older := kept.newest_before(key)) is not None:
        answer = _asked(client, table, wanted, snapshot.version, fields, since=older[0].version)
        found = _whole(snapshot, answer) if answer.since is None else _changed(snapshot, *older, answer)
    if found is None:
        found = _whole(snapshot, _asked(client, table, wanted, snapshot.version, fields))
    kept.keep(key, found)
    return found


def _asked(
    client: Client,
    table: str,
    wanted: PlanFilter | None,
    version: int,
    fields: Sequence[str] | None = None,
    since: int | None = None,
) -> ArrowPlan:
    if wanted is not None:
        zone = wanted.time_zone
        try:
            return client.plan_arrow(table, wanted.filter, time_zone=zone, version=version, fields=fields, since=since)
        except InvalidRequest as error:
            if error.slug != "filter-invalid":
                raise
    return client.plan_arrow(table, version=version, fields=fields, since=since)


def _whole(snapshot: SnapshotInfo, answer: ArrowPlan) -> Plan:
    return Plan(
        version=snapshot.version,
        meta_data=snapshot.meta_data,
        listing=answer.files,
        reads=_reads_of(answer),
        total_files=answer.ledger.files_total,
    )


def _changed(snapshot: SnapshotInfo, key: PlanKey, older: Plan, answer: ArrowPlan) -> Plan | None:
    """An older plan with what the service says came and went since; None where that does not add up.

    So it is where the service's log is another than the one that the older plan is of. Costs a look at the paths of the
    older plan, and what came.
    """
    since, files = answer.since, older.listing
    if since is None or files is None or not key.is_of(since):
        return None
    if older.reads != _reads_of(answer) or not _same_columns(older.meta_data, snapshot.meta_data):
        return None
    lost = pc.is_in(files.column("path"), value_set=pa.array(since.gone, pa.string()))
    left = files.filter(pc.invert(lost)) if since.gone else files
    listing = pa.concat_tables([left, answer.files], promote_options="default")
    if listing.num_rows != answer.ledger.files_after_cooldowns:
        return None
    if listing.column("path").num_chunks > MOST_PIECES:
        listing = listing.combine_chunks()
    plan = Plan(
        version=snapshot.version,
        meta_data=snapshot.meta_data,
        listing=listing.replace_schema_metadata(answer.files.schema.metadata),
        reads=older.reads,
    )
    plan.change = Change(older.scanned, pc.indices_nonzero(lost), answer.files)
    return plan


def _same_columns(one: MetaData, other: MetaData) -> bool:
    return (one.schema_string, one.partition_columns) == (other.schema_string, other.partition_columns)


def _reads_of(answer: ArrowPlan) -> Reads:
    return Reads(whole_table=True) if answer.filter is None else Reads(filters=(to_builtins(answer.filter),))
