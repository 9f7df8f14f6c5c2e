"""The planned files of a read as an index of our own in the JVM: Spark takes seconds to parse many lines of a manifest.

The classes are some Java (`planned_files.java`), compiled by the compiler with which Spark compiles its own generated
code, so that no jar is needed. They extend what is internal to Spark: a test holds each Spark that we support to it,
and where one is different, files are listed by a manifest as on Spark Connect.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from importlib.resources import files as resources
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WAIT_FROM = 1000
"""Files from which on a read waits until the classes are compiled, once for a JVM. Fewer are listed by a manifest until
then: that takes less time."""

_log = logging.getLogger(__name__)
_NAME = "TarnlogScans"
_SOURCE = resources(__package__).joinpath("planned_files.java").read_text("utf-8")
_lock = threading.Lock()
_compiled: weakref.WeakKeyDictionary[Any, Future[Any]] = weakref.WeakKeyDictionary()
"""By the context of a JVM, the object that makes scans; None where there can be none."""


def prepare(spark: SparkSession) -> None:
    """Have the classes compiled in the background, if they are not yet: meanwhile the service can be asked."""
    if getattr(spark, "_sc", None) is not None:
        _compiling(cast(Any, spark))


def indexed(spark: SparkSession, root: str, begin: str, listed: pa.Table, schema: StructType) -> DataFrame | None:
    """The rows of the files in `listed` (uri, size, modified), by Spark's own reader; None where it cannot be had.

    URIs are percent-encoded, and without what all of them begin with. Costs a copy of the columns in Python; in the
    JVM a few objects for each file.
    """
    own = cast(Any, spark)
    if getattr(own, "_sc", None) is None:
        return None
    compiling = _compiling(own)
    if not compiling.done() and listed.num_rows < WAIT_FROM:
        return None
    scans = compiling.result()
    if scans is None:
        return None

    def rows(file: str) -> Any:
        return scans.rows(own._jsparkSession, schema.json(), root, begin, file, listed.num_rows)

    try:
        return _made(spark, listed, rows)
    except Exception as error:  # whatever py4j stumbles over: the manifest is slower, and right
        _refused(error)
        with _lock:
            _compiled[own._sc] = _done(None)
        return None


def changed(spark: SparkSession, older: Any, gone: pa.Array, begin: str, listed: pa.Table) -> DataFrame | None:
    """The rows of an older scan's files without those at some places (ascending), and of those in `listed`.

    `older` is the relation of that scan. None where it is not one that `indexed` or this made, and where it cannot be
    had. Costs what changed, and in the JVM a copy of the older list.
    """
    own = cast(Any, spark)
    scans = _compiling(own).result()
    if scans is None:
        return None
    places = gone.cast(pa.int32()).to_numpy().tobytes()

    def rows(file: str) -> Any:
        return scans.changed(own._jsparkSession, older, places, begin, file, listed.num_rows)

    try:
        return _made(spark, listed, rows)
    except Exception as error:  # something is wrong with the older scan: one of all files is still to be had
        _log.warning("Spark does not go on from an older list of files; all are listed anew: %s", error)
        return None


def _made(spark: SparkSession, listed: pa.Table, make: Callable[[str], Any]) -> DataFrame | None:
    """What the JVM makes of a list, which it finds in a file."""
    from pyspark.sql import DataFrame

    with tempfile.NamedTemporaryFile("wb", prefix="tarnlog-files-", delete=False) as file:
        write_list(file, listed)
    try:
        rows = make(file.name)
        return None if rows is None else DataFrame(rows, spark)
    finally:
        os.unlink(file.name)


def write_list(file: IO[bytes], listed: pa.Table) -> None:
    """The columns as they lie in memory, one after the other: nothing is made for a single file."""
    uris = listed.column("uri").chunks
    for numbers in chain(listed.column("size").chunks, listed.column("modified").chunks, map(pc.binary_length, uris)):
        width = numbers.type.byte_width
        _write(file, numbers.buffers()[1], numbers.offset * width, (numbers.offset + len(numbers)) * width)
    for texts in uris:
        if len(texts):
            _, offsets, data = texts.buffers()
            places = memoryview(offsets).cast("i")
            _write(file, data, places[texts.offset], places[texts.offset + len(texts)])


def _write(file: IO[bytes], buffer: pa.Buffer | None, start: int, end: int) -> None:
    if buffer is not None and start < end:
        file.write(memoryview(buffer)[start:end])


def _compiling(spark: Any) -> Future[Any]:
    """What makes scans, at once where it was made before."""
    with _lock:
        found = _compiled.get(spark._sc)
        if found is None:
            found = _compiled[spark._sc] = Future()
            threading.Thread(target=_compile, args=(spark._jvm, found), daemon=True, name="tarnlog-compile").start()
        return found


def _compile(jvm: Any, found: Future[Any]) -> None:
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        found.set_result(compiler.getClassLoader().loadClass(_NAME).getConstructors()[0].newInstance(None))
    except Exception as error:
        _refused(error)
        found.set_result(None)


def _refused(error: Exception) -> None:
    _log.warning("Spark does not take an index of planned files; they are listed in a manifest: %s", error)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
