"""Writing by Spark's own Parquet writer: into a folder that one job owns, below the table's location.

Rows stay in the JVM. What makes the result exact: the folder's name is new, so that no other job writes there; the
committer is the one whose tasks put their files in place only when they won, and only when the whole job ends (files of
attempts that lost stay below `_temporary` and go with it); the list is taken after the job's mark; and the rows in the
files are as many as Spark counted in the tasks that won.

Confs that decide what is in the files, and how they are committed, are set in a copy of the session, so that the
caller's own is not touched. The copy serves until the caller's confs change: small appends feel what a new one costs.
`spark.tarnlog.write` chooses the way for what has no option of its own (auto, native, arrow).
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Literal, cast

from tarnlog import Corrupt, InvalidRequest
from tarnlog_spark._dictionaries import Paid, dictionaries, is_users, without_dictionary
from tarnlog_spark._local_files import local_options
from tarnlog_spark._scanning import can_reach, spark_scheme
from tarnlog_spark._spark_schema import quoted
from tarnlog_spark._staged_files import MARKER, StagedFile, adds_of, staged_files
from tarnlog_spark._writing import WriteTask, check_partition_columns, decode_message, encode_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from tarnlog.protocol.actions import Add

_log = logging.getLogger(__name__)
Writer = Literal["auto", "native", "arrow"]
WRITERS = ("auto", "native", "arrow")
WRITE_CONF = "spark.tarnlog.write"

MANY_FILES = 500
"""Above so many files their footers are read by a Spark job, not by the driver alone."""

_LONGEST_VALUE = 60
_PLAIN_NAME = re.compile(r"[a-z0-9_]{1,40}", re.ASCII)

_CONFS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "parquet.summary.metadata.level": "NONE",
    "parquet.statistics.truncate.length": "2147483647",  # a cut value would be no partition's
}

_WRAPPERS = {"AdaptiveSparkPlan": "executedPlan", "ResultQueryStage": "plan"}
"""What an adaptive query puts around the command, from the outside in, and where the inside is."""


def is_native(rows: DataFrame, task: WriteTask, writer: Writer = "auto") -> bool:
    """Whether Spark itself writes these rows. InvalidRequest where it is told to and cannot."""
    spark = rows.sparkSession
    way = writer if writer != "auto" else str(spark.conf.get(WRITE_CONF, "auto")).lower()
    if way not in WRITERS:
        raise InvalidRequest(f"{WRITE_CONF} is auto, native or arrow, not {way!r}.", slug="option-invalid")
    if way == "arrow":
        return False
    obstacle = _obstacle(rows, task)
    if way == "native" and obstacle is not None:
        raise InvalidRequest(
            f"Spark's own writer cannot be used: {obstacle}. Use writer='auto'.", slug="option-invalid"
        )
    # On an object store this committer copies each byte twice: tasks that write in place are the better way.
    return obstacle is None and (way == "native" or spark_scheme(task.storage) == "file://")


def write_natively(rows: DataFrame, task: WriteTask) -> list[Add]:
    """Write the rows in one Spark job and tell its files. Costs that job, a listing of its folder, and the footers."""
    check_partition_columns(task.schema(), task.partition_columns)
    folder = f"write-{uuid.uuid4()}"
    known, paid = dictionaries(rows.sparkSession), Paid(task.schema())
    futile = known.futile(task)
    counted = _run(rows, task, folder, frozenset() if not futile or is_users(rows.sparkSession) else futile)
    files = staged_files(task, folder)
    few = len(files) <= MANY_FILES
    adds = adds_of(task, files, paid.look) if few else _adds_by_job(rows.sparkSession, task, files, paid)
    held = sum(add.num_records or 0 for add in adds)
    if counted is not None and counted != held:
        raise Corrupt(
            f"Spark wrote {counted} rows, and its files in {folder} hold {held}. Nothing was committed: write again, "
            "or with writer='arrow'."
        )
    _tidy(task, folder, [add for add in adds if not add.num_records])
    if futile is None and paid.found and not is_users(rows.sparkSession):
        known.learn(task, paid.found)
    return [add for add in adds if add.num_records]


def _run(rows: DataFrame, task: WriteTask, folder: str, futile: frozenset[str]) -> int | None:
    """The job; how many rows its winning tasks wrote, as Spark's own write counts them, or None if it does not tell."""
    from pyspark.sql import DataFrame

    spark = cast(Any, rows.sparkSession)
    own = cast(Any, _own_session(spark))
    plan = cast(Any, rows)._jdf.logicalPlan()
    here = DataFrame(spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(own._jsparkSession, plan), own)
    copies = _copies(here, task.partition_columns)
    if copies:
        here = here.select("*", *(column.alias(name) for name, column in copies.items()))
    scheme = spark_scheme(task.storage)
    options = {"compression": task.compression, **without_dictionary(futile)}
    if scheme == "file://":
        options |= local_options(spark)
    # A folder that exists is not ours: Spark refuses it.
    writer = here.write.options(**options).mode("error").format("parquet")
    if copies:
        writer = writer.partitionBy(*copies)
    place = spark._jvm.scala.Option.apply(scheme + task.storage.path(folder))
    # As `save` does it, but the plan of the command stays in hand, and with it what the command counted: an observed
    # count would come late, by Spark's listeners.
    command = cast(Any, writer)._jwrite.saveCommand(place)
    eager = spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()
    return _counted(own._jsparkSession.sessionState().executePlan(command, eager).commandExecuted())


def _counted(result: Any) -> int | None:
    """What the driver added up of the tasks that won, from the metrics of the command that ran."""
    plan = result.commandPhysicalPlan()
    for wrapper, inside in _WRAPPERS.items():
        plan = getattr(plan, inside)() if plan.nodeName() == wrapper else plan
    metric = plan.metrics().get("numOutputRows")
    if metric.isDefined():
        return int(metric.get().value())
    _log.warning(
        "Spark does not tell how many rows it wrote (%s): its files were not compared with that", plan.nodeName()
    )
    return None


def _own_session(spark: Any) -> SparkSession:
    """A copy of the session as it is now, with confs of ours. The last one of each session is kept."""
    from pyspark.sql import SparkSession

    confs = spark._jsparkSession.sessionState().conf().getAllConfs()
    kept = _sessions.get(spark)
    if kept is not None and kept[0].equals(confs):
        return kept[1]
    own = SparkSession(spark._sc, spark._jsparkSession.cloneSession())
    for key, value in _CONFS.items():
        own.conf.set(key, value)
    _sessions[spark] = (confs, own)
    return own


_sessions: weakref.WeakKeyDictionary[Any, tuple[Any, SparkSession]] = weakref.WeakKeyDictionary()


def _copies(rows: DataFrame, columns: tuple[str, ...]) -> dict[str, Column]:
    """What names the folders, by the name of a column that the table does not have.

    Spark takes the columns by which it partitions out of the files, so these are copies. Their folders differ wherever
    values do: on a file system that folds case too, with null, and at any length. Readers never look at them.
    """
    taken = {name.lower() for name in rows.columns}
    copies: dict[str, Column] = {}
    for number, name in enumerate(columns):
        copy = f"by_{name}" if _PLAIN_NAME.fullmatch(name) else f"by_{number}"
        while copy.lower() in taken:
            copy += "_"
        taken.add(copy.lower())
        copies[copy] = folder_value(rows[quoted(name)], rows.schema[name].dataType)
    return copies


def folder_value(value: Column, kind: DataType) -> Column:
    """A value whose plain ASCII text no other value of the column has: whole numbers and days as they are, because
    Spark sorts a task's rows by it, and others as such a text."""
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)
    from pyspark.sql.types import BooleanType, DateType, DoubleType, FloatType, IntegralType, StringType, TimestampType

    if isinstance(kind, IntegralType | DateType | BooleanType):
        return value
    null = F.lit("null")
    if isinstance(kind, TimestampType):
        return F.coalesce(F.unix_micros(value).cast("string"), null)  # a time of day comes twice when clocks go back
    if isinstance(kind, DoubleType | FloatType):
        return F.coalesce((value + F.lit(0.0).cast(kind)).cast("string"), null)  # zero has one sign
    if not isinstance(kind, StringType):
        return F.coalesce(value.cast("string"), null)
    if kind != StringType():
        value = F.collate(value, "UTF8_BINARY")  # under a collation any text may equal its lower case
    size = F.octet_length(value)
    plain = (F.length(value) == size) & (value == F.lower(value)) & (value != null) & ~value.contains("~")
    return (
        F.when(value.isNull(), null)
        .when((size > 0) & (size <= _LONGEST_VALUE) & plain, value)
        .when(size <= _LONGEST_VALUE, F.concat(F.lit("~"), F.hex(value)))
        .otherwise(F.concat(F.lit("~~"), F.sha2(value, 256)))
    )


def _obstacle(rows: DataFrame, task: WriteTask) -> str | None:
    """Why Spark's own writer would not write what the task's does; None if it would."""
    spark = cast(Any, rows.sparkSession)
    context = getattr(spark, "_sc", None)
    if context is None or not hasattr(rows, "_jdf"):
        return "a Connect client cannot set it up"
    if not can_reach(spark, task.storage):
        return f"this Spark cannot reach {task.storage.location}"
    if task.rolls_files:
        return "it does not end files at the table's targetFileSize"
    if "${" in task.schema_string:
        return "in a name with ${...} it puts the value of a setting"
    fault = next((fault for field in rows.schema.fields if (fault := _type_fault(field.dataType))), None)
    if fault is not None:
        return f"{fault} is written differently"
    if _nested_required(task.schema()):
        return "it does not check what is required inside of nested columns"
    if context._jsc.hadoopConfiguration().get("parquet.crypto.factory.class"):
        return "it is set up to encrypt"
    return None


def _type_fault(kind: DataType) -> str | None:
    """A type whose text, order or layout may differ between the two writers."""
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(kind, T.StructType):
        return next((fault for field in kind.fields if (fault := _type_fault(field.dataType))), None)
    if isinstance(kind, T.ArrayType):
        return _type_fault(kind.elementType)
    if isinstance(kind, T.MapType):
        return _type_fault(kind.keyType) or _type_fault(kind.valueType)
    plain = (T.BooleanType, T.BinaryType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType)
    more = (T.DoubleType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return None if isinstance(kind, (*plain, *more)) or kind == T.StringType() else kind.simpleString()


def _nested_required(schema: pa.Schema) -> bool:
    import pyarrow as pa

    def inside(kind: pa.DataType) -> bool:
        if pa.types.is_map(kind):
            return not kind.item_field.nullable or inside(kind.key_type) or inside(kind.item_type)
        parts = [kind.field(index) for index in range(kind.num_fields)]
        return any(not part.nullable or inside(part.type) for part in parts)

    return any(pa.types.is_nested(field.type) and (not field.nullable or inside(field.type)) for field in schema)


def _adds_by_job(spark: SparkSession, task: WriteTask, files: list[StagedFile], paid: Paid) -> list[Add]:
    """The same by Spark's tasks, a share of the files each."""
    import pyarrow as pa

    size = max(1, MANY_FILES // 5)
    shares = [files[start : start + size] for start in range(0, len(files), size)]

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                seen = Paid(task.schema())
                told = [encode_message(add) for add in adds_of(task, shares[number], seen.look)]
                found = [json.dumps(seen.found), *("{}" for _ in told[1:])]
                yield pa.RecordBatch.from_pydict({"message": told, "paid": found})

    rows = spark.range(0, len(shares), 1, len(shares)).mapInArrow(read, "message string, paid string").collect()
    for row in rows:
        paid.take(json.loads(row[1]))
    return [decode_message(row[0]) for row in rows]


def _tidy(task: WriteTask, folder: str, empty: list[Add]) -> None:
    """Remove the job's mark and its files without rows, which no commit will name: vacuum never looks at a mark."""
    for path in (f"{folder}/{MARKER}", *(add.path for add in empty)):
        with contextlib.suppress(OSError):
            task.storage.filesystem.delete_file(task.storage.path(path))
