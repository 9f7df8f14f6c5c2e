"""The directories of a local store: made durably, and never a way out of the root.

Invariants:
- A directory is used for a write only after its entry, and those of its parents up to the root, were synced by this
  process. It does not matter who made them: another process may have created one and not synced it yet.
- No component below the root is a symbolic link, so a key names exactly one path, inside the root.
Both are checked when a directory is first used and remembered by device and inode. A directory that was removed, made
anew or swapped for a link has another inode and is checked again; a remembered one costs an open and a stat. Where the
system tells the path of an open directory, the first look costs one more call, and looks at the very directory that
is used; elsewhere it asks for every part of the path.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tarnlog_server.ports.object_store import KeyRefused, StoreRefused

_REMEMBERED = 100_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class LocalDirs:
    """Opens the directories that hold objects. Used from several threads: each dict operation is atomic by itself."""

    def __init__(self, root: str) -> None:
        """Make `root` (and what is missing above it) and resolve it; links in and above the root itself are fine."""
        path = os.path.abspath(root)
        made: list[str] = []
        while not os.path.isdir(path) and path != os.path.dirname(path):
            made.append(path)
            path = os.path.dirname(path)
        try:
            os.makedirs(root, exist_ok=True)
            for child in reversed(made):
                sync_path(os.path.dirname(child))
        except OSError as error:
            raise StoreRefused(f"cannot use the folder {root!r} as a store: {error.strerror}", key="") from error
        self.root = os.path.realpath(root)
        self._below = os.path.join(self.root, "")
        self._durable: dict[str, tuple[int, int]] = {}
        self._inside: dict[str, tuple[int, int]] = {}

    def path(self, key: str) -> str:
        """Where the object of a checked key lies."""
        return self._below + key

    def open_file(self, key: str) -> int:
        """A descriptor of what lies at `key`, for reading. Raises OSError, KeyRefused.

        Where the system tells that it opened exactly that path, no link was on the way, and no folder is looked at.
        What is missing is missing, wherever links lead.
        """
        path = self.path(key)
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            raise
        except OSError:
            pass  # the other way tells why
        else:
            if opened_path(fd) == path:
                return fd
            os.close(fd)
        with self.for_reading(key) as folder:
            return os.open(os.path.basename(key), _READ, dir_fd=folder)

    @contextlib.contextmanager
    def for_reading(self, key: str) -> Iterator[int]:
        """A descriptor of the directory that holds `key`. Raises FileNotFoundError and NotADirectoryError."""
        folder = os.path.dirname(self.path(key))
        fd = self._open(folder, key)
        try:
            identity = _identity(fd)
            if self._inside.get(folder) != identity:
                if opened_path(fd) != folder:
                    self._refuse_links(folder, key)
                _remember(self._inside, folder, identity)
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def for_writing(self, key: str) -> Iterator[int]:
        """A descriptor of the directory that holds `key`, made and synced when it is new to this process."""
        folder = os.path.dirname(self.path(key))
        try:
            fd = self._open(folder, key)
        except FileNotFoundError:
            self._refuse_links(folder, key)
            os.makedirs(folder, exist_ok=True)
            fd = self._open(folder, key)
        try:
            identity = _identity(fd)
            if self._durable.get(folder) != identity:
                self._refuse_links(folder, key)
                self._sync_parents(folder)
                _remember(self._durable, folder, identity)
            yield fd
        finally:
            os.close(fd)

    def prune(self, key: str) -> None:
        """Remove the directories that the deletion of `key` left empty. Costs one failing rmdir when there are none."""
        folder = os.path.dirname(self.path(key))
        with contextlib.suppress(OSError):
            while folder != self.root:
                os.rmdir(folder)
                self._durable.pop(folder, None)
                self._inside.pop(folder, None)
                folder = os.path.dirname(folder)

    def _open(self, folder: str, key: str) -> int:
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError:
            self._refuse_links(folder, key)
            raise

    def _refuse_links(self, folder: str, key: str) -> None:
        if os.path.realpath(folder) != folder:
            raise KeyRefused(
                f"{key!r} leads through a symbolic link below {self.root}; links there are not followed. "
                "Move the data into the folder or mount it there",
                key=key,
            )

    def _sync_parents(self, folder: str) -> None:
        while folder != self.root:
            folder = os.path.dirname(folder)
            sync_path(folder)


def opened_path(fd: int) -> str | None:
    """Where an open file or directory lies, without any link on the way; None where the system does not tell."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None


def sync_path(folder: str) -> None:
    """Make the entries of a directory durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _remember(known: dict[str, tuple[int, int]], folder: str, identity: tuple[int, int]) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[folder] = identity
