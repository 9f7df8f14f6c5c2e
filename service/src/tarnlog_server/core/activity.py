"""What tables did in the last minutes: counters and rings of fixed size, for people who look on.

Noting a commit is a few additions, whatever happened before. Nothing is kept over a restart, and of the tables only
those that were busy last. Time comes as an argument: seconds that never go back.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Sequence

from msgspec import Struct

BUCKET_SECONDS = 10.0
BUCKETS = 60
"""Ten minutes in steps of ten seconds."""
RATE_BUCKETS = 6
"""A rate is that of the last minute."""
LATENCIES = 512
LATENCIES_OF_ALL = 4096
TABLES = 1000
_PROVE_A_TABLE = frozenset({"committed", "replayed", "conflict"})
"""Outcomes that only a table which exists can have."""


class Ring:
    """How often something happened in each of the last buckets, and how long the newest ones took."""

    __slots__ = ("_at", "_counts", "_ended", "_newest", "_seconds", "_size")

    def __init__(self, durations: int) -> None:
        self._counts = [0] * BUCKETS
        self._newest = 0
        self._ended = array("d", [float("-inf")]) * durations
        self._seconds = array("d", bytes(8 * durations))
        self._at = 0
        self._size = durations

    def add(self, now: float, seconds: float) -> None:
        """It happened once, and took so long."""
        bucket = int(now / BUCKET_SECONDS)
        if bucket > self._newest:
            for passed in range(max(self._newest + 1, bucket - BUCKETS + 1), bucket + 1):
                self._counts[passed % BUCKETS] = 0
            self._newest = bucket
        self._counts[bucket % BUCKETS] += 1
        at = self._at
        self._ended[at] = now
        self._seconds[at] = seconds
        at += 1
        self._at = at if at < self._size else 0

    def series(self, now: float) -> tuple[int, ...]:
        """The counts, oldest first; the last bucket has only begun."""
        last = int(now / BUCKET_SECONDS)
        oldest_known = self._newest - BUCKETS + 1
        return tuple(
            self._counts[bucket % BUCKETS] if oldest_known <= bucket <= self._newest else 0
            for bucket in range(last - BUCKETS + 1, last + 1)
        )

    def per_second(self, now: float) -> float:
        """The rate over the last minute, of which the last bucket is the part that has passed."""
        seconds = (RATE_BUCKETS - 1) * BUCKET_SECONDS + now % BUCKET_SECONDS
        return sum(self.series(now)[-RATE_BUCKETS:]) / seconds

    def recent(self, now: float) -> list[float]:
        """The durations of the last ten minutes that are kept, shortest first."""
        begin = now - BUCKETS * BUCKET_SECONDS
        return sorted(s for ended, s in zip(self._ended, self._seconds, strict=True) if begin < ended <= now)


class Figures(Struct, frozen=True, kw_only=True):
    """What can be said of a while: rates of the last minute, durations of the last ten, counts since the start."""

    per_second: float = 0.0
    series: tuple[int, ...] = (0,) * BUCKETS
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    outcomes: dict[str, int] = {}
    conflicts: dict[str, int] = {}


class Busy:
    """What one table, or all of them, or a store, did."""

    __slots__ = ("conflicts", "done", "outcomes")

    def __init__(self, durations: int = LATENCIES) -> None:
        self.done = Ring(durations)
        """What counts for rates and durations."""
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.conflicts: defaultdict[str, int] = defaultdict(int)

    def figures(self, now: float) -> Figures:
        """All of it. Costs sorting the kept durations."""
        recent = self.done.recent(now)
        return Figures(
            per_second=self.done.per_second(now),
            series=self.done.series(now),
            p50=percentile(recent, 0.50),
            p95=percentile(recent, 0.95),
            p99=percentile(recent, 0.99),
            outcomes=dict(sorted(self.outcomes.items())),
            conflicts=dict(sorted(self.conflicts.items())),
        )


class Activity:
    """What this process did since it started."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, Busy] = OrderedDict()
        self._all = Busy(LATENCIES_OF_ALL)
        self._store = Busy(LATENCIES_OF_ALL)

    def commit_answered(self, now: float, table: str, outcome: str, seconds: float) -> None:
        """A commit got its answer. A name that no table is known to have takes no room."""
        busy = self._busy(table) if outcome in _PROVE_A_TABLE else self._tables.get(table)
        self._all.outcomes[outcome] += 1
        if busy is not None:
            busy.outcomes[outcome] += 1
            if outcome == "committed":
                busy.done.add(now, seconds)
                self._all.done.add(now, seconds)

    def conflict(self, table: str, rule: str) -> None:
        """A commit was refused by a rule."""
        self._all.conflicts[rule] += 1
        self._busy(table).conflicts[rule] += 1

    def storage(self, now: float, code: str, seconds: float) -> None:
        """A request to a store ended."""
        self._store.outcomes[code] += 1
        self._store.done.add(now, seconds)

    def of_table(self, table: str, now: float) -> Figures:
        """What is known of one table; nothing at all when it was not busy."""
        busy = self._tables.get(table)
        return Figures() if busy is None else busy.figures(now)

    def of_all(self, now: float) -> Figures:
        """The commits of all tables together."""
        return self._all.figures(now)

    def of_store(self, now: float) -> Figures:
        """Requests to the stores; outcomes are their codes."""
        return self._store.figures(now)

    def _busy(self, table: str) -> Busy:
        busy = self._tables.get(table)
        if busy is None:
            busy = self._tables[table] = Busy()
            if len(self._tables) > TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(table)
        return busy


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of the sorted values does not exceed (nearest rank); None without values."""
    if not values:
        return None
    # 0.95 of twenty is nineteen, whatever the last bit of a float says.
    return values[max(0, math.ceil(share * len(values) - 1e-9) - 1)]
