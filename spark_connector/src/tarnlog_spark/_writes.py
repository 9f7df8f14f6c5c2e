"""Writing a DataFrame: append, overwrite (all, by condition, by partition), with or without a change of schema.

The rows are written once; how they land, whatever others commit meanwhile, is shared with the format (`_landing`). Only
`replace_where` is done here, because files that hold other rows too are written anew by Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest, WriteSession
from tarnlog.protocol.actions import Action, Add, Txn
from tarnlog_spark._committing import commit_job, discard, files_in_flight, new_job, rebased, removal
from tarnlog_spark._conditions import check_deterministic, empty_frame
from tarnlog_spark._errors import ConflictError, ConstraintError
from tarnlog_spark._fitting import evolved, fitted, nullable
from tarnlog_spark._landing import Landing, is_done, is_recorded, land, table_exists
from tarnlog_spark._partition_match import check_dynamic
from tarnlog_spark._staging import Writer, is_native
from tarnlog_spark._target import Pinned, Target, write_files
from tarnlog_spark._writing import WriteTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Mode = Literal["append", "overwrite", "error", "ignore"]


class WriteOptions(Struct, frozen=True, kw_only=True):
    """How a DataFrame is written. At most one of the ways to overwrite less than the table."""

    mode: Mode = "append"
    replace_where: str | None = None
    dynamic_partitions: bool = False
    merge_schema: bool = False
    overwrite_schema: bool = False
    txn: tuple[str, int] | None = None
    writer: Writer = "auto"

    @property
    def first(self) -> bool:
        """Whether the rows are written only into a table that has had no commit since it was created."""
        return self.mode in ("error", "ignore")


class WriteResult(Struct, frozen=True, kw_only=True):
    """What became of a write. `version` is None when there was nothing to do, for the reason that `skipped` tells."""

    version: int | None
    commit_id: str | None = None
    num_files: int = 0
    num_rows: int = 0
    num_removed_files: int = 0
    skipped: str | None = None


def write(target: Target, rows: DataFrame, options: WriteOptions) -> WriteResult:
    """Write to a table that exists. ConflictError, SchemaMismatch and ConstraintError leave it as it was.

    Conflict `table-exists` when the write had to be the table's first, and somebody else's was.
    """
    if options.txn is not None and is_done(target.client, target.table, options.txn):
        return _already_done(options)
    pinned = target.pin(files=False)
    if options.first and pinned.version > 0:
        raise table_exists(target.table)
    if options.dynamic_partitions:
        check_dynamic(pinned.meta_data)
    schema = _schema_after(pinned, rows, options)
    task = pinned.task(schema_string=json.dumps(schema.jsonValue(), separators=(",", ":")))
    new_rows = fitted(rows, schema, table=target.table)
    if options.replace_where is not None:
        frame = empty_frame(target.spark, pinned.meta_data.schema_string)
        check_deterministic(frame, options.replace_where, "replace_where")
        _ = frame.where(options.replace_where).schema  # raises what is wrong with it
        new_rows = _all_matching(new_rows, options.replace_where)
    is_native(new_rows, task, options.writer)  # a writer that cannot be used is refused before a session begins
    with in_session(target) as session, files_in_flight(pinned.storage) as written:
        with _understood_constraint(options):
            written += write_files(new_rows, task, options.writer)
        session.check()
        if options.replace_where is None:
            return _land(pinned, task, written, options)
        try:
            return rebased(lambda: _replace_where(target, written, options))
        except ConflictError as error:
            if not is_recorded(error, options.txn):
                raise
            discard(pinned.storage, written)
            return _already_done(options)


@contextmanager
def in_session(target: Target) -> Iterator[WriteSession]:
    """A write session around everything that writes files: vacuum leaves them alone until they are committed."""
    with target.client.write_session(target.table) as session:
        yield session


def _land(pinned: Pinned, task: WriteTask, written: list[Add], options: WriteOptions) -> WriteResult:
    landing = Landing(
        table=pinned.target.table,
        schema_string=task.schema_string,
        parameters=_parameters(options),
        overwrite=options.mode == "overwrite",
        dynamic_partitions=options.dynamic_partitions,
        merge_schema=options.merge_schema,
        overwrite_schema=options.overwrite_schema,
        first=options.first,
    )
    done = land(pinned.target.client, pinned.storage, landing, pinned.plan, written, options.txn)
    if done.recorded:
        return _already_done(options)
    if done.commit_id is None:
        return WriteResult(version=done.version, skipped=_NOTHING[landing.overwrite])
    return _result(done.version, done.commit_id, written, done.num_removed_files)


_NOTHING = {
    False: "there were no rows to append",
    True: "there was nothing to replace and nothing to write",
}


def _replace_where(target: Target, written: list[Add], options: WriteOptions) -> WriteResult:
    """Rows that match go; a file that holds others too is written again without them."""
    assert options.replace_where is not None
    pinned = target.pin(filter=options.replace_where, changes="replace_where")
    condition = F.coalesce(F.expr(options.replace_where), F.lit(False))
    counts = pinned.matches(options.replace_where)
    gone = [file for file in pinned.files if file.path in counts]
    mixed = [file for file in gone if counts[file.path] != file.num_records]
    if not gone and not written and options.txn is None:
        return WriteResult(version=pinned.version, skipped="no row matched, and the DataFrame is empty")
    with files_in_flight(pinned.storage) as kept:
        if mixed:
            kept += write_files(pinned.rows(mixed).where(~condition), pinned.task(), options.writer)
        actions: list[Action] = [*(removal(file) for file in gone), *written, *kept]
        if options.txn is not None:
            actions.append(Txn(app_id=options.txn[0], version=options.txn[1]))
        job = new_job(
            target.table,
            "WRITE",
            read_version=pinned.version,
            reads=pinned.plan.reads,
            parameters=_parameters(options),
        )
        done = commit_job(target.client, job, actions)
        return _result(done.version, done.commit_id, written, len(gone))


def _schema_after(pinned: Pinned, rows: DataFrame, options: WriteOptions) -> StructType:
    if options.overwrite_schema:
        return nullable(rows.schema)
    if options.merge_schema:
        return evolved(pinned.schema, rows.schema, table=pinned.target.table)
    return pinned.schema


def _already_done(options: WriteOptions) -> WriteResult:
    assert options.txn is not None
    return WriteResult(version=None, skipped=f"version {options.txn[1]} of {options.txn[0]!r} is in the table already")


def _parameters(options: WriteOptions) -> dict[str, object]:
    told: dict[str, object] = {"mode": options.mode.capitalize()}
    if options.replace_where is not None:
        told["predicate"] = options.replace_where
    if options.dynamic_partitions:
        told["partitionOverwriteMode"] = "dynamic"
    return told


def _result(version: int, commit_id: str, written: list[Add], removed: int) -> WriteResult:
    return WriteResult(
        version=version,
        commit_id=commit_id,
        num_files=len(written),
        num_rows=sum(file.num_records or 0 for file in written),
        num_removed_files=removed,
    )


_OUTSIDE = "tarnlog: a row outside of replaceWhere"


def _all_matching(rows: DataFrame, condition: str) -> DataFrame:
    """The rows, with a check as they pass by: one that the condition does not select would survive its own replace."""
    holds = F.coalesce(F.expr(condition), F.lit(False))
    return rows.where(F.when(holds, F.lit(True)).otherwise(F.raise_error(F.lit(_OUTSIDE)).cast("boolean")))


@contextmanager
def _understood_constraint(options: WriteOptions) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        if _OUTSIDE not in str(error):
            raise
        raise ConstraintError(
            f"Some rows do not match replaceWhere ({options.replace_where}): they would not be replaced by the next "
            "such write. Filter the DataFrame by it, or widen it; nothing was committed.",
            slug="replace-where-violated",
        ) from None


def check_options(options: WriteOptions) -> None:
    """InvalidRequest for options that exclude each other."""
    ways = {
        "replace_where": options.replace_where is not None,
        "partition_overwrite_mode='dynamic'": options.dynamic_partitions,
        "overwrite_schema": options.overwrite_schema,
    }
    asked = [name for name, is_set in ways.items() if is_set]
    if asked and options.mode != "overwrite":
        raise InvalidRequest(f"{asked[0]} is for mode='overwrite'.", slug="option-invalid")
    if len(asked) > 1:
        raise InvalidRequest(f"{' and '.join(asked)} exclude each other: give one of them.", slug="option-invalid")
    if options.merge_schema and options.overwrite_schema:
        raise InvalidRequest("merge_schema and overwrite_schema exclude each other.", slug="option-invalid")
    if options.merge_schema and options.replace_where is not None:
        raise InvalidRequest(
            "merge_schema and replace_where exclude each other: add the columns first.", slug="option-invalid"
        )
