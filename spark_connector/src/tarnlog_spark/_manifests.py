"""Scan manifests: the list of files of one read, in the form of Spark's own file sink log.

Spark's Parquet source takes a folder with `_spark_metadata/0` at its word: it reads exactly the files named there,
without listing anything. The form is internal to Spark, so a test holds each Spark that we support to it.

A manifest must outlive the DataFrame that was made from it (Spark Connect reads it again at every action), so it stays
until this process ends. What a killed process left is swept a week later.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

PREFIX = "tarnlog-scans-"
STALE_SECONDS = 7 * 24 * 3600
_BLOCK = 128 * 1024 * 1024

_lock = threading.Lock()
_folders: dict[str, Path] = {}


class ScanFile(Struct, frozen=True):
    """A file to scan: its place as a URI that is not encoded, and its size, which Spark splits by."""

    uri: str
    size: int
    modified: int = 0


def write_manifest(files: Iterable[ScanFile], *, parent: str | None = None) -> str:
    """Write the list; returns the folder to hand to `spark.read.parquet`. Costs a small file and a line for each."""
    folder = _folder(parent) / uuid.uuid4().hex
    (folder / "_spark_metadata").mkdir(parents=True)
    lines = ["v1", *(_line(file) for file in files)]
    (folder / "_spark_metadata" / "0").write_text("\n".join(lines), encoding="utf-8")
    return str(folder)


def _line(file: ScanFile) -> str:
    scheme, found, rest = file.uri.partition("://")
    entry = {
        "path": f"{scheme}://{quote(rest)}" if found else "file://" + quote(file.uri),
        "size": file.size,
        "isDir": False,
        "modificationTime": file.modified,
        "blockReplication": 1,
        "blockSize": _BLOCK,
        "action": "add",
    }
    return json.dumps(entry, separators=(",", ":"))


def _folder(parent: str | None) -> Path:
    """This process's folder below `parent`, by default the system's place for temporary files."""
    place = parent or tempfile.gettempdir()
    with _lock:
        # A forked child must not remove what its parent still reads.
        key = f"{os.getpid()} {place}"
        if key not in _folders:
            os.makedirs(place, exist_ok=True)
            _sweep(Path(place))
            _folders[key] = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            atexit.register(_remove, _folders[key], os.getpid())
        return _folders[key]


def _sweep(place: Path) -> None:
    oldest = time.time() - STALE_SECONDS
    for folder in place.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
