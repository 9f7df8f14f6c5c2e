"""MERGE: rows of a source decide what becomes of the rows of a table, in one commit, copy on write.

    (table.merge(changes, "t.id = s.id", target_alias="t", source_alias="s")
        .when_matched_delete("s.deleted")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute())

Clauses of a kind are tried in order; the first whose condition holds decides. A target row that several source rows
would change is an error: which of them should win nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest
from tarnlog.protocol.actions import Action, Add
from tarnlog.protocol.predicates import Predicate
from tarnlog_spark._arguments import ASSIGNMENTS, CONDITION, takes
from tarnlog_spark._changing import as_column, expressions
from tarnlog_spark._committing import commit_job, files_in_flight, new_job, rebased, removal
from tarnlog_spark._conditions import check_deterministic, empty_frame
from tarnlog_spark._errors import ConstraintError
from tarnlog_spark._merge_counts import MergeResult, counts_of, nothing_done
from tarnlog_spark._merge_pruning import source_predicate
from tarnlog_spark._planning import PlanFilter
from tarnlog_spark._scanning import free_name
from tarnlog_spark._spark_schema import quoted
from tarnlog_spark._store_assignment import understood_misfits
from tarnlog_spark._target import Pinned, Target, write_files
from tarnlog_spark._writes import in_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    Expression = str | Column
    _Values = dict["_Clause", dict[str, Column]]

_MATCHED, _NEW, _OLD = "matched", "not matched", "not matched by source"
_IN_SOURCE, _DROP, _ORDER = "_tarnlog_in_source", "_tarnlog_drop", "_tarnlog_order"


class _Clause(Struct, frozen=True, eq=False):
    """One WHEN. `values` None deletes; an empty mapping takes every column of the source by name."""

    kind: str
    condition: str | object | None
    values: Mapping[str, object] | None

    @property
    def holds(self) -> Column:
        if self.condition is None:
            return F.lit(True)
        return F.coalesce(as_column(self.condition), F.lit(False))  # type: ignore[arg-type]


class _Names(Struct, frozen=True):
    """What the columns are called that a merge adds to both sides: as no column of either is."""

    file: str
    row: str
    in_source: str
    drop: str
    order: str

    @property
    def matched(self) -> Column:
        """Whether a row of the join has a source row."""
        return F.col(self.in_source).isNotNull()


class _Touched(Struct, frozen=True):
    """The files that hold a row which some clause changes, and how many such rows they hold together. `repeated` when
    a row of theirs has several matches."""

    files: list[Add]
    updated: int = 0
    deleted: int = 0
    repeated: bool = False


class Merge:
    """A merge that is being described; nothing happens before `execute`."""

    def __init__(
        self, target: Target, source: DataFrame, condition: Expression, target_alias: str, source_alias: str
    ) -> None:
        self._target = target
        self._source = source
        self._condition = condition
        self._aliases = (target_alias, source_alias)
        self._clauses: list[_Clause] = []
        self._pruning: tuple[StructType, Predicate | None] | None = None

    @takes(set=ASSIGNMENTS, condition=CONDITION)
    def when_matched_update(self, set: Mapping[str, Expression], condition: Expression | None = None) -> Merge:  # noqa: A002
        """Set columns of the target row; expressions see both rows by their aliases."""
        return self._with(_MATCHED, condition, _some(set))

    @takes(condition=CONDITION)
    def when_matched_update_all(self, condition: Expression | None = None) -> Merge:
        """Set every column that the source has too."""
        return self._with(_MATCHED, condition, {})

    @takes(condition=CONDITION)
    def when_matched_delete(self, condition: Expression | None = None) -> Merge:
        """Delete the target row."""
        return self._with(_MATCHED, condition, None)

    @takes(values=ASSIGNMENTS, condition=CONDITION)
    def when_not_matched_insert(self, values: Mapping[str, Expression], condition: Expression | None = None) -> Merge:
        """Insert a row for a source row without a match; columns that are not named are null."""
        return self._with(_NEW, condition, _some(values))

    @takes(condition=CONDITION)
    def when_not_matched_insert_all(self, condition: Expression | None = None) -> Merge:
        """Insert the source row, its columns by name."""
        return self._with(_NEW, condition, {})

    @takes(set=ASSIGNMENTS, condition=CONDITION)
    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, Expression],  # noqa: A002
        condition: Expression | None = None,
    ) -> Merge:
        """Set columns of a target row that no source row matches."""
        return self._with(_OLD, condition, _some(set))

    @takes(condition=CONDITION)
    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Merge:
        """Delete a target row that no source row matches."""
        return self._with(_OLD, condition, None)

    def execute(self) -> MergeResult:
        """Merge. The source is computed once, so it may be anything; an attempt that lost is done again."""
        if not self._clauses:
            raise InvalidRequest("A merge needs at least one when_... clause.", slug="option-invalid")
        self._check_conditions()
        source = self._source.localCheckpoint()
        self._pruning = None
        with in_session(self._target):
            return rebased(lambda: self._attempt(source))

    def _check_conditions(self) -> None:
        """Refuse conditions that are not deterministic, before anything runs: each is evaluated several times."""
        schema = self._target.pin(files=False).meta_data.schema_string
        old = empty_frame(self._target.spark, schema).alias(self._aliases[0])
        new = self._source.alias(self._aliases[1])
        both = old.crossJoin(new)
        check_deterministic(both, self._condition, "merge")
        for clause in self._clauses:
            if clause.condition is not None:
                rows = new if clause.kind == _NEW else both
                check_deterministic(rows, clause.condition, f"when {clause.kind}")  # type: ignore[arg-type]

    def _with(self, kind: str, condition: Expression | None, values: Mapping[str, Expression] | None) -> Merge:
        self._clauses.append(_Clause(kind, condition, values))
        return self

    def _of(self, kind: str) -> list[_Clause]:
        return [clause for clause in self._clauses if clause.kind == kind]

    def _attempt(self, source: DataFrame) -> MergeResult:
        on = as_column(self._condition)
        now = self._target.pin(files=False)
        values = self._values(now, source)
        wanted = self._wanted(now, source, on)
        pinned = self._target.pin(filter=None if wanted is None else PlanFilter(wanted), version=now.version)
        names = _names(pinned, source)
        old_alias, new_alias = self._aliases
        new = source.withColumn(names.in_source, F.lit(True)).alias(new_alias)
        touched = self._touched(pinned, new, on, names)
        parts = []
        if touched.files:
            old = pinned.placed_rows(touched.files, (names.file, names.row)).alias(old_alias)
            joined = old.join(new, on, "left")
            joined = self._once(joined, names) if touched.repeated else joined
            parts.append(self._changed(pinned, joined, values, names))
        if self._of(_NEW):
            candidates = pinned.rows().alias(old_alias)
            parts.append(self._inserted(pinned, new.join(candidates, on, "left_anti"), values))
        if not parts:
            return nothing_done(pinned)
        return self._commit(pinned, touched, parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1]))

    def _wanted(self, now: Pinned, source: DataFrame, on: Column) -> Predicate | None:
        """What a target row must satisfy for a clause to concern it; None for all rows, as with clauses about rows
        without a match. The source does not change, so attempts share the answer."""
        if self._of(_OLD):
            return None
        if self._pruning is None or self._pruning[0] != now.schema:
            old_alias, new_alias = self._aliases
            joined = now.no_rows.alias(old_alias).join(source.alias(new_alias), on)
            self._pruning = (now.schema, source_predicate(joined, source, now.schema))
        return self._pruning[1]

    def _commit(self, pinned: Pinned, touched: _Touched, rows: DataFrame) -> MergeResult:
        """Write the rows that take the place of the touched files, and commit both. Nothing to do is no commit."""
        target = self._target
        with files_in_flight(pinned.storage) as written:
            with understood_misfits(target.table):
                written += write_files(rows, pinned.task())
            actions: list[Action] = [*map(removal, touched.files), *written]
            if not actions:
                return nothing_done(pinned)
            counts = counts_of(pinned, touched.files, written, touched.updated, touched.deleted)
            job = new_job(
                target.table,
                "MERGE",
                read_version=pinned.version,
                reads=pinned.plan.reads,
                parameters={"predicate": str(self._condition)},
                metrics=counts.metrics(),
            )
            return counts.result(commit_job(target.client, job, actions).version)

    def _touched(self, pinned: Pinned, new: DataFrame, on: Column, names: _Names) -> _Touched:
        """What the clauses change. ConstraintError when a row would be changed twice."""
        matched, unmatched = self._of(_MATCHED), self._of(_OLD)
        if not pinned.files or (not matched and not unmatched):
            return _Touched([])
        old = pinned.placed_rows(names=(names.file, names.row)).alias(self._aliases[0])
        joined = old.join(new, on, "left" if unmatched else "inner")
        changes = (names.matched & _any(matched)) | (~names.matched & _any(unmatched))
        by_row = joined.groupBy(names.file, names.row).agg(
            F.sum(F.when(changes, 1).otherwise(0)).alias("changes"),
            F.count(F.col(names.in_source)).alias("matches"),
            F.max(F.when(self._drop(names), 1).otherwise(0)).alias("deleted"),
        )
        changed = F.when(F.col("changes") > 0, 1).otherwise(0)
        found = (
            by_row.groupBy(names.file)
            .agg(
                F.max("changes").alias("changes"),
                F.max("matches").alias("matches"),
                F.sum("deleted").alias("deleted"),
                F.sum(changed - F.col("deleted")).alias("updated"),
            )
            .collect()
        )
        if any(row["changes"] > 1 for row in found) and not self._only_deletes():
            raise ConstraintError(
                "Several rows of the source match the same row of the table, so it is not decided what it becomes. "
                "Make the source unique by the columns of the condition; nothing was committed.",
                slug="merge-ambiguous",
            )
        touched = [row for row in found if row["changes"]]
        return _Touched(
            [pinned.file_at(row[names.file]) for row in touched],
            updated=sum(row["updated"] for row in touched),
            deleted=sum(row["deleted"] for row in touched),
            repeated=any(row["matches"] > 1 for row in touched),
        )

    def _only_deletes(self) -> bool:
        """Deleting a row twice is deleting it."""
        matched = self._of(_MATCHED)
        return len(matched) == 1 and matched[0].values is None and matched[0].condition is None

    def _once(self, joined: DataFrame, names: _Names) -> DataFrame:
        """Each target row once: with the one match that changes it, or with any if none does."""
        from pyspark.sql import Window

        changes = names.matched & _any(self._of(_MATCHED))
        order = Window.partitionBy(names.file, names.row).orderBy(changes.desc())
        return joined.withColumn(names.order, F.row_number().over(order)).where(F.col(names.order) == 1)

    def _changed(self, pinned: Pinned, joined: DataFrame, values: _Values, names: _Names) -> DataFrame:
        """The rows of the touched files as they become."""
        alias = quoted(self._aliases[0])
        before = {field.name: F.col(f"{alias}.{quoted(field.name)}") for field in pinned.schema.fields}
        after = dict(before)
        for clause, holds in self._from_the_last(names):
            given = values.get(clause, {})
            for name, value in before.items():
                after[name] = F.when(holds, given.get(name, value)).otherwise(after[name])
        columns = [after[field.name].alias(field.name) for field in pinned.schema.fields]
        return joined.select(*columns, self._drop(names).alias(names.drop)).where(~F.col(names.drop)).drop(names.drop)

    def _drop(self, names: _Names) -> Column:
        """Whether the clause that decides about a target row, with what it is joined to, deletes it."""
        drop = F.lit(False)
        for clause, holds in self._from_the_last(names):
            drop = F.when(holds, F.lit(clause.values is None)).otherwise(drop)
        return drop

    def _from_the_last(self, names: _Names) -> Iterator[tuple[_Clause, Column]]:
        """The clauses about target rows, each with when it holds: from the last, so that the first one decides."""
        for clause in reversed([*self._of(_MATCHED), *self._of(_OLD)]):
            yield clause, (names.matched if clause.kind == _MATCHED else ~names.matched) & clause.holds

    def _inserted(self, pinned: Pinned, rows: DataFrame, values: _Values) -> DataFrame:
        """The rows that source rows without a match become."""
        clauses = self._of(_NEW)
        columns = []
        for field in pinned.schema.fields:
            value: Column = F.lit(None).cast(field.dataType)
            for clause in reversed(clauses):
                value = F.when(clause.holds, values[clause][field.name]).otherwise(value)
            columns.append(value.alias(field.name))
        return rows.where(_any(clauses)).select(*columns)

    def _values(self, pinned: Pinned, source: DataFrame) -> _Values:
        """What each clause sets, by the table's column names. Analyses all conditions and values, over the columns of
        both sides alone; nothing runs."""
        old_alias, new_alias = self._aliases
        new = source.alias(new_alias)
        both = pinned.no_rows.alias(old_alias).join(new, as_column(self._condition))
        found: _Values = {}
        for clause in self._clauses:
            rows = new if clause.kind == _NEW else both
            if clause.condition is not None:
                _ = rows.where(as_column(clause.condition)).schema  # type: ignore[arg-type]
            if clause.values is not None:
                given = clause.values or self._source_columns(pinned, source)
                found[clause] = expressions(pinned, given, rows, inserts=clause.kind == _NEW)  # type: ignore[arg-type]
        return found

    def _source_columns(self, pinned: Pinned, source: DataFrame) -> dict[str, Column]:
        """All columns of the source; each must be one of the table's."""
        known = {field.name.lower() for field in pinned.schema.fields}
        extra = [name for name in source.columns if name.lower() not in known]
        if extra:
            raise InvalidRequest(
                f"The source has columns that {self._target.table} has not ({', '.join(extra)}): leave them out, or "
                "name what to set.",
                slug="column-not-found",
            )
        alias = quoted(self._aliases[1])
        return {name: F.col(f"{alias}.{quoted(name)}") for name in source.columns}


def _names(pinned: Pinned, source: DataFrame) -> _Names:
    known = [*pinned.schema.names, *source.columns]
    file, row = pinned.place_names(source.columns)
    return _Names(file, row, *(free_name(name, known) for name in (_IN_SOURCE, _DROP, _ORDER)))


def _any(clauses: list[_Clause]) -> Column:
    found = F.lit(False)
    for clause in clauses:
        found = found | clause.holds
    return found


def _some(values: Mapping[str, Expression]) -> Mapping[str, Expression]:
    if not values:
        raise InvalidRequest("Name at least one column to set.", slug="option-invalid")
    return values
