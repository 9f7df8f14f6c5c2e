"""Plain numbers as metrics: the same text as the client library's own counters and histograms give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

from tarnlog_server.telemetry.tallies import Spread, Tally

BOUNDS = (0.001, 0.5, 1.0, 10.0)
disable_created_metrics()  # type: ignore[no-untyped-call]


@given(st.lists(st.sampled_from([*BOUNDS, 0.0, 0.0005, 0.7, 3.25, 11.0, 1e9])))
def test_a_spread_reads_as_a_histogram(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("took_seconds", "How long", BOUNDS)
    ours.register(spread)
    histogram = Histogram("took_seconds", "How long", buckets=BOUNDS, registry=theirs)
    for value in values:
        spread.observe(value)
        histogram.observe(value)
    assert generate_latest(ours) == generate_latest(theirs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["hit", "miss"]))))
def test_a_tally_reads_as_a_counter(events: list[tuple[str, str]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("lookups", "Lookups", ["cache", "result"])
    ours.register(tally)
    counter = Counter("lookups", "Lookups", ["cache", "result"], registry=theirs)
    for event in events:
        tally.counts[event] += 1
        counter.labels(*event).inc()
    assert generate_latest(ours) == generate_latest(theirs)
