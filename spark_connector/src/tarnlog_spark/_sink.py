"""The driver's half of a write through the format: what the tasks need, and the one commit at the end.

There is no Spark session in this process, so only whole files are replaced: everything, the partitions that were
written, or those that a predicate over partition columns names. `Table.write` can do more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tarnlog import Client, Conflict, InvalidRequest, NotFound, Reads, TableInfo
from tarnlog.protocol.actions import Action, Add, MetaData, Txn
from tarnlog.protocol.predicates import parse_predicate, to_builtins
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_spark._arrow_types import arrow_schema
from tarnlog_spark._committing import Job, commit_job, discard, files_in_flight, new_job, removal
from tarnlog_spark._errors import ConflictError, ConstraintError, SchemaMismatch
from tarnlog_spark._fitting import evolved, nullable
from tarnlog_spark._options import Place, option_error
from tarnlog_spark._partition_match import check_columns, matches, partition_row, partition_types
from tarnlog_spark._partitions import partition_of, reads_of
from tarnlog_spark._writing import TARGET_BYTES, WriteTask

if TYPE_CHECKING:
    import pyarrow as pa
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
    """A write that may begin. Picklable: tasks take `task` from it, the commit all of it.

    `meta_data` is set when the commit changes it; `replaces` is the predicate whose rows go.
    """

    wish: Wish
    task: WriteTask
    job: Job
    meta_data: MetaData | None = None
    replaces: dict[str, Any] | None = None


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
    schema_string = _schema_after(meta, wish, given)
    changed = None if schema_string is None else msgspec.structs.replace(meta, schema_string=schema_string)
    task = WriteTask(
        storage=wish.place.storage(info.location),
        schema_string=schema_string or meta.schema_string,
        partition_columns=meta.partition_columns,
        target_bytes=TARGET_BYTES,
        cut_at=int(meta.configuration.get("stats.truncation.maxLength", "32")),
    )
    task.schema()  # a type that cannot be written is refused before any task runs
    replaces = _predicate(client, wish, task, snapshot.version)
    parameters = {**wish.parameters, **({"predicate": wish.replace_where} if wish.replace_where else {})}
    job = new_job(table, wish.operation, read_version=snapshot.version, parameters=parameters)
    return Prepared(wish=wish, task=task, job=job, meta_data=changed, replaces=replaces)


def finish(client: Client, prepared: Prepared, files: Sequence[Add], txn: Txn | None = None) -> None:
    """One commit with exactly these files; nothing when there is nothing to say.

    A txn that the table has already had means that the rows are there: the files go, and all is well. Other conflicts
    are raised, with rule and winners in their text, because Spark keeps nothing but text.
    """
    with files_in_flight(prepared.task.storage) as written:
        written.extend(files)
        gone, reads = _replaced(client, prepared, files)
        actions: list[Action] = [*([prepared.meta_data] if prepared.meta_data else []), *map(removal, gone), *files]
        if not actions:
            return
        if txn is not None:
            actions.append(txn)
        blind = txn is None and reads is None and prepared.meta_data is None
        job = msgspec.structs.replace(
            prepared.job, reads=reads, read_version=None if blind else prepared.job.read_version
        )
        try:
            commit_job(client, job, actions)
        except ConflictError as error:
            last = error.last_txn_version
            if txn is None or error.rule != "txn" or last is None or last < txn.version:
                raise
            discard(prepared.task.storage, files)


def is_done(client: Client, table: str, txn: tuple[str, int]) -> bool:
    """Whether the table has had this txn, or a later one of the same application."""
    try:
        found = client.txn(table, txn[0])
    except NotFound:
        return False
    return found is not None and found.version >= txn[1]


def _created(client: Client, wish: Wish, given: StructType) -> TableInfo:
    schema = nullable(given)
    try:
        return client.create_table(wish.place.table, schema.jsonValue(), partition_by=wish.partition_by)
    except Conflict as error:
        if error.slug != "table-exists":
            raise
        return client.get_table(wish.place.table)


def _schema_after(meta: MetaData, wish: Wish, given: StructType) -> str | None:
    """The schema that the commit sets; None when it stays. SchemaMismatch names columns that do not fit."""
    from pyspark.sql.types import StructType

    if meta.format.provider.lower() != "parquet":
        raise InvalidRequest(
            f"The data files of {wish.place.table} are {meta.format.provider!r}, and this connector writes only "
            "Parquet.",
            slug="format-not-supported",
        )
    old = StructType.fromJson(json.loads(meta.schema_string))
    if wish.overwrite_schema:
        new = nullable(given)
        missing = [name for name in meta.partition_columns if name.lower() not in map(str.lower, new.names)]
        if missing:
            raise SchemaMismatch(dict.fromkeys(missing, "the table is partitioned by it"), table=wish.place.table)
        return None if new == old else new.json()
    new = evolved(old, given, table=wish.place.table)
    names = {name.lower() for name in given.names}
    absent = [field.name for field in old.fields if not field.nullable and field.name.lower() not in names]
    if absent:
        raise SchemaMismatch(
            dict.fromkeys(absent, "it is missing, and the table allows no null there"), table=wish.place.table
        )
    if new == old:
        return None
    if not wish.merge_schema:
        known = {field.name: field.dataType for field in old.fields}
        faults = {
            field.name: "the table has no such column"
            if field.name not in known
            else f"the DataFrame has {field.dataType.simpleString()}, the table {known[field.name].simpleString()}"
            for field in new.fields
            if known.get(field.name) != field.dataType
        }
        advice = "Cast or drop the columns, or let the table take them with the option mergeSchema."
        raise SchemaMismatch(faults, table=wish.place.table, advice=advice)
    return new.json()


def _predicate(client: Client, wish: Wish, task: WriteTask, version: int) -> dict[str, Any] | None:
    """replaceWhere as the service understands it; refused when whole files cannot answer it."""
    if wish.replace_where is None:
        return None
    found = client.plan(wish.place.table, wish.replace_where, version=version).filter
    if found is None:
        raise option_error(f"replaceWhere {wish.replace_where!r} could not be understood.")
    check_columns(found, partition_types(task.schema(), task.partition_columns))
    return to_builtins(found)


def _replaced(client: Client, prepared: Prepared, files: Sequence[Add]) -> tuple[list[Add], Reads | None]:
    """The files that this write takes out of the table, and what that decision rests on."""
    wish, job = prepared.wish, prepared.job
    if not wish.overwrite:
        return [], None
    columns = prepared.task.partition_columns
    types = partition_types(arrow_schema(parse_schema_string(prepared.task.schema_string)), columns)
    if prepared.replaces is not None:
        wanted = parse_predicate(prepared.replaces)
        outside = [file for file in files if matches(wanted, partition_row(file, types), types) is not True]
        if outside:
            shown = outside[0].partition_values
            raise ConstraintError(
                f"Rows of partition {shown} do not match replaceWhere {wish.replace_where!r}: nothing was committed.",
                slug="commit-invalid",
            )
        planned = client.plan(job.table, wanted, version=job.read_version).files
        gone = [file for file in planned if matches(wanted, partition_row(file, types), types) is True]
        return gone, Reads(filters=(prepared.replaces,))
    live = client.files(job.table, version=job.read_version)
    if not wish.dynamic_partitions or not columns:
        return list(live), Reads(whole_table=True)
    written = {_key(file, types) for file in files}
    gone = [file for file in live if _key(file, types) in written]
    partitions = {partition_of(file.partition_values) for file in files}
    return gone, reads_of(partitions, parse_schema_string(prepared.task.schema_string)) if files else None


def _key(file: Add, types: Mapping[str, pa.DataType]) -> tuple[Any, ...]:
    """Typed: other writers may spell the same value otherwise."""
    return tuple(partition_row(file, types).values())
