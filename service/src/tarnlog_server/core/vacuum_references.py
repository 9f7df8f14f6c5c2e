"""The files that a table's log leads to, in little memory: 8 bytes a file, whatever its name.

Only hashes are kept. Two names with one hash keep a file that might go; never the other way round.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from posixpath import normpath

from tarnlog.protocol.actions import Add, Remove
from tarnlog.protocol.paths import path_key

SEAL_AT = 500_000
"""A set costs some 70 bytes an entry, so it is not let grow beyond this."""


class HashedNames:
    """A growing set of names. Looking costs a hash, and a search in each sealed run."""

    def __init__(self, seal_at: int = SEAL_AT) -> None:
        self._seal_at = seal_at
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def add(self, name: str) -> None:
        self._recent.add(_hash(name))
        if len(self._recent) >= self._seal_at:
            self._runs.append(array("Q", sorted(self._recent)))
            self._recent = set()

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        value = _hash(name)
        if value in self._recent:
            return True
        for run in self._runs:
            index = bisect_left(run, value)
            if index < len(run) and run[index] == value:
                return True
        return False

    def __bool__(self) -> bool:
        return bool(self._recent or self._runs)


class References:
    """Every file that a version from the floor on may need: live there, added since, or removed not long ago."""

    def __init__(self, seal_at: int = SEAL_AT) -> None:
        self._keys = HashedNames(seal_at)
        self._elsewhere = HashedNames(seal_at)
        """Last components of absolute paths: one place has many addresses, so such a file is known by its name."""

    def add(self, path: str) -> None:
        """A path as the log has it."""
        key = path_key(path)
        self._keys.add(key)
        if key.startswith("/") or ":/" in key:
            self._elsewhere.add(file_name(key))
        elif ".." in key:
            # A name like any other in an object store, but other software may have gone that way.
            self._keys.add(normpath(key))

    def add_files(self, actions: Iterable[object]) -> None:
        """The files of the adds among these, also those that a version removed again later."""
        for action in actions:
            if isinstance(action, Add):
                self.add(action.path)
                for source in action.companion_source_files or ():
                    self.add(source)

    def add_removed(self, removes: Iterable[Remove], expired_before_ms: int) -> None:
        """The files of removes that are not expired. Replay gives each a time; one that still has none is kept."""
        for remove in removes:
            if remove.deletion_timestamp is None or remove.deletion_timestamp > expired_before_ms:
                self.add(remove.path)

    def leads_to(self, stored: str) -> bool:
        """Whether the log names an object, by its name as stored or by that name decoded."""
        key = path_key(stored)
        if stored in self._keys or (key != stored and key in self._keys):
            return True
        return bool(self._elsewhere) and (file_name(stored) in self._elsewhere or file_name(key) in self._elsewhere)


def file_name(key: str) -> str:
    """The last part that names anything: an absolute key is decoded but not normalised, so it may end in '/' or '.'."""
    return next((part for part in reversed(key.split("/")) if part not in ("", ".")), "")


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
