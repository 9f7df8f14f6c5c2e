"""The one commit of a write, for the Table API and for the format alike.

The rows are written once. What the commit removes is planned right before it is sent, and planned anew when it lost to
another commit, so that a write never writes its rows twice and hears only of conflicts that no rebase can solve. No
Spark session is needed: only whole files are replaced here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tarnlog import Conflict, InvalidRequest, NotFound, Reads
from tarnlog.protocol.actions import Action, Add, MetaData, Txn
from tarnlog.protocol.predicates import parse_predicate
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._arrow_types import arrow_schema
from tarnlog_spark._committing import commit_job, discard, new_job, rebased, removal
from tarnlog_spark._errors import ConflictError, SchemaMismatch
from tarnlog_spark._partition_match import matches, partition_key, partition_row, partition_types
from tarnlog_spark._partitions import partition_of, reads_of
from tarnlog_spark._planning import Plan, PlanFilter, plan_files
from tarnlog_spark._schema_change import schema_after
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from tarnlog import Client

Recorded = tuple[str, int]
"""The application and the version of a txn."""

_STREAMING = "STREAMING UPDATE"
"""What a stream's batches are called. One without rows is not recorded: if it comes again, it has none again."""

_CHANGED = "The table's columns changed while the rows were written: write them again."


class Landing(Struct, frozen=True, kw_only=True):
    """What a write wants of the table once its files are there. Picklable.

    `schema_string` is the schema that the files have; `replaces` a predicate over partition columns, whose files go.
    `first` lands as the table's first commit after its creation, or not at all.
    """

    table: str
    schema_string: str
    operation: str = "WRITE"
    parameters: dict[str, Any] = {}
    overwrite: bool = False
    dynamic_partitions: bool = False
    replaces: dict[str, Any] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    first: bool = False


class Landed(Struct, frozen=True, kw_only=True):
    """What became of it. Without a `commit_id` there was nothing to say, or the txn was `recorded` already."""

    version: int
    commit_id: str | None = None
    num_removed_files: int = 0
    recorded: bool = False


def land(
    client: Client, storage: Storage, landing: Landing, begun: Plan, files: Sequence[Add], txn: Recorded | None = None
) -> Landed:
    """Commit the files of a write that began at a version, whatever others commit meanwhile.

    ConflictError after many commits in between; SchemaMismatch when the table's columns changed so that the files do
    not fit any more. A txn that the table has had already means that the rows are there: the files are deleted. They
    are too when somebody else was first, where this write had to be.
    """

    def attempt() -> Landed:
        plan = _now(client, landing)
        if plan.meta_data.id != begun.meta_data.id:  # the files lie where the old one was
            raise Conflict(
                f"{landing.table} was dropped and created again while the rows were written: nothing was committed. "
                "Write them again.",
                slug="table-replaced",
                status=409,
            )
        if landing.first and plan.version > 0:
            discard(storage, files)  # nothing was sent, or it lost: no commit will name them
            raise table_exists(landing.table)
        return _send(client, landing, plan, files, txn)

    try:
        return rebased(attempt)
    except ConflictError as error:
        if not is_recorded(error, txn):
            raise
        discard(storage, files)
        return Landed(version=begun.version, recorded=True)


def table_exists(table: str) -> Conflict:
    """What a write hears that wants to be the first, and is not."""
    return Conflict(f"{table} exists already: use mode append or overwrite.", slug="table-exists", status=409)


def is_recorded(error: ConflictError, txn: Recorded | None) -> bool:
    """Whether a conflict says that the table has had this txn: then the write is done."""
    last = error.last_txn_version
    return txn is not None and error.rule == "txn" and last is not None and last >= txn[1]


def is_done(client: Client, table: str, txn: Recorded) -> bool:
    """Whether the table has had this txn, or a later one of the same application."""
    try:
        found = client.txn(table, txn[0])
    except NotFound:
        return False
    return found is not None and found.version >= txn[1]


def _now(client: Client, landing: Landing) -> Plan:
    """The newest version; of its files those that an overwrite may replace.

    Appends look too: the service takes them whatever they were written for, and the table may have other columns now.
    """
    if landing.overwrite:
        wanted = None if landing.replaces is None else PlanFilter(parse_predicate(landing.replaces))
        return plan_files(client, landing.table, filter_of=lambda _: wanted)
    found = client.snapshot(landing.table)
    return Plan(version=found.version, meta_data=found.meta_data)


def _send(client: Client, landing: Landing, plan: Plan, files: Sequence[Add], txn: Recorded | None) -> Landed:
    changed = _meta_data_after(plan.meta_data, landing)
    gone, reads = _replaced(plan, files, landing)
    actions: list[Action] = [*([changed] if changed else []), *map(removal, gone), *files]
    if not actions and (txn is None or landing.operation == _STREAMING):
        return Landed(version=plan.version)
    if txn is not None:
        actions.append(Txn(app_id=txn[0], version=txn[1]))
    job = new_job(
        landing.table,
        landing.operation,
        read_version=plan.version,
        reads=reads,
        isolation="serializable" if landing.first else None,
        parameters=landing.parameters,
    )
    try:
        committed = commit_job(client, job, actions)
    except InvalidRequest as error:
        # A schema of one's own needs a commit that removes every file: an append in between is one more to remove.
        newer = landing.overwrite_schema and client.snapshot(landing.table).version > plan.version
        if error.slug != "schema-change-not-allowed" or not newer:
            raise
        return _send(client, landing, _now(client, landing), files, txn)
    return Landed(version=committed.version, commit_id=committed.commit_id, num_removed_files=len(gone))


def _replaced(plan: Plan, files: Sequence[Add], landing: Landing) -> tuple[list[Add], Reads | None]:
    """The files that this write takes out of the table, and what that decision rests on."""
    if not landing.overwrite:
        return [], Reads(whole_table=True) if landing.first else None
    columns = plan.meta_data.partition_columns
    if landing.replaces is not None:
        wanted, types = parse_predicate(landing.replaces), _types(plan.meta_data)
        gone = [file for file in plan.files if matches(wanted, partition_row(file, types), types) is True]
        return gone, Reads(filters=(landing.replaces,))
    if not landing.dynamic_partitions or not columns:
        return list(plan.files), Reads(whole_table=True)
    types = _types(plan.meta_data)
    keys = {partition_key(file, types) for file in files}
    gone = [file for file in plan.files if partition_key(file, types) in keys]
    partitions = {partition_of(file.partition_values) for file in files}
    return gone, reads_of(partitions, parse_schema_string(plan.meta_data.schema_string)) if files else None


def _types(meta: MetaData) -> Mapping[str, pa.DataType]:
    return partition_types(arrow_schema(parse_schema_string(meta.schema_string)), meta.partition_columns)


def _meta_data_after(meta: MetaData, landing: Landing) -> MetaData | None:
    """The metaData that the commit sets; None when it stays. SchemaMismatch when the files do not fit the table now."""
    from pyspark.sql.types import StructType

    if meta.schema_string == landing.schema_string:
        return None
    written = StructType.fromJson(json.loads(landing.schema_string))
    text = schema_after(
        meta,
        written,
        table=landing.table,
        merge=landing.merge_schema,
        overwrite=landing.overwrite_schema,
        advice=_CHANGED,
    )
    if not landing.overwrite_schema:
        _check_nulls(StructType.fromJson(json.loads(meta.schema_string)), written, landing.table)
    return None if text is None else msgspec.structs.replace(meta, schema_string=text)


def _check_nulls(now: Any, written: Any, table: str) -> None:
    """Nulls were looked for as the table was when the rows were written: it may allow fewer now."""
    free = {field.name.lower() for field in written.fields if field.nullable}
    faults = [field.name for field in now.fields if not field.nullable and field.name.lower() in free]
    if faults:
        told = dict.fromkeys(faults, "the table allows no null there any more")
        raise SchemaMismatch(told, table=table, advice=_CHANGED)
