"""A folder as an object store, durable against a crash of the process, the system and the power.

A conditional create writes a temporary file in the same directory, syncs it, links it to its name (EEXIST: somebody
else won; a rename would overwrite, and a plain exclusive create shows half an object), then syncs the directory.
Whatever fails before the link certainly wrote nothing; what fails after it is OutcomeUnknown.
EXISTS is answered only after the directory was synced too: a caller that resolves an unknown outcome by trying again
learns from EXISTS that its object is there, and it must then be there for good.

Every operation is one hop to the store's own threads, but for looking at a file, reading a small one that is in memory
anyway, and listing a small folder. A delete is not synced: after a power cut an object may be back.
Clean-up of temporary files and the order of `list`: see local_walk. Symbolic links and new directories: see local_dirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from tarnlog_server.adapters import local_walk
from tarnlog_server.adapters.local_dirs import LocalDirs
from tarnlog_server.adapters.store_keys import check_key, check_prefix, check_range
from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectMissing,
    OutcomeUnknown,
    PutResult,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)

T = TypeVar("T")

_WHAT_TO_DO = {
    errno.ENOSPC: "the disk is full; free space on it",
    errno.EDQUOT: "the disk quota is used up; raise it or free space",
    errno.EACCES: "permission denied; the service's user needs read and write access",
    errno.EPERM: "not permitted; the file system may have no hard links, which conditional create needs",
    errno.EROFS: "the file system is read-only; remount it for writing",
    errno.EMLINK: "the file system has no room for another hard link to the file",
    errno.EOPNOTSUPP: "the file system has no hard links, which conditional create needs; use another one",
    errno.EEXIST: "a part of the path is an object, not a folder",
    errno.ENOTDIR: "a part of the path is an object, not a folder",
    errno.EISDIR: "there is a folder of that name",
    errno.ENAMETOOLONG: "a part of the name is longer than the file system allows",
    errno.ELOOP: "it is a symbolic link, and links below the root are not followed",
}
"""What helps when a system call refuses and did nothing. Any other failure to publish is an unknown outcome."""

AT_ONCE_BYTES = 128 * 1024
_READS_A_TURN = 8
"""Small reads without a wait, all of them together as quick as the way to a thread."""
_ATTEMPTS = 20
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """Objects as files below `root`, which is created when missing. Raises StoreRefused if that cannot be done."""

    def __init__(self, root: str | os.PathLike[str], *, threads: int = 8) -> None:
        self._dirs = LocalDirs(os.fspath(root))
        self._at_once = 0
        self._uri = Path(self._dirs.root).as_uri()
        self._threads = _started_threads(threads)

    @property
    def uri(self) -> str:
        return self._uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        check_key(key)
        return await self._run(lambda: self._write(key, data, self._link))

    async def put(self, key: str, data: bytes) -> None:
        check_key(key)
        await self._run(lambda: self._write(key, data, _replace))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        check_range(start, length)
        found = self._read(key, lambda fd, size: _read_at_once(fd, size, start, length))
        if found is not None:
            self._at_once += 1
            if self._at_once % _READS_A_TURN == 0:
                await asyncio.sleep(0)  # whoever reads a long log one by one lets the others go on
            return found
        return await self._run(lambda: self._read(key, lambda fd, size: _read_range(fd, size, start, length)))

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return self._read(key, lambda fd, _: _info(key, os.fstat(fd)))

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        check_prefix(prefix)
        if local_walk.is_small(self._dirs.root, prefix):
            return _page(self._dirs.root, prefix, start_after, limit)
        return await self._run(lambda: _page(self._dirs.root, prefix, start_after, limit))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._run(lambda: self._delete(key))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _write(self, key: str, data: bytes, publish: Callable[[int, str, str, str], T]) -> T:
        for _ in range(_ATTEMPTS):
            # ENOENT: the directory was removed under us, before anything was published. Make it again.
            with contextlib.suppress(FileNotFoundError):
                return self._write_once(key, data, publish)
        raise StoreRefused(f"cannot write {key!r}: something keeps removing its folder", key=key)

    def _write_once(self, key: str, data: bytes, publish: Callable[[int, str, str, str], T]) -> T:
        name = os.path.basename(key)
        temporary = f"{local_walk.TEMPORARY}{secrets.token_hex(8)}"
        published = False
        try:
            with self._dirs.for_writing(key) as folder:
                try:
                    _write_file(temporary, data, folder)
                    result = publish(folder, temporary, name, key)
                    published = True
                finally:
                    with contextlib.suppress(OSError):  # what stays is swept by list
                        os.unlink(temporary, dir_fd=folder)
                os.fsync(folder)
                return result
        except FileNotFoundError:
            raise
        except OSError as error:
            if published:
                raise OutcomeUnknown(
                    f"{key!r} was written but may not be durable: {error.strerror}", key=key
                ) from error
            raise _refused("write", key, error) from error

    def _link(self, folder: int, temporary: str, name: str, key: str) -> PutResult:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            # A network file system may have linked, lost the reply and tried again: the link count knows.
            if os.stat(temporary, dir_fd=folder).st_nlink == 2:
                return PutResult.CREATED
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise StoreRefused(f"cannot create {key!r}: a folder or a link has that name", key=key) from None
            return PutResult.EXISTS
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _failed_publish(key, error) from error
        return PutResult.CREATED

    def _read(self, key: str, use: Callable[[int, int], T]) -> T:
        try:
            fd = self._dirs.open_file(key)
            try:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "not a regular file")
                return use(fd, found.st_size)
            finally:
                os.close(fd)
        except _MISSING:
            raise ObjectMissing(f"there is no object {key!r} in {self.uri}", key=key) from None
        except OSError as error:
            raise _failed_read("read", key, error) from error

    def _delete(self, key: str) -> None:
        try:
            with self._dirs.for_reading(key) as folder:
                os.unlink(os.path.basename(key), dir_fd=folder)
        except _MISSING:
            return
        except OSError as error:
            raise _failed_read("delete", key, error) from error
        self._dirs.prune(key)


def _started_threads(count: int) -> ThreadPoolExecutor:
    """Threads that run already: one that starts while work goes on holds up its first call for milliseconds."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="local-store")
    go = threading.Event()
    # Each of them waits, so that the pool takes another thread for the next.
    waiting = [pool.submit(go.wait) for _ in range(count)]
    go.set()
    wait(waiting)
    return pool


def _page(root: str, prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
    try:
        return local_walk.page(root, prefix, start_after, limit)
    except OSError as error:
        raise _failed_read("list", prefix, error) from error


def _replace(folder: int, temporary: str, name: str, key: str) -> None:
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failed_publish(key, error) from error


def _write_file(name: str, data: bytes, folder: int) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _read_at_once(fd: int, size: int, start: int, length: int | None) -> bytes | None:
    """The bytes if they are few and in memory already, else None. Never waits for the disk, so it needs no thread,
    whose two changes cost twenty times the reading."""
    wanted = max(0, size - start) if length is None else max(0, min(length, size - start))
    if wanted == 0:
        return b""
    if wanted > AT_ONCE_BYTES or not hasattr(os, "RWF_NOWAIT"):
        return None
    found = bytearray(wanted)
    try:
        return bytes(found) if os.preadv(fd, [found], start, os.RWF_NOWAIT) == wanted else None
    except OSError:  # not in memory, or a file system that cannot tell
        return None


def _read_range(fd: int, size: int, start: int, length: int | None) -> bytes:
    wanted = max(0, size - start) if length is None else max(0, min(length, size - start))
    pieces: list[bytes] = []
    while wanted:
        piece = os.pread(fd, wanted, start)
        if not piece:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        pieces.append(piece)
        start += len(piece)
        wanted -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key=key, size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000)


def _refused(act: str, key: str, error: OSError) -> StoreRefused:
    reason = _WHAT_TO_DO.get(error.errno or 0, error.strerror or str(error))
    return StoreRefused(f"cannot {act} {key!r}: {reason}", key=key)


def _failed_publish(key: str, error: OSError) -> StoreError:
    if error.errno in _WHAT_TO_DO:
        return _refused("write", key, error)
    return OutcomeUnknown(f"it is not known whether {key!r} was written: {error.strerror}", key=key)


def _failed_read(act: str, key: str, error: OSError) -> StoreError:
    if error.errno in _WHAT_TO_DO:
        return _refused(act, key, error)
    return StoreUnavailable(f"cannot {act} {key!r} now: {error.strerror}", key=key)
