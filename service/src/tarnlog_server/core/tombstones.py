"""Removed files that vacuum must still see, by path key, each with the version that removed it.

A stored state may hold many of them, and whoever only reads the table asks for none: they are made when they are
first asked for. A value never changes, so it does not matter when, or in which thread, that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import immutables

from tarnlog.protocol.actions import Remove

Removed = tuple[Remove, int]


class Tombstones(Mapping[str, Removed]):
    """A mapping over `known`, a persistent map: given, or what `make` gives when it is first needed.

    Whoever goes through all of them takes `known` itself: here each one costs a look-up in Python.
    """

    __slots__ = ("_known", "_make")

    def __init__(
        self, known: immutables.Map[str, Removed] | None = None, make: Callable[[], Mapping[str, Removed]] | None = None
    ) -> None:
        self._known = known
        self._make = make

    @property
    def known(self) -> immutables.Map[str, Removed]:
        """All of them. Costs their making once."""
        make, found = self._make, self._known  # in this order: another thread sets them in the other
        if found is None:
            found = self._known = immutables.Map(make() if make is not None else {})
            self._make = None
        return found

    def __getitem__(self, key: str) -> Removed:
        return self.known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)
