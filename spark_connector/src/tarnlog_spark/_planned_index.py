"""Very many planned files as an index of our own in the JVM: Spark takes seconds to parse as many lines of a manifest.

The class is a few lines of Java, compiled by the compiler with which Spark compiles its own generated code, so that no
jar is needed. It implements `FileIndex`, which is internal to Spark: a test holds each Spark that we support to it, and
where one is different, files are listed by a manifest as on Spark Connect.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

INDEX_FROM = 10_000
"""Files from which on it is worth it: compiling the class takes as long as a manifest of so many."""

_log = logging.getLogger(__name__)
_NAME = "TarnlogPlannedFiles"
_SOURCE = """
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;

public final class TarnlogPlannedFiles implements FileIndex {
    private static final long BLOCK = 134217728L;
    private final Path root;
    private final FileStatusWithMetadata[] files;
    private final long bytes;

    /** Lines of size, time and encoded URI, each with a blank between and a newline after; so many. */
    public TarnlogPlannedFiles(String root, String list, int count) throws Exception {
        this.root = new Path(new URI(root));
        this.files = new FileStatusWithMetadata[count];
        scala.collection.immutable.Map none = (scala.collection.immutable.Map) Map$.MODULE$.empty();
        byte[] text = Files.readAllBytes(Paths.get(list));
        long total = 0;
        int at = 0;
        for (int i = 0; i < count; i++) {
            int first = next(text, at, ' ');
            int second = next(text, first + 1, ' ');
            int end = next(text, second + 1, '\\n');
            long size = Long.parseLong(new String(text, at, first - at, StandardCharsets.US_ASCII));
            long time = Long.parseLong(new String(text, first + 1, second - first - 1, StandardCharsets.US_ASCII));
            URI uri = new URI(new String(text, second + 1, end - second - 1, StandardCharsets.US_ASCII));
            files[i] = new FileStatusWithMetadata(new FileStatus(size, false, 1, BLOCK, time, new Path(uri)), none);
            total += size;
            at = end + 1;
        }
        if (at != text.length) throw new IllegalArgumentException("the list has other than " + count + " lines");
        this.bytes = total;
    }

    private static int next(byte[] text, int at, char wanted) {
        while (text[at] != wanted) at++;
        return at;
    }

    private static Seq seq(Object[] items) { return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(items); }

    public Seq rootPaths() { return seq(new Path[] {root}); }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        return seq(new PartitionDirectory[] {new PartitionDirectory(InternalRow.empty(), seq(files))});
    }

    public String[] inputFiles() {
        String[] found = new String[files.length];
        for (int i = 0; i < files.length; i++) found[i] = files[i].getPath().toUri().toString();
        return found;
    }

    /** A version does not change. */
    public void refresh() {}

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return new StructType(); }
}
"""
_lock = threading.Lock()
_makers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By the context of a JVM, the constructor; None where it could not be made."""


def indexed(spark: SparkSession, root: str, listed: pa.Table, schema: StructType) -> DataFrame | None:
    """The rows of the files in `listed` (uri, size, modified), by Spark's own reader; None where it cannot be had.

    URIs are percent-encoded. Costs a line for each file, in Python and in the JVM.
    """
    from pyspark.sql import DataFrame

    own = cast(Any, spark)
    if getattr(own, "_sc", None) is None:
        return None
    try:
        maker = _maker(own)
        if maker is None:
            return None
        jvm, session = own._jvm, own._jsparkSession
        files = jvm.org.apache.spark.sql.execution.datasources
        relation = files.HadoopFsRelation(
            _index(own, maker, root, listed),
            jvm.org.apache.spark.sql.types.StructType(),
            jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()),
            jvm.scala.Option.empty(),
            files.parquet.ParquetFileFormat(),
            jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()),
            session,
        )
        return DataFrame(session.baseRelationToDataFrame(relation), spark)
    except Exception as error:  # whatever py4j stumbles over: the manifest is slower, and right
        _log.warning("Spark does not take an index of planned files; they are listed in a manifest: %s", error)
        _makers[own._sc] = None
        return None


def _index(spark: Any, maker: Any, root: str, listed: pa.Table) -> Any:
    sizes, times = (listed.column(name).cast(pa.string()) for name in ("size", "modified"))
    lines = pc.binary_join_element_wise(sizes, times, listed.column("uri"), " ")
    with tempfile.NamedTemporaryFile("wb", prefix="tarnlog-files-", delete=False) as text:
        text.write(("\n".join(lines.to_pylist()) + "\n").encode() if len(lines) else b"")
    try:
        values = spark._sc._gateway.new_array(spark._jvm.Object, 3)
        values[0], values[1], values[2] = root, text.name, len(lines)
        return maker.newInstance(values)
    finally:
        os.unlink(text.name)


def _maker(spark: Any) -> Any:
    """The class's constructor, compiled once for a JVM."""
    with _lock:
        if spark._sc not in _makers:
            _makers[spark._sc] = None
            compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(spark._jvm.Thread.currentThread().getContextClassLoader())
            compiler.cook(_SOURCE)
            _makers[spark._sc] = compiler.getClassLoader().loadClass(_NAME).getConstructors()[0]
        return _makers[spark._sc]
