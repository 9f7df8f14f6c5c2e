"""Deleting and updating rows by writing the files that hold them anew: copy on write.

Both read at one pinned version and declare what they read, so that the service finds real conflicts and no others. An
attempt that lost is done again from a newer version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
from pyspark.sql.types import StructField, StructType

from tarnlog import InvalidRequest
from tarnlog.protocol.actions import Action, Add
from tarnlog_spark._committing import commit_job, files_in_flight, new_job, rebased, removal
from tarnlog_spark._conditions import is_deterministic
from tarnlog_spark._fitting import Assignment
from tarnlog_spark._spark_schema import quoted
from tarnlog_spark._store_assignment import policy, understood_misfits
from tarnlog_spark._target import Pinned, Target, write_files
from tarnlog_spark._writes import in_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Condition = str | Column
    Expression = str | Column


_IDENTIFIER = re.compile(r"`((?:[^`]|``)+)`", re.DOTALL)
_COUNTED = {"DELETE": "numDeletedRows", "UPDATE": "numUpdatedRows"}
"""What history calls the rows of a change, by the names that Delta's users know."""


class ChangeResult(Struct, frozen=True, kw_only=True):
    """What a change of rows did. `version` is that of the table when no row was concerned."""

    version: int
    num_rows: int = 0
    num_removed_files: int = 0
    num_added_files: int = 0
    changed: bool = True


def delete(target: Target, condition: Condition | None) -> ChangeResult:
    """Delete the rows that make the condition true; without one, all. Files of such rows alone are only removed."""
    with in_session(target):
        return rebased(lambda: _delete(target, condition))


def update(target: Target, changes: Mapping[str, Expression], condition: Condition | None) -> ChangeResult:
    """Set columns in the rows that make the condition true; without one, in all. Expressions see the old row."""
    if not changes:
        raise InvalidRequest("An update sets at least one column.", slug="option-invalid")
    with in_session(target):
        return rebased(lambda: _update(target, changes, condition))


def _delete(target: Target, condition: Condition | None) -> ChangeResult:
    pinned = target.pin(filter=condition, changes="delete")
    if condition is None:
        count = sum(file.num_records or 0 for file in pinned.files)
        return commit_rewrite(pinned, "DELETE", pinned.files, None, count, {})
    holds = _true(condition)
    counts = pinned.matches(condition)
    touched = [file for file in pinned.files if file.path in counts]
    mixed = [file for file in touched if counts[file.path] != file.num_records]
    kept = pinned.rows(mixed).where(~holds) if mixed else None
    return commit_rewrite(pinned, "DELETE", touched, kept, sum(counts.values()), {"predicate": str(condition)})


def _update(target: Target, changes: Mapping[str, Expression], condition: Condition | None) -> ChangeResult:
    pinned = target.pin(filter=condition, changes="update")
    holds = F.lit(True) if condition is None else _true(condition)
    values = expressions(pinned, changes, pinned.no_rows)
    counts = pinned.matches(holds if condition is None else condition)
    touched = [file for file in pinned.files if file.path in counts]
    rows = assigned(pinned, pinned.rows(touched), values, holds) if touched else None
    told = {"predicate": "true" if condition is None else str(condition)}
    return commit_rewrite(pinned, "UPDATE", touched, rows, sum(counts.values()), told)


def assigned(pinned: Pinned, rows: DataFrame, values: Mapping[str, Column], holds: Column) -> DataFrame:
    """The rows with columns set where the condition holds."""
    columns = [
        F.when(holds, values[field.name]).otherwise(F.col(quoted(field.name))).alias(field.name)
        if field.name in values
        else F.col(quoted(field.name))
        for field in pinned.schema.fields
    ]
    return rows.select(*columns)


def expressions(
    pinned: Pinned, changes: Mapping[str, Expression], rows: DataFrame, *, inserts: bool = False
) -> dict[str, Column]:
    """The assignments by the table's own column names, as the columns' types; of an insert, null for the others.

    `rows` is a DataFrame with what the expressions may name: their types are found by analysing them, nothing runs.
    InvalidRequest for columns that the table does not have, SchemaMismatch for values that cannot be stored in theirs.
    """
    target = pinned.target
    fields: dict[str, StructField] = {}
    for name in changes:
        field = _field(pinned, name)
        if field.name in fields:
            raise InvalidRequest(f"{field.name!r} is set twice: set it once.", slug="option-invalid")
        fields[field.name] = field
    given = [as_column(expression) for expression in changes.values()]
    analysed = rows.select("*", *(value.alias(name) for name, value in zip(fields, given, strict=True))).schema
    types = [field.dataType for field in analysed.fields[-len(given) :]]
    assignment = Assignment(target.table, policy(target.spark))
    values = {
        field.name: assignment.value(
            value,
            kind,
            field,
            is_random=kind != field.dataType and not is_deterministic(rows, value.isNotNull()),
        )
        for field, value, kind in zip(fields.values(), given, types, strict=True)
    }
    if inserts:
        absent = [field for field in pinned.schema.fields if field.name not in fields]
        values |= {field.name: assignment.absent(field) for field in absent}
    assignment.check()
    return values


def _field(pinned: Pinned, name: str) -> StructField:
    """The table's column by its name as it is, or as one identifier of SQL in back quotes."""
    fields = {field.name.lower(): field for field in pinned.schema.fields}
    found = fields.get(name.lower())
    if found is None and (match := _IDENTIFIER.fullmatch(name)):
        found = fields.get(match[1].replace("``", "`").lower())
    if found is not None:
        return found
    outer = fields.get(name.partition(".")[0].strip("`").lower())
    if outer is not None and isinstance(outer.dataType, StructType):
        raise InvalidRequest(
            f"{name!r} is a member of {outer.name!r}, and only whole columns are set: set {outer.name!r} to a struct "
            "of all its members, such as named_struct('a', 1, 'b', st.b).",
            slug="column-not-found",
        )
    raise InvalidRequest(
        f"{pinned.target.table} has no column {name!r}; it has {', '.join(pinned.schema.names)}.",
        slug="column-not-found",
    )


def commit_rewrite(
    pinned: Pinned,
    operation: str,
    touched: Sequence[Add],
    rows: DataFrame | None,
    num_rows: int,
    parameters: Mapping[str, str],
) -> ChangeResult:
    """Write the rows that take the place of the touched files, and commit both. Nothing to do is no commit."""
    target = pinned.target
    with files_in_flight(pinned.storage) as written:
        if rows is not None:
            with understood_misfits(target.table):
                written += write_files(rows, pinned.task())
        actions: list[Action] = [*(removal(file) for file in touched), *written]
        if not actions:
            return ChangeResult(version=pinned.version, changed=False)
        job = new_job(
            target.table,
            operation,
            read_version=pinned.version,
            reads=pinned.plan.reads,
            parameters=parameters,
            metrics={_COUNTED[operation]: str(num_rows)},
        )
        committed = commit_job(target.client, job, actions)
    return ChangeResult(
        version=committed.version,
        num_rows=num_rows,
        num_removed_files=len(touched),
        num_added_files=len(written),
    )


def as_column(expression: Expression) -> Column:
    """SQL text or a column."""
    return F.expr(expression) if isinstance(expression, str) else expression


def _true(condition: Condition) -> Column:
    """Null is not true: such rows stay as they are."""
    return F.coalesce(as_column(condition), F.lit(False))
