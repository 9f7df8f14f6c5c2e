"""The local disk as Spark's writer sees it, without a process for every file.

Hadoop sets the mode of each file and folder that it makes by starting `chmod`, unless its native library is there,
which PySpark does not come with: two processes for every file of a partitioned write. A class of a few lines does it by
a system call. Like the index of planned files it is compiled by Spark's own compiler, and it is put beside the class
that it extends, where tasks find it by its name. That works where tasks run in the driver's process; elsewhere, and
where anything fails, Hadoop's own class serves.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

HADOOPS = "org.apache.hadoop.fs.RawLocalFileSystem"
OURS = "org.apache.hadoop.fs.TarnlogLocalFileSystem"

_log = logging.getLogger(__name__)
_SOURCE = """
package org.apache.hadoop.fs;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.permission.FsPermission;

public class TarnlogLocalFileSystem extends RawLocalFileSystem {
    private static final String MODE = "unix:mode";

    /** As chmod does it: a folder whose files get its group stays one. */
    public void setPermission(Path path, FsPermission wanted) throws IOException {
        java.nio.file.Path place = pathToFile(path).toPath();
        try {
            int now = ((Integer) Files.getAttribute(place, MODE)).intValue();
            int kept = (now & 0170000) == 0040000 ? now & 06000 : 0;
            int mode = (wanted.toShort() & 01777) | kept;
            if ((now & 07777) != mode) Files.setAttribute(place, MODE, Integer.valueOf(mode));
        } catch (UnsupportedOperationException notUnix) {
            super.setPermission(path, wanted);
        } catch (IllegalArgumentException notUnix) {
            super.setPermission(path, wanted);
        }
    }
}
"""
_DEFINER = """
import java.lang.invoke.MethodHandles;

public final class TarnlogDefiner {
    public TarnlogDefiner(Class beside, byte[] code) throws Exception {
        MethodHandles.privateLookupIn(beside, MethodHandles.lookup()).defineClass(code);
    }
}
"""
_lock = threading.Lock()
_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""By the context of a JVM, the class to use."""


def local_options(spark: Any) -> dict[str, str]:
    """The options of a write to the local disk. Without them each file has a hidden checksum beside it, which vacuum
    would never remove."""
    return {"fs.file.impl": local_file_system(spark), "fs.file.impl.disable.cache": "true"}


def local_file_system(spark: Any) -> str:
    """The name of the class to write local files with. Compiles once for a JVM, in some tenths of a second."""
    context = spark._sc
    with _lock:
        if context not in _names:
            _names[context] = HADOOPS
            try:
                if context._jsc.sc().isLocal():
                    _names[context] = _ours(context)
            except Exception as error:  # whatever py4j stumbles over: Hadoop's own is slower, and right
                _log.warning("Spark does not take a file system of ours, and starts a process for each file: %s", error)
        return _names[context]


def _ours(context: Any) -> str:
    jvm = context._jvm
    beside = jvm.java.lang.Class.forName(HADOOPS)
    try:
        jvm.java.lang.Class.forName(OURS, False, beside.getClassLoader())
    except Exception:
        code = _compiled(jvm, beside, _SOURCE).getBytecodes().get(OURS)
        values = context._gateway.new_array(jvm.Object, 2)
        values[0], values[1] = beside, code
        definer = _compiled(jvm, beside, _DEFINER).getClassLoader().loadClass("TarnlogDefiner")
        definer.getConstructors()[0].newInstance(values)
    return OURS


def _compiled(jvm: Any, beside: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(beside.getClassLoader())
    compiler.cook(source)
    return compiler
