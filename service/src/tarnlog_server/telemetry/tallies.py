"""Counters and histograms of what happens in every commit: plain numbers, made into metrics when somebody asks.

The client library takes a lock for each number that it changes and compares with one bound after the other. These are
changed on the event loop alone, so they need no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric


class Tally:
    """A counter by labels."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name, self._help, self._labels = name, help_text, labels
        self.counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        """Add to these."""

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, count in self.counts.items():
            family.add_metric(labels, count)
        yield family


class Spread:
    """A histogram without labels. Observing costs a binary search."""

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self._name, self._help, self._bounds = name, help_text, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """It happened once, and was so much; a value on a bound belongs below it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterable[Metric]:
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        family = HistogramMetricFamily(self._name, self._help)
        family.add_metric([], list(zip(names, accumulate(self._counts), strict=True)), self._sum)
        yield family
