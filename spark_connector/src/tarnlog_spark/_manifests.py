"""Scan manifests: the list of files of one read, in the form of Spark's own file sink log.

Spark's Parquet source takes a folder with `_spark_metadata/0` at its word: it reads exactly the files named there,
without listing anything. The form is internal to Spark, so a test holds each Spark that we support to it.

A manifest must outlive the DataFrame that was made from it (Spark Connect reads it again at every action), so it stays
until this process ends. What a killed process left is swept a week later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

PREFIX = "tarnlog-scans-"
STALE_SECONDS = 7 * 24 * 3600
_BLOCK = 128 * 1024 * 1024

_lock = threading.Lock()
_folders: dict[str, Path] = {}


def write_manifest(text: bytes, *, parent: str | None = None) -> str:
    """Write the list; returns the folder to hand to `spark.read.parquet`. Costs a small file."""
    folder = _folder(parent) / uuid.uuid4().hex
    (folder / "_spark_metadata").mkdir(parents=True)
    (folder / "_spark_metadata" / "0").write_bytes(text)
    return str(folder)


def manifest(uris: pa.ChunkedArray, sizes: pa.ChunkedArray, modified: pa.ChunkedArray) -> bytes:
    """The list's text, a line for each file. URIs are percent-encoded, so that nothing in them needs an escape; Spark
    splits files by their size."""
    parts = (
        '{"path":"',
        uris,
        '","size":',
        sizes.cast(pa.string()),
        ',"isDir":false,"modificationTime":',
        modified.cast(pa.string()),
        f',"blockReplication":1,"blockSize":{_BLOCK},"action":"add"}}',
    )
    lines = pc.binary_join_element_wise(*parts, "")
    return "\n".join(["v1", *lines.to_pylist()]).encode()


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
