"""What can happen to a table, each step done twice: by the table, and by plain Spark on the rows that should be there.

The oracle knows nothing of files, versions or partitions: it has the SQL conditions, and DataFrames of rows. What an
assignment stores is what an INSERT of the value into a plain table of Spark's stores; where Spark refuses that, so must
the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from hypothesis import strategies as st
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog_spark import Table
from tests.spark.oracle import FILTERS, PARTITION_FILTERS, ROW, WIDE, Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
    shape: Shape = WIDE

    def on_table(self, table: Table, url: str) -> None:
        _write(table, url, self.way, self.shape.frame(_session(table), self.rows), "append")

    def on_rows(self, rows: DataFrame) -> DataFrame:
        return rows.union(self.shape.frame(rows.sparkSession, self.rows))


class Replace(Struct, frozen=True):
    """An overwrite by a condition, which the new rows keep."""

    rows: list[Any]
    condition: str
    way: str
    shape: Shape = WIDE

    def on_table(self, table: Table, url: str) -> None:
        new = self.shape.frame(_session(table), self.rows).where(self.condition)
        _write(table, url, self.way, new, "overwrite", replace_where=self.condition)

    def on_rows(self, rows: DataFrame) -> DataFrame:
        new = self.shape.frame(rows.sparkSession, self.rows).where(self.condition)
        return rows.where(~_true(self.condition)).union(new)


class Dynamic(Struct, frozen=True):
    """An overwrite of the partitions that the new rows have."""

    rows: list[Any]
    way: str
    shape: Shape = WIDE

    def on_table(self, table: Table, url: str) -> None:
        new = self.shape.frame(_session(table), self.rows)
        _write(table, url, self.way, new, "overwrite", partition_overwrite_mode="dynamic")

    def on_rows(self, rows: DataFrame) -> DataFrame:
        new, names = self.shape.frame(rows.sparkSession, self.rows), self.shape.partitions
        old, gone = rows.alias("old"), new.select(*map(_quoted, names)).alias("gone")
        same = [F.col(f"old.{_quoted(name)}").eqNullSafe(F.col(f"gone.{_quoted(name)}")) for name in names]
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
        held, names = _true(self.condition), rows.columns
        old = {name: F.col(_quoted(name)) for name in names}
        new = rows.where(held).select(*_set(old, self.values))
        return rows.where(~held).union(_stored(new, rows.schema))


class Merge(Struct, frozen=True):
    """Clauses of all kinds; None leaves one out. A source has a key once, and in `source` columns that are others."""

    rows: list[Any]
    delete: str | None
    update: dict[str, str] | None
    insert: str | None
    old_update: tuple[dict[str, str], str] | None
    old_delete: str | None
    source: dict[str, str] = {}
    shape: Shape = WIDE

    def on_table(self, table: Table, url: str) -> None:
        merge = table.merge(self._source(_session(table)), "target.k = source.k")
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
        new = self._source(rows.sparkSession).withColumn("is_new", F.lit(True)).alias("source")
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
        olds = {name: F.col(f"target.{_quoted(name)}") for name in rows.columns}
        news = {name: F.col(f"source.{_quoted(name)}") for name in rows.columns}
        changed = news if self.update is None else olds
        parts = [
            (matched, _set(changed, self.update or {})),
            (added, _set(news, {})),
            (kept & set_old, _set(olds, {} if self.old_update is None else self.old_update[0])),
            (kept & ~set_old, _set(olds, {})),
        ]
        stored = [_stored(both.where(F.coalesce(part, F.lit(False))).select(*to), rows.schema) for part, to in parts]
        return reduce(lambda one, other: one.union(other), stored)

    def _source(self, session: SparkSession) -> DataFrame:
        new = self.shape.frame(session, self.rows)
        return new.select(*_set({name: F.col(_quoted(name)) for name in new.columns}, self.source))


class Optimize(Struct, frozen=True):
    """Rows move to other files, in the order of a curve over some columns, and stay what they are."""

    columns: tuple[str, ...]

    def on_table(self, table: Table, url: str) -> None:
        table.optimize().execute_zorder_by(*self.columns)

    def on_rows(self, rows: DataFrame) -> DataFrame:
        return rows


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


@contextmanager
def configured(session: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """A session with other settings, which it has no longer afterwards."""
    before = {key: session.conf.get(key, None) for key in confs}
    try:
        for key, value in confs.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


_POLICY = "spark.sql.storeAssignmentPolicy"
_PLAIN_FILES = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.useV1SourceList": "parquet",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What the plain table's own files must not depend on."""


def _stored(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows as an INSERT by name stores them in a plain table of that schema; raises what Spark raises.

    The policy LEGACY is Spark's casts of old, which store nulls and wrong numbers: a table stores as under ANSI.
    """
    if [(field.name, field.dataType) for field in rows.schema] == [(field.name, field.dataType) for field in schema]:
        return rows
    session, name = rows.sparkSession, f"oracle_{uuid.uuid4().hex}"
    policy = str(session.conf.get(_POLICY)).upper()
    with configured(session, {**_PLAIN_FILES, _POLICY: "ANSI" if policy == "LEGACY" else policy}):
        session.createDataFrame([], schema).write.format("parquet").saveAsTable(name)
        rows.createOrReplaceTempView(f"{name}_rows")
        try:
            session.sql(f"INSERT INTO {name} BY NAME SELECT * FROM {name}_rows")
            return session.table(name).localCheckpoint()
        finally:
            session.catalog.dropTempView(f"{name}_rows")
            session.sql(f"DROP TABLE {name}")


def _set(columns: Mapping[str, Column], values: Mapping[str, str]) -> list[Column]:
    """The columns, some of them set to an expression; those are named in any case."""
    given = {name.strip("`").lower(): F.expr(text) for name, text in values.items()}
    return [given.get(name.lower(), column).alias(name) for name, column in columns.items()]


def _session(table: Table) -> SparkSession:
    return table._target.spark


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
