"""Listing a folder as if it were a flat, sorted namespace.

Order: a directory sorts as `name/`, because that is how its keys go on. `a-b` and `a.b` come before everything in
`a/`, exactly as the full keys compare.

Cost: every page reads whole each directory that can hold a match (one scandir). Those outside the prefix or wholly
before `start_after` are not opened, names are filtered before they are sorted, only objects of the page are stat'ed.
Temporary files that a killed writer left are met on the way and removed when older than an hour, at no extra cost.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator

from tarnlog_server.adapters.local_dirs import opened_path
from tarnlog_server.adapters.store_keys import RESERVED, is_key_part
from tarnlog_server.ports.object_store import ObjectInfo

TEMPORARY = RESERVED + "tmp-"
STALE_SECONDS = 3600.0
SMALL_BYTES = 4096
"""One block of a directory: some dozens of entries."""


def page(root: str, prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
    """Up to `limit` objects below `root`, in code-point order of their keys."""
    found: list[ObjectInfo] = []
    folder = prefix[: prefix.rfind("/") + 1]
    if limit <= 0 or any(part.startswith(RESERVED) for part in folder.split("/")):
        return found
    if folder and not _is_there(os.path.join(root, folder[:-1])):
        return found
    for entry, key in _walk(root, folder, prefix, start_after or ""):
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # deleted since the directory was read
        found.append(ObjectInfo(key=key, size=stat.st_size, modified_ms=stat.st_mtime_ns // 1_000_000))
        if len(found) == limit:
            break
    return found


def is_small(root: str, prefix: str) -> bool:
    """Whether a page of `prefix` needs no more than one small directory, if any: as quick as the way to a thread.

    A directory without another inside has two links; where the file system does not count them, none is small.
    """
    try:
        found = os.stat(os.path.join(root, prefix[: prefix.rfind("/") + 1]))
    except OSError:
        return True  # a page finds the same, and says so in its way
    return found.st_nlink == 2 and found.st_size <= SMALL_BYTES


def _is_there(folder: str) -> bool:
    """Whether there is such a directory. Reached through a symbolic link, its objects do not exist for this store."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return opened_path(fd) == folder or os.path.realpath(folder) == folder
    finally:
        os.close(fd)


def _walk(root: str, folder: str, prefix: str, start_after: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    """The regular files below `folder` (`""` or `a/b/`), sorted by key. Depth is bounded by the length of a key."""
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            wanted = sorted(
                (
                    (key, entry)
                    for entry in _near(entries, folder, prefix, start_after)
                    if (key := _key_of(folder, entry, start_after)) is not None and _may_match(key, prefix, start_after)
                ),
                key=lambda pair: pair[0],
            )
    except (FileNotFoundError, NotADirectoryError):
        return
    for key, entry in wanted:
        if key.endswith("/"):
            yield from _walk(root, key, prefix, start_after)
        else:
            yield entry, key


def _near(
    entries: Iterable[os.DirEntry[str]], folder: str, prefix: str, start_after: str
) -> Iterator[os.DirEntry[str]]:
    """Leaves out, by name alone, most of what cannot match: a log may have any number of other entries."""
    starts = prefix[len(folder) :].split("/", 1)[0]
    after = start_after[len(folder) :] if start_after.startswith(folder) else ""
    for entry in entries:
        name = entry.name
        if (name.startswith(starts) and (name >= after or after.startswith(name))) or name.startswith(TEMPORARY):
            yield entry


def _key_of(folder: str, entry: os.DirEntry[str], start_after: str) -> str | None:
    """The key of a file, the key prefix of a directory (with its slash), or None for what is not an object."""
    if entry.name.startswith(TEMPORARY):
        _sweep(entry)
        return None
    path = folder + entry.name
    if path < start_after and not start_after.startswith(path):
        return None  # it and all below it come before
    if not is_key_part(entry.name) or (not folder and entry.name == "lost+found"):
        return None  # such names cannot be asked for; lost+found belongs to the file system and is not readable
    if entry.is_dir(follow_symlinks=False):
        return f"{path}/"
    return path if entry.is_file(follow_symlinks=False) else None


def _may_match(key: str, prefix: str, start_after: str) -> bool:
    if not key.endswith("/"):
        return key > start_after and key.startswith(prefix)
    # Some key below this directory can match: the prefix reaches into it, and start_after is not past all of it.
    return (key.startswith(prefix) or prefix.startswith(key)) and start_after[: len(key)] <= key


def _sweep(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
            os.unlink(entry.path)
