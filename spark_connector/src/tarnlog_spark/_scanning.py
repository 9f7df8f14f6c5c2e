"""Planned files as a DataFrame: exactly these files, by Spark's own Parquet reader where it can reach them.

Where it cannot (S3 without jars), or where a file does not hold its partition columns, tasks read through pyarrow: the
same rows, more slowly. `spark.tarnlog.scan` chooses (auto, native, arrow); `spark.tarnlog.scanDirectory` is where
manifests go when Spark's driver runs on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from tarnlog import InvalidRequest
from tarnlog.protocol.schema import parse_schema
from tarnlog_spark._arrow_read import read_batches
from tarnlog_spark._arrow_types import arrow_schema
from tarnlog_spark._manifests import manifest, write_manifest
from tarnlog_spark._options import Splits
from tarnlog_spark._planned_index import changed, indexed
from tarnlog_spark._scan_lists import ScanList
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCAN_CONF = "spark.tarnlog.scan"
FOLDER_CONF = "spark.tarnlog.scanDirectory"
_IGNORES_MANIFESTS = "spark.sql.streaming.fileStreamSink.ignoreMetadata"

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
"""Spark's reader by its class: the one that knows the place of a row, also without parquet in useV1SourceList."""
READ_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Options that override the session's settings, as `TarnlogScans.OPTIONS`. Tables have the proleptic Gregorian
calendar. A file that is missing or damaged is an error: a read would lose its rows, and a rewrite would lose them for
good."""

# Arrow's expressions take time by the length of the text alone, whatever is in it.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._=~-]|%[0-9A-Fa-f]{2})*"
_PLAIN_PATH = rf"\A{_NAME}(?:/{_NAME})*\z"
FILE = "_tarnlog_file"
ROW = "_tarnlog_row"
"""The columns that `scan_rows` adds: which file a row is in, as `Storage.path` names it, and at which place."""


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name for an added column, with underscores after it where a column has it already; case does not count."""
    known = {other.lower() for other in taken}
    while name.lower() in known:
        name += "_"
    return name


def scan(
    spark: SparkSession,
    storage: Storage,
    files: ScanList,
    schema: StructType,
    partition_columns: Sequence[str] = (),
) -> DataFrame:
    """The rows of the files, with the columns of `schema`; a column that a file lacks is null."""
    if _is_native(spark, storage, files, schema, partition_columns):
        return _native(spark, storage, files, schema)
    return _by_arrow(spark, storage, files, schema)


def scan_changed(
    spark: SparkSession,
    storage: Storage,
    older: Any,
    gone: pa.Array,
    came: ScanList,
    schema: StructType,
    partition_columns: Sequence[str] = (),
) -> DataFrame | None:
    """The rows of the files of an older scan, without those at some places, and of those that came since.

    `older` is what `scanned` gave. None where all files must be scanned anew, by `scan`.
    """
    if not _is_native(spark, storage, came, schema, partition_columns):
        return None
    begin, listed = _listed(storage, spark_scheme(storage), came)
    return changed(spark, older, gone, begin, listed)


def scan_rows(
    spark: SparkSession,
    storage: Storage,
    files: ScanList,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    *,
    names: tuple[str, str] = (FILE, ROW),
) -> DataFrame:
    """The same with two columns more, FILE and ROW, which together tell rows apart. `names` replaces these names, where
    the schema has such columns."""
    if not _is_native(spark, storage, files, schema, partition_columns):
        return _by_arrow(spark, storage, files, schema, names)
    rows = _native(spark, storage, files, schema)
    found = rows.metadataColumn("_metadata")  # by its logical name: a column of the table may be called so too
    return rows.select("*", found["file_path"].alias(names[0]), found["row_index"].alias(names[1]))


def scanned(rows: DataFrame) -> Any | None:
    """What `scan_again` takes to scan the files of `rows` once more; None where Spark does not hold such a thing."""
    plan = cast(Any, rows)._jdf.queryExecution().analyzed() if hasattr(rows, "_jdf") else None
    return plan.relation() if plan is not None and plan.nodeName().startswith("LogicalRelation") else None


def scan_again(spark: SparkSession, relation: Any) -> DataFrame:
    """A new DataFrame of the same files, whose list Spark has made already. Its columns are its own: it can be joined
    with the first one."""
    from pyspark.sql import DataFrame

    return DataFrame(cast(Any, spark)._jsparkSession.baseRelationToDataFrame(relation), spark)


def scan_conf(spark: SparkSession) -> str:
    """How files are to be scanned, as the session says now."""
    return _conf(spark, SCAN_CONF, "auto").lower()


def file_place(text: str) -> str:
    """The value of FILE as `Storage.path` spells it: Spark writes it as an encoded URI."""
    scheme, found, rest = text.partition("://")
    if found and scheme != "file":
        return unquote(rest)
    return "/" + unquote(text.removeprefix("file:")).lstrip("/") if text.startswith("file:") else text


def _native(spark: SparkSession, storage: Storage, files: ScanList, schema: StructType) -> DataFrame:
    reader = spark.read.schema(schema).format(_PARQUET).options(**READ_OPTIONS)
    scheme = spark_scheme(storage)
    if _conf(spark, _IGNORES_MANIFESTS, "false").lower() == "true":
        # Then Spark would list the manifest's folder and find nothing: names one by one are slow, and right.
        if not files.files.num_rows:
            return spark.createDataFrame([], schema)
        return reader.load([scheme + storage.path(path) for path in files.files.column("path").to_pylist()])
    begin, listed = _listed(storage, scheme, files)
    rows = indexed(spark, scheme + quote(storage.path("x")[:-2]), begin, listed, schema)
    if rows is not None:
        return rows
    rest, sizes, times = listed.columns
    uris = pc.binary_join_element_wise(begin, rest, "")
    folder = write_manifest(manifest(uris, sizes, times), parent=_conf(spark, FOLDER_CONF, "") or None)
    return reader.option("recursiveFileLookup", "true").load(f"file://{folder}")


def _listed(storage: Storage, scheme: str, files: ScanList) -> tuple[str, pa.Table]:
    """What all URIs begin with; and of each file how it goes on, its size and its time."""
    begin, rest = _uris(storage, scheme, files)
    sizes, times = (files.files.column(name) for name in ("size", "modificationTime"))
    return begin, pa.table({"uri": rest, "size": sizes, "modified": times})


def _uris(storage: Storage, scheme: str, files: ScanList) -> tuple[str, pa.ChunkedArray]:
    """What all URIs begin with, and how each goes on.

    Paths of the log are encoded URI references already; only those that are written oddly are taken apart.
    """
    paths = files.files.column("path")
    root = scheme + quote(storage.path("x")[:-1])
    plain = pc.match_substring_regex(paths, _PLAIN_PATH)
    if pc.all(plain).as_py() is not False:
        return root, paths
    uris = pc.binary_join_element_wise(root, paths, "").combine_chunks()
    odd = [scheme + quote(storage.path(path)) for path in paths.filter(pc.invert(plain)).to_pylist()]
    mended = pc.replace_with_mask(uris, pc.invert(plain).combine_chunks(), pa.array(odd, pa.string()))
    return "", pa.chunked_array([mended])


def _by_arrow(
    spark: SparkSession, storage: Storage, files: ScanList, schema: StructType, places: tuple[str, str] | None = None
) -> DataFrame:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    shares = files.shares(Splits())
    wanted = arrow_schema(parse_schema(schema.jsonValue()))
    shown = StructType(list(schema.fields))
    if places is not None:
        shown = StructType([*schema.fields, StructField(places[0], StringType()), StructField(places[1], LongType())])

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for path, values in shares.of(number):
                    yield from _batches(storage, path, values, wanted, places)

    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, shown)


def _batches(
    storage: Storage,
    path: str,
    values: Mapping[str, str | None],
    wanted: pa.Schema,
    places: tuple[str, str] | None,
) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in read_batches(storage, path, wanted, absent=values):
        if places is not None:
            place = pa.repeat(storage.path(path), batch.num_rows)
            rows = pa.array(range(first, first + batch.num_rows), pa.int64())
            first += batch.num_rows
            names = [*wanted.names, *places]
            yield pa.RecordBatch.from_arrays([*batch.columns, place, rows], names=names)
        else:
            yield batch


def _is_native(
    spark: SparkSession, storage: Storage, files: ScanList, schema: StructType, partition_columns: Sequence[str]
) -> bool:
    way = scan_conf(spark)
    if way not in ("auto", "native", "arrow"):
        raise InvalidRequest(f"{SCAN_CONF} is auto, native or arrow, not {way!r}.", slug="option-invalid")
    if "${" in schema.json():
        # Hadoop puts the value of a setting in its place: Spark's reader would find no such column, and give nulls.
        if way == "native":
            raise InvalidRequest(
                f"Spark's own reader does not find columns with ${{...}} in their names. Set {SCAN_CONF} to auto.",
                slug="option-invalid",
            )
        return False
    if way != "auto":
        return way == "native"
    if partition_columns and not files.stored:
        return False
    return can_reach(spark, storage)


def can_reach(spark: SparkSession, storage: Storage) -> bool:
    """Whether Spark itself reads and writes this storage."""
    return _scheme(storage) == "file" or (_scheme(storage) in ("s3", "s3a") and _has_s3a(spark))


def _has_s3a(spark: SparkSession) -> bool:
    """Whether Spark reads S3 itself. Connect cannot be asked; there the setting decides."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return False
    try:
        context._jvm.java.lang.Class.forName(
            "org.apache.hadoop.fs.s3a.S3AFileSystem", False, context._jvm.Thread.currentThread().getContextClassLoader()
        )
    except Exception:
        return False
    return True


def _scheme(storage: Storage) -> str:
    return storage.location.partition("://")[0] if "://" in storage.location else "file"


def spark_scheme(storage: Storage) -> str:
    """How Spark's paths to this storage begin."""
    scheme = _scheme(storage)
    return "file://" if scheme == "file" else "s3a://" if scheme == "s3" else f"{scheme}://"


def _conf(spark: SparkSession, key: str, default: str) -> str:
    return str(spark.conf.get(key, default))
