"""The driver's half of a write through the format: what the tasks need, and the one commit at the end.

There is no Spark session in this process, so only whole files are replaced: everything, the partitions that were
written, or those that a predicate over partition columns names. `Table.write` can do more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tarnlog import Client, Conflict, InvalidRequest, NotFound, TableInfo
from tarnlog.protocol.actions import Add, MetaData, Txn
from tarnlog.protocol.predicates import parse_predicate, to_builtins
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._committing import files_in_flight
from tarnlog_spark._errors import ConstraintError
from tarnlog_spark._fitting import nullable
from tarnlog_spark._landing import Landing, land
from tarnlog_spark._options import Place, option_error
from tarnlog_spark._partition_match import check_columns, check_dynamic, matches, partition_row, partition_types
from tarnlog_spark._planning import Plan
from tarnlog_spark._schema_change import schema_after, spelled
from tarnlog_spark._writing import TARGET_BYTES, WriteTask, target_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Wish(Struct, frozen=True, kw_only=True):
    """What a write asks for, from either direction's options."""

    place: Place
    overwrite: bool = False
    merge_schema: bool = False
    overwrite_schema: bool = False
    replace_where: str | None = None
    dynamic_partitions: bool = False
    partition_by: tuple[str, ...] = ()
    operation: str = "WRITE"
    parameters: dict[str, Any] = {}


class Prepared(Struct, frozen=True, kw_only=True):
    """A write that may begin, at this version. Picklable: tasks take `task` from it, the commit all of it."""

    task: WriteTask
    landing: Landing
    version: int
    meta_data: MetaData


def prepare(client: Client, wish: Wish, given: StructType) -> Prepared:
    """Look at the table, which is made when it is not there, and at whether the rows fit it; writes nothing else."""
    table = wish.place.table
    try:
        info = client.get_table(table)
    except NotFound as error:
        if error.slug != "table-not-found":
            raise
        info = _created(client, wish, given)
    snapshot = client.snapshot(table)
    meta = snapshot.meta_data
    if wish.partition_by and [name.lower() for name in wish.partition_by] != [
        name.lower() for name in meta.partition_columns
    ]:
        raise option_error(f"{table} is partitioned by ({', '.join(meta.partition_columns)}); leave partitionBy out.")
    if wish.dynamic_partitions:
        check_dynamic(meta)
    schema_string = _schema_after(meta, wish, given)
    task = WriteTask(
        storage=wish.place.storage(info.location),
        schema_string=schema_string or meta.schema_string,
        partition_columns=meta.partition_columns,
        target_bytes=target_of(meta.configuration) or TARGET_BYTES,
        cut_at=int(meta.configuration.get("stats.truncation.maxLength", "32")),
    )
    task.schema()  # a type that cannot be written is refused before any task runs
    landing = Landing(
        table=table,
        schema_string=task.schema_string,
        operation=wish.operation,
        parameters={**wish.parameters, **({"predicate": wish.replace_where} if wish.replace_where else {})},
        overwrite=wish.overwrite,
        dynamic_partitions=wish.dynamic_partitions,
        replaces=_predicate(client, wish, task, snapshot.version),
        merge_schema=wish.merge_schema,
        overwrite_schema=wish.overwrite_schema,
    )
    return Prepared(task=task, landing=landing, version=snapshot.version, meta_data=meta)


def finish(client: Client, prepared: Prepared, files: Sequence[Add], txn: Txn | None = None) -> None:
    """One commit with exactly these files; nothing when there is nothing to say.

    A txn that the table has already had means that the rows are there: the files go, and all is well. Conflicts that no
    rebase solves are raised, with rule and winners in their text, because Spark keeps nothing but text.
    """
    with files_in_flight(prepared.task.storage) as written:
        written.extend(files)
        _check_replaced(prepared, files)
        begun = Plan(version=prepared.version, meta_data=prepared.meta_data)
        recorded = None if txn is None else (txn.app_id, txn.version)
        land(client, prepared.task.storage, prepared.landing, begun, files, recorded)


def _created(client: Client, wish: Wish, given: StructType) -> TableInfo:
    schema = nullable(given)
    columns = spelled(wish.partition_by, schema.names)
    try:
        return client.create_table(wish.place.table, schema.jsonValue(), partition_by=columns)
    except Conflict as error:
        if error.slug != "table-exists":
            raise
        return client.get_table(wish.place.table)


def _schema_after(meta: MetaData, wish: Wish, given: StructType) -> str | None:
    """The schema that the commit sets; None when it stays. SchemaMismatch names columns that do not fit."""
    if meta.format.provider.lower() != "parquet":
        raise InvalidRequest(
            f"The data files of {wish.place.table} are {meta.format.provider!r}, and this connector writes only "
            "Parquet.",
            slug="format-not-supported",
        )
    return schema_after(
        meta,
        given,
        table=wish.place.table,
        merge=wish.merge_schema,
        overwrite=wish.overwrite_schema,
        advice="Cast or drop the columns, or let the table take them with the option mergeSchema.",
    )


def _predicate(client: Client, wish: Wish, task: WriteTask, version: int) -> dict[str, Any] | None:
    """replaceWhere as the service understands it; refused when whole files cannot answer it."""
    if wish.replace_where is None:
        return None
    # The format knows no session, so that times without a zone are UTC; here they are told with it.
    found = client.plan(wish.place.table, wish.replace_where, time_zone="UTC", version=version).filter
    if found is None:
        raise option_error(f"replaceWhere {wish.replace_where!r} could not be understood.")
    schema = parse_schema_string(task.schema_string)
    check_columns(found, partition_types(task.schema(), task.partition_columns), schema)
    return to_builtins(found)


def _check_replaced(prepared: Prepared, files: Sequence[Add]) -> None:
    """ConstraintError for rows that replaceWhere would not replace the next time."""
    if prepared.landing.replaces is None:
        return
    wanted = parse_predicate(prepared.landing.replaces)
    types = partition_types(prepared.task.schema(), prepared.task.partition_columns)
    outside = [file for file in files if matches(wanted, partition_row(file, types), types) is not True]
    if outside:
        shown, told = outside[0].partition_values, prepared.landing.parameters["predicate"]
        raise ConstraintError(
            f"Rows of partition {shown} do not match replaceWhere {told!r}: nothing was committed.",
            slug="commit-invalid",
        )
