"""A table as the operations see it: where it is, what is in it at one version, and how rows get into new files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from tarnlog import Client, InvalidRequest, TableInfo
from tarnlog.protocol.actions import Add
from tarnlog_spark._conditions import plan_filter
from tarnlog_spark._errors import SchemaMismatch
from tarnlog_spark._kept_plans import is_kept, kept_plans
from tarnlog_spark._options import Place
from tarnlog_spark._planned_index import prepare
from tarnlog_spark._planning import Plan, PlanFilter, plan_files, plan_scan
from tarnlog_spark._scan_lists import SCANNED, ScanList, list_of_adds, list_of_plan
from tarnlog_spark._scanning import (
    FILE,
    ROW,
    file_place,
    free_name,
    scan,
    scan_again,
    scan_changed,
    scan_conf,
    scan_rows,
    scanned,
)
from tarnlog_spark._spark_schema import strings_for_chars
from tarnlog_spark._staging import Writer, is_native, write_natively
from tarnlog_spark._storage import Storage
from tarnlog_spark._writing import TARGET_BYTES, WriteTask, decode_message, encode_message, target_of, write_batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Condition = str | Column

_TRUNCATION = "stats.truncation.maxLength"


class Target:
    """One table for one Spark session. Holds no state of the table."""

    def __init__(self, spark: SparkSession, place: Place, client: Client) -> None:
        self.spark = spark
        self.place = place
        self.client = client

    @property
    def table(self) -> str:
        return self.place.table

    @cached_property
    def info(self) -> TableInfo:
        """The table when it was first asked for: only what never changes is taken from here."""
        return self.client.get_table(self.table)

    @property
    def storage(self) -> Storage:
        return self.place.storage(self.info.location)

    def read(self, condition: Condition | None, *, version: int | None, timestamp: int | str | None) -> DataFrame:
        """The rows at one version, of the files that may match. A large one is kept: reading it again is quick, and so
        is reading the table at a newer version."""
        way = scan_conf(self.spark)
        if way != "arrow":
            prepare(self.spark)
        plan = plan_scan(
            self.client,
            self.table,
            kept_plans(self.spark),
            self.storage,
            filter_of=lambda meta: plan_filter(self.spark, condition, meta),
            version=version,
            timestamp=timestamp,
            fields=SCANNED,
        )
        pinned = self._pinned(plan)
        if plan.scanned is not None and plan.scanned[0] == way:
            return scan_again(self.spark, plan.scanned[1])
        rows = pinned.changed_rows(way)
        if rows is None:
            rows = pinned.rows()
        if is_kept(plan) and (again := scanned(rows)) is not None:
            plan.scanned = (way, again)
        return rows

    def pin(
        self,
        *,
        filter: Condition | PlanFilter | None = None,  # noqa: A002 (the API's word)
        changes: str | None = None,
        version: int | None = None,
        timestamp: int | str | None = None,
        files: bool = True,
    ) -> Pinned:
        """The table at one version, with the files that may match, or without any: then nothing is planned.

        `changes` names the operation that changes rows by the filter; one that is not deterministic is refused.
        """
        if files:
            plan = plan_files(
                self.client,
                self.table,
                filter_of=lambda meta: (
                    filter if isinstance(filter, PlanFilter) else plan_filter(self.spark, filter, meta, changes=changes)
                ),
                version=version,
                timestamp=timestamp,
            )
        else:
            found = self.client.snapshot(self.table, version=version, timestamp=timestamp)
            plan = Plan(version=found.version, meta_data=found.meta_data, files=())
        return self._pinned(plan)

    def _pinned(self, plan: Plan) -> Pinned:
        if plan.meta_data.id != self.info.id:
            del self.info  # it was dropped and made again since, and lies somewhere else
        provider = plan.meta_data.format.provider
        if provider.lower() != "parquet":
            raise InvalidRequest(
                f"The data files of {self.table} are {provider!r}, and this connector reads and writes only Parquet. "
                "Its log can be read: history, detail and changes.",
                slug="format-not-supported",
            )
        return Pinned(self, plan)


class Pinned:
    """A table at one version."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self.target = target
        self.plan = plan
        self.version = plan.version
        self.meta_data = plan.meta_data
        self.partition_columns = plan.meta_data.partition_columns
        self.storage = target.storage

    @cached_property
    def schema(self) -> StructType:
        """The table's schema at this version, as Spark has it."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.meta_data.schema_string))

    @cached_property
    def scan_schema(self) -> StructType:
        """The schema by which Spark reads the data files. Spark takes no char and varchar there: they are strings."""
        return strings_for_chars(self.schema)

    @property
    def files(self) -> tuple[Add, ...]:
        """The planned files."""
        return self.plan.files

    def rows(self, files: Sequence[Add] | None = None) -> DataFrame:
        """The rows of the files, by default of all that were planned."""
        return scan(self.target.spark, self.storage, self._listed(files), self.scan_schema, self.partition_columns)

    def changed_rows(self, way: str) -> DataFrame | None:
        """The rows by what Spark holds of an older plan, where this one came from one that was scanned in this way."""
        change, self.plan.change = self.plan.change, None
        if change is None or change.scanned is None or change.scanned[0] != way:
            return None
        target, came = self.target, list_of_plan(change.came)
        older = change.scanned[1]
        return scan_changed(
            target.spark, self.storage, older, change.gone, came, self.scan_schema, self.partition_columns
        )

    @cached_property
    def no_rows(self) -> DataFrame:
        """An empty DataFrame of the table's columns alone. Expressions are analysed against it first, so that no error
        names a column that the connector adds."""
        return self.target.spark.createDataFrame([], self.scan_schema)

    def place_names(self, taken: Iterable[str] = ()) -> tuple[str, str]:
        """Names for a row's file and its place in it, which no column of the table has and which are not taken."""
        known = [*self.schema.names, *taken]
        return free_name(FILE, known), free_name(ROW, known)

    def placed_rows(self, files: Sequence[Add] | None = None, names: tuple[str, str] | None = None) -> DataFrame:
        """The rows, each with its file and its place in it, by default as `place_names` names them."""
        return scan_rows(
            self.target.spark,
            self.storage,
            self._listed(files),
            self.scan_schema,
            self.partition_columns,
            names=names or self.place_names(),
        )

    def _listed(self, files: Sequence[Add] | None) -> ScanList:
        if files is None and self.plan.listing is not None:
            return list_of_plan(self.plan.listing)
        return list_of_adds(self.files if files is None else files)

    def matches(self, condition: Condition) -> dict[str, int]:
        """How many rows of each file, by its path in the log, make the condition true. Files without any are absent."""
        _ = self.no_rows.where(condition).schema  # raises what is wrong with it
        names = self.place_names()
        counted = self.placed_rows(names=names).where(condition).groupBy(names[0]).count().collect()
        return {self.file_at(row[0]).path: int(row[1]) for row in counted}

    def file_at(self, place: str) -> Add:
        """The planned file that FILE names."""
        return self._by_place[file_place(place)]

    @cached_property
    def _by_place(self) -> dict[str, Add]:
        return {self.storage.path(file.path): file for file in self.files}

    def task(
        self, *, schema_string: str | None = None, target_bytes: int | None = None, data_change: bool = True
    ) -> WriteTask:
        """What a task needs to write files of this table."""
        configuration = self.meta_data.configuration
        size = target_of(configuration)
        return WriteTask(
            storage=self.storage,
            schema_string=schema_string or self.meta_data.schema_string,
            partition_columns=self.partition_columns,
            target_bytes=target_bytes or size or TARGET_BYTES,
            cut_at=int(configuration.get(_TRUNCATION, "32")),
            data_change=data_change,
            rolls_files=target_bytes is not None or size is not None,
        )


def write_files(rows: DataFrame, task: WriteTask, writer: Writer = "auto") -> list[Add]:
    """Write the rows in Spark's tasks, by Spark's own writer where that comes to the same. Only what winning attempts
    wrote comes back."""
    task.schema()  # a type that cannot be written is refused before any task runs
    return write_natively(rows, task) if is_native(rows, task, writer) else _write_by_arrow(rows, task)


def _write_by_arrow(rows: DataFrame, task: WriteTask) -> list[Add]:
    """By pyarrow in Python tasks: works wherever they reach the storage, on Connect too."""
    names = rows.columns
    # PySpark looks each column up by name there, and stumbles over backticks and dots.
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (batch.rename_columns(names) for batch in batches)
        for add in write_batches(task, named):
            yield pa.RecordBatch.from_pydict({"message": [encode_message(add)]})

    with _understood_failures(task):
        return [decode_message(row[0]) for row in numbered.mapInArrow(run, "message string").collect()]


@contextlib.contextmanager
def _understood_failures(task: WriteTask) -> Iterator[None]:
    """Spark keeps only the text of what a task raises: what the connector raises there is made whole again."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text = str(error)
        if SchemaMismatch.__name__ not in text:
            raise
        faults = {
            field.name: "null where the table allows none"
            for field in task.schema()
            if not field.nullable and f"{field.name}: null where" in text
        }
        if not faults:
            raise
        raise SchemaMismatch(faults, advice="Fill the nulls, or leave such rows out.") from error
