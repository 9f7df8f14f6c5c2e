"""The recorder of the last minutes against a list of everything that happened."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.core.activity import (
    BUCKET_SECONDS,
    BUCKETS,
    LATENCIES,
    RATE_BUCKETS,
    TABLES,
    Activity,
    Figures,
    Ring,
    percentile,
)

STEPS = st.lists(
    st.one_of(st.floats(0, 25), st.floats(0, BUCKETS * BUCKET_SECONDS * 1.5)),  # close together, and far apart
    max_size=80,
)


@given(STEPS, st.floats(0, 2000), st.floats(0, 1e6))
def test_a_ring_counts_like_a_list(steps: list[float], later: float, start: float) -> None:
    ring = Ring(8)
    now, times = start, []
    for step in steps:
        now += step
        times.append(now)
        ring.add(now, 0.0)
    now += later
    last = int(now / BUCKET_SECONDS)
    counted = [
        sum(int(time / BUCKET_SECONDS) == bucket for time in times) for bucket in range(last - BUCKETS + 1, last + 1)
    ]
    assert list(ring.series(now)) == counted
    seconds = (RATE_BUCKETS - 1) * BUCKET_SECONDS + now % BUCKET_SECONDS
    assert math.isclose(ring.per_second(now), sum(counted[-RATE_BUCKETS:]) / seconds)


@given(STEPS, st.integers(1, 20))
def test_durations_are_the_newest_of_the_last_minutes(steps: list[float], size: int) -> None:
    kept = Ring(size)
    now, all_of_them = 0.0, []
    for number, step in enumerate(steps):
        now += step
        kept.add(now, float(-number))
        all_of_them.append((now, float(-number)))
    begin = now - BUCKETS * BUCKET_SECONDS
    assert kept.recent(now) == sorted(seconds for ended, seconds in all_of_them[-size:] if ended > begin)


@given(st.lists(st.floats(0, 100), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_the_least_value_that_covers_its_share(values: list[float], share: float) -> None:
    values.sort()
    found = percentile(values, share)
    covering = [v for v in values if sum(one <= v for one in values) >= share * len(values) - 1e-9]
    assert found == min(covering)


def test_nothing_is_known_of_a_quiet_table() -> None:
    assert percentile([], 0.5) is None
    assert Activity().of_table("db.t", 5.0) == Figures()


def test_tables_are_told_apart_and_added_up() -> None:
    activity = Activity()
    for number in range(4):
        activity.commit_answered(100.0 + number, "db.a", "committed", 0.010)
    activity.commit_answered(104.0, "db.b", "committed", 0.030)
    activity.commit_answered(104.0, "db.a", "conflict", 9.0)
    activity.conflict("db.a", "append")
    activity.commit_answered(104.0, "db.a", "rejected", 9.0)
    a, b, both = activity.of_table("db.a", 105.0), activity.of_table("db.b", 105.0), activity.of_all(105.0)
    assert (a.outcomes, a.conflicts) == ({"committed": 4, "conflict": 1, "rejected": 1}, {"append": 1})
    assert (a.p50, a.p99, b.p50) == (0.010, 0.010, 0.030), "only commits that were written have a latency"
    assert (sum(a.series), sum(b.series), sum(both.series)) == (4, 1, 5)
    assert both.conflicts == {"append": 1}
    assert (both.p50, both.p95) == (0.010, 0.030)


def test_names_that_clients_make_up_take_no_room() -> None:
    activity = Activity()
    activity.commit_answered(1.0, "db.real", "committed", 0.1)
    for number in range(2 * TABLES):
        activity.commit_answered(1.0, f"db.no{number}", "rejected", 0.1)
    assert activity.of_table("db.real", 1.0).outcomes == {"committed": 1}
    assert activity.of_table("db.no1", 1.0) == Figures()
    assert activity.of_all(1.0).outcomes == {"committed": 1, "rejected": 2 * TABLES}


def test_everything_is_bounded() -> None:
    activity = Activity()
    for number in range(TABLES + 5):
        activity.commit_answered(1.0, f"db.t{number}", "committed", 0.1)
        activity.commit_answered(1.0, "db.busy", "committed", 0.1)
    assert len(activity._tables) == TABLES
    assert activity.of_table("db.t0", 1.0) == Figures()
    assert activity.of_table("db.busy", 1.0).outcomes == {"committed": TABLES + 5}


def test_a_full_ring_of_durations_forgets_the_oldest() -> None:
    activity = Activity()
    for _ in range(LATENCIES):
        activity.commit_answered(1.0, "db.t", "committed", 5.0)
    for number in range(LATENCIES):
        activity.commit_answered(2.0, "db.t", "committed", number / 1000)
    assert activity.of_table("db.t", 2.0).p99 == (math.ceil(0.99 * LATENCIES) - 1) / 1000
