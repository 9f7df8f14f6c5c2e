"""What a run measured, and what is said of it.

A `Sample` is raw (every latency); a `Measure` is what tables and JSON show. Percentiles are nearest-rank: always a
value that was really seen. Only acknowledged commits have a latency; everything else is counted in `errors`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec


class Acknowledged(msgspec.Struct, frozen=True, array_like=True):
    """One acknowledged commit and the place in the log that its writer was told."""

    table: str
    commit_id: str
    version: int
    seq: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One run, raw: as drivers and the load generator report it."""

    seconds: float
    """How long new commits were started."""
    wall: float
    """Until the last of them was answered."""
    in_time: int
    """Acknowledged before `seconds` were over."""
    latencies: list[float]
    errors: dict[str, int]
    landed: int | None = None
    cpu: float = 0.0
    busy: float = 0.0
    """Share of all cores that others used right before or after the run."""
    acknowledged: list[Acknowledged] = []
    versions: dict[str, str] = {}


class Measure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One system on one piece of work."""

    system: str
    work: str
    writers: int
    tables: int
    per_second: float
    commits: int
    failed: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    errors: dict[str, int] = {}
    landed: int | None = None
    client_cpu: float = 0.0
    busy: float = 0.0
    rounds: list[float] = []
    in_window: float = 0.0
    """The rate without those who were answered late."""

    @property
    def failed_percent(self) -> float:
        tried = self.commits + self.failed
        return 100.0 * self.failed / tried if tried else 0.0


def percentile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least the share `q` of all values does not exceed; NaN of nothing."""
    if not 0 <= q <= 1:
        raise ValueError(f"a percentile is asked for as a share between 0 and 1, not {q}")
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def rate(sample: Sample) -> float:
    """Commits per second: all of them, over the time until the last writer was answered. Who waits does no work."""
    if sample.seconds <= 0 or sample.wall <= 0:
        raise ValueError("a run that took no time has no rate")
    return len(sample.latencies) / sample.wall


def window_rate(sample: Sample) -> float:
    """Commits per second that were answered while new ones were started: stragglers neither count nor cost."""
    return sample.in_time / sample.seconds


def measure(system: str, work: str, writers: int, tables: int, sample: Sample) -> Measure:
    """Sum one raw run up."""
    commits = len(sample.latencies)
    return Measure(
        system=system,
        work=work,
        writers=writers,
        tables=tables,
        per_second=rate(sample),
        commits=commits,
        failed=sum(sample.errors.values()),
        p50_ms=percentile(sample.latencies, 0.50) * 1e3,
        p99_ms=percentile(sample.latencies, 0.99) * 1e3,
        max_ms=percentile(sample.latencies, 1.0) * 1e3,
        errors=sample.errors,
        landed=sample.landed,
        client_cpu=sample.cpu / sample.wall,
        busy=sample.busy,
        in_window=window_rate(sample),
    )


def median_of(rounds: Sequence[Measure]) -> Measure:
    """The round with the median rate; commits and failures are counted over all rounds."""
    if not rounds:
        raise ValueError("a median needs at least one round")
    middle = statistics.median_low([one.per_second for one in rounds])
    chosen = next(one for one in rounds if one.per_second == middle)
    errors: dict[str, int] = {}
    for one in rounds:
        for kind, count in one.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    return msgspec.structs.replace(
        chosen,
        rounds=[one.per_second for one in rounds],
        commits=sum(one.commits for one in rounds),
        failed=sum(one.failed for one in rounds),
        errors=errors,
        busy=max(one.busy for one in rounds),
    )
