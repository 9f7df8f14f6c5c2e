"""Deleting and updating rows by writing the files that hold them anew: copy on write.

Both read at one pinned version and declare what they read, so that the service finds real conflicts and no others. An
attempt that lost is done again from a newer version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest
from tarnlog.protocol.actions import Action, Add
from tarnlog_spark._committing import commit_job, files_in_flight, new_job, rebased, removal
from tarnlog_spark._fitting import fitted
from tarnlog_spark._target import Pinned, Target, write_files
from tarnlog_spark._writes import in_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Condition = str | Column
    Expression = str | Column


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
    counts = pinned.matches(holds)
    touched = [file for file in pinned.files if file.path in counts]
    mixed = [file for file in touched if counts[file.path] != file.num_records]
    kept = pinned.rows(mixed).where(~holds) if mixed else None
    return commit_rewrite(pinned, "DELETE", touched, kept, sum(counts.values()), {"predicate": str(condition)})


def _update(target: Target, changes: Mapping[str, Expression], condition: Condition | None) -> ChangeResult:
    pinned = target.pin(filter=condition, changes="update")
    holds = F.lit(True) if condition is None else _true(condition)
    counts = pinned.matches(holds)
    touched = [file for file in pinned.files if file.path in counts]
    rows = assigned(pinned, pinned.rows(touched), changes, holds) if touched else None
    told = {"predicate": "true" if condition is None else str(condition)}
    return commit_rewrite(pinned, "UPDATE", touched, rows, sum(counts.values()), told)


def assigned(pinned: Pinned, rows: DataFrame, changes: Mapping[str, Expression], holds: Column) -> DataFrame:
    """The rows with columns set where the condition holds."""
    values = expressions(pinned, changes)
    columns = [
        F.when(holds, values[field.name]).otherwise(F.col(quoted(field.name))).alias(field.name)
        if field.name in values
        else F.col(quoted(field.name))
        for field in pinned.schema.fields
    ]
    return rows.select(*columns)


def expressions(pinned: Pinned, changes: Mapping[str, Expression]) -> dict[str, Column]:
    """The assignments by the table's own column names, cast to the columns' types. InvalidRequest for others."""
    fields = {field.name.lower(): field for field in pinned.schema.fields}
    values: dict[str, Column] = {}
    for name, expression in changes.items():
        field = fields.get(name.strip("`").lower())
        if field is None:
            raise InvalidRequest(
                f"{pinned.target.table} has no column {name!r}; it has {', '.join(pinned.schema.names)}.",
                slug="column-not-found",
            )
        values[field.name] = as_column(expression).cast(field.dataType)
    return values


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
            written += write_files(fitted(rows, pinned.schema, table=target.table), pinned.task())
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


def quoted(name: str) -> str:
    """A column's name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
