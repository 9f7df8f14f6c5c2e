"""What can happen to a table, each step done twice: by the table, and by plain Spark on the rows that should be there.

The oracle knows nothing of files, versions or partitions: it has the SQL conditions, and DataFrames of rows.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from hypothesis import strategies as st
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog_spark import Table
from tests.spark.oracle import DDL, FILTERS, PARTITION_FILTERS, PARTITIONS, ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMAT = "format"
_WAYS = st.sampled_from(["native", "arrow", FORMAT])


class Step(Protocol):
    """One commit, or none where there is nothing to do."""

    def on_table(self, table: Table, url: str) -> None: ...

    def on_rows(self, rows: DataFrame) -> DataFrame:
        """The rows that should be there afterwards."""
        ...


class Append(Struct, frozen=True):
    """Rows come to the others."""

    rows: list[Any]
    way: str

    def on_table(self, table: Table, url: str) -> None:
        _write(table, url, self.way, _frame(self.rows), "append")

    def on_rows(self, rows: DataFrame) -> DataFrame:
        return rows.union(_frame(self.rows))


class Replace(Struct, frozen=True):
    """An overwrite by a condition, which the new rows keep."""

    rows: list[Any]
    condition: str
    way: str

    def on_table(self, table: Table, url: str) -> None:
        new = _frame(self.rows).where(self.condition)
        _write(table, url, self.way, new, "overwrite", replace_where=self.condition)

    def on_rows(self, rows: DataFrame) -> DataFrame:
        return rows.where(~_true(self.condition)).union(_frame(self.rows).where(self.condition))


class Dynamic(Struct, frozen=True):
    """An overwrite of the partitions that the new rows have."""

    rows: list[Any]
    way: str

    def on_table(self, table: Table, url: str) -> None:
        _write(table, url, self.way, _frame(self.rows), "overwrite", partition_overwrite_mode="dynamic")

    def on_rows(self, rows: DataFrame) -> DataFrame:
        new = _frame(self.rows)
        old, gone = rows.alias("old"), new.select(*map(_quoted, PARTITIONS)).alias("gone")
        same = [F.col(f"old.{_quoted(name)}").eqNullSafe(F.col(f"gone.{_quoted(name)}")) for name in PARTITIONS]
        return old.join(gone, reduce(lambda one, other: one & other, same), "left_anti").union(new)


class Delete(Struct, frozen=True):
    """Rows go by a condition."""

    condition: str

    def on_table(self, table: Table, url: str) -> None:
        table.delete(self.condition)

    def on_rows(self, rows: DataFrame) -> DataFrame:
        return rows.where(~_true(self.condition))


class Update(Struct, frozen=True):
    """Columns are set by a condition; partition columns among them, so that rows move."""

    values: dict[str, str]
    condition: str

    def on_table(self, table: Table, url: str) -> None:
        table.update(self.values, self.condition)

    def on_rows(self, rows: DataFrame) -> DataFrame:
        held = _true(self.condition)
        return rows.select(
            *(
                F.when(held, F.expr(self.values[field.name]).cast(field.dataType))
                .otherwise(F.col(_quoted(field.name)))
                .alias(field.name)
                if field.name in self.values
                else F.col(_quoted(field.name))
                for field in rows.schema.fields
            )
        )


class Merge(Struct, frozen=True):
    """Clauses of all kinds; None leaves one out. A source has a key once."""

    rows: list[Any]
    delete: str | None
    update: dict[str, str] | None
    insert: str | None
    old_update: tuple[dict[str, str], str] | None
    old_delete: str | None

    def on_table(self, table: Table, url: str) -> None:
        merge = table.merge(_frame(self.rows), "target.k = source.k")
        if self.delete is not None:
            merge = merge.when_matched_delete(self.delete)
        merge = merge.when_matched_update_all() if self.update is None else merge.when_matched_update(self.update)
        if self.insert is not None:
            merge = merge.when_not_matched_insert_all(self.insert)
        if self.old_update is not None:
            merge = merge.when_not_matched_by_source_update(*self.old_update)
        if self.old_delete is not None:
            merge = merge.when_not_matched_by_source_delete(self.old_delete)
        merge.execute()

    def on_rows(self, rows: DataFrame) -> DataFrame:
        old = rows.withColumn("is_old", F.lit(True)).alias("target")
        new = _frame(self.rows).withColumn("is_new", F.lit(True)).alias("source")
        both = old.join(new, F.expr("target.k = source.k"), "full_outer")
        matched, added = F.expr("is_old AND is_new"), F.expr("is_old IS NULL")
        kept = F.expr("is_new IS NULL")
        set_old = F.lit(False) if self.old_update is None else _true(self.old_update[1])
        dropped = (
            (matched & _true(self.delete))
            | (added & ~_true(self.insert))
            | (kept & ~set_old & _true(self.old_delete))  # the first clause that holds decides
        )
        both = both.where(~F.coalesce(dropped, F.lit(False)))
        return both.select(*(self._value(field, matched, added, kept & set_old) for field in rows.schema.fields))

    def _value(self, field: Any, matched: Column, added: Column, set_old: Column) -> Column:
        old, new = F.col(f"target.{_quoted(field.name)}"), F.col(f"source.{_quoted(field.name)}")
        changed, left = new, old
        if self.update is not None:
            changed = F.expr(self.update[field.name]) if field.name in self.update else old
        if self.old_update is not None and field.name in self.old_update[0]:
            left = F.expr(self.old_update[0][field.name])
        return (
            F.when(matched, changed.cast(field.dataType))
            .when(added, new)
            .when(set_old, left.cast(field.dataType))
            .otherwise(old)
            .alias(field.name)
        )


_CONDITIONS = st.sampled_from(FILTERS)
_SETS = st.sampled_from(
    [
        {"s": "concat(s, '!')", "d": "-d", "part": "'a b'", "arr": "slice(arr, 1, 1)"},
        {"p2": "date_add(p2, 1)", "pi": "pi + 1", "st": "named_struct('a b', s, 'inner', named_struct('z', d))"},
        {"p ü": "NOT `p ü`", "p time": "NULL", "m": "map('ü', 1.5)", "bin": "unhex('00ff')", "ntz": "ntz"},
        {"pdec": "pdec + 1", "part": "concat(part, '/')", "f": "double('-Infinity')", "dec": "pi", "day": "p2"},
    ]
)
_MERGES = st.builds(
    Merge,
    rows=st.lists(ROW, min_size=2, max_size=6, unique_by=lambda row: row[0]),
    delete=st.sampled_from([None, "source.b", "target.pi = source.pi"]),
    update=st.none()
    | st.just({"s": "concat(source.s, target.s)", "p2": "source.p2", "st": "source.st", "f": "target.d", "i8": "NULL"}),
    insert=st.sampled_from(["true", None, "source.i4 > 0 OR source.s IS NULL"]),
    old_update=st.none() | st.just(({"s": "concat(target.s, '?')", "part": "NULL"}, "target.d > 0 OR target.b")),
    old_delete=st.sampled_from([None, "target.i2 > 0", "target.`p ü`"]),
)
STEPS: st.SearchStrategy[list[Step]] = st.tuples(
    st.builds(Append, rows=st.lists(ROW, max_size=4), way=_WAYS),
    st.builds(Replace, rows=st.lists(ROW, max_size=6), condition=_CONDITIONS, way=st.sampled_from(["native", "arrow"])),
    st.builds(
        Replace,
        rows=st.lists(ROW, max_size=6),
        condition=st.sampled_from(PARTITION_FILTERS),
        way=st.just(FORMAT),  # which takes conditions on partition columns alone
    ),
    st.builds(Dynamic, rows=st.lists(ROW, max_size=4), way=_WAYS),
    st.builds(Delete, condition=_CONDITIONS),
    st.builds(Update, values=_SETS, condition=_CONDITIONS | st.just("true")),
    _MERGES,
).flatmap(lambda steps: st.permutations(list(steps)))
"""Every step once, in any order."""


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.active()


def _frame(rows: list[Any]) -> DataFrame:
    return _session().createDataFrame(rows, DDL)


def _write(table: Table, url: str, way: str, rows: DataFrame, mode: str, **options: str) -> None:
    if way != FORMAT:
        table.write(rows, mode, writer=way, **options)  # type: ignore[arg-type]
        return
    words = {"replace_where": "replaceWhere", "partition_overwrite_mode": "partitionOverwriteMode"}
    named = {words[name]: value for name, value in options.items()}
    rows.write.format("tarnlog").mode(mode).options(url=url, **named).save(table.name)


def _true(condition: str | None) -> Column:
    """Null is not true, and no condition here is one that never holds."""
    return F.lit(False) if condition is None else F.coalesce(F.expr(condition), F.lit(False))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
