"""What the Spark benchmark asks for and what it finds: every number by rounds, so that neighbours in time compare."""

from __future__ import annotations

import itertools
import statistics

import msgspec

from bench.spark_data import Sizes

ROWS = 1_000
"""Rows of a small append."""
WRITERS = 8
PEERS = ("delta", "iceberg")
FILTERS = ("range 0.1 %", "partition", "everything")
"""The plans that are asked for. A filter goes first: the first plan of a table is one that users make."""


class SparkSize(msgspec.Struct, frozen=True, kw_only=True):
    """How far to go."""

    race: Sizes
    blocks: int
    """Turns of every system in the small appends."""
    appends: int
    """Small appends of a turn."""
    shared_blocks: int
    """Turns of every system in the appends of several writers."""
    each: int
    """Appends of each of these writers in a turn."""
    planned: int
    """Files of the table that is planned."""
    asks: int
    """Turns of every system with each plan: on a new version, and again on the same one."""


class Raced(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of every round, tarnlog and plain Parquet by turns."""

    own: list[float]
    native: list[float]


class Overhead(msgspec.Struct, frozen=True):
    """Seconds of a whole job, and of what tarnlog adds to it."""

    plan: float
    commit: float
    job: float


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of several writers on one table."""

    seconds: float
    appends: int
    failed: int

    @property
    def per_second(self) -> float:
        """Appends that landed, a second."""
        return (self.appends - self.failed) / self.seconds


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """One filter on a table that is open, in milliseconds. `found` is None where the system does not tell its files."""

    new_version: list[float]
    """Each on a version that was not there before: a commit came first."""
    again: list[float]
    """The last of these versions, which was planned with this filter before."""
    found: int | None


class Planned(msgspec.Struct, frozen=True):
    """Planning a table of very many files."""

    first_ms: float
    plans: dict[str, Plans]


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What every table format was asked for."""

    system: str
    small: list[list[float]]
    """Seconds of each append, turn by turn."""
    shared: list[Shared]
    planned: Planned

    @property
    def appends(self) -> list[float]:
        """Seconds of each small append in the order in which they were made."""
        return list(itertools.chain.from_iterable(self.small))

    @property
    def failed(self) -> int:
        """Appends of several writers that failed."""
        return sum(block.failed for block in self.shared)

    @property
    def per_second(self) -> float:
        """Appends of several writers that landed, a second: the median over the turns."""
        return statistics.median(block.per_second for block in self.shared)
