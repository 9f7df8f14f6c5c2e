"""The curve against its promises, without Spark: parts are boxes that do not overlap, of about one size, in order."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tarnlog_spark._curve import PLACE_BITS, Row, grown, places, shared_tasks

REALS = st.none() | st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
TEXTS = st.none() | st.text(max_size=3) | st.sampled_from(["", "ä", "\U0001f600", "\uffff"])
FEW = st.none() | st.integers(0, 2)
MANY = st.integers(-(2**63), 2**63 - 1)
COLUMNS = st.lists(st.sampled_from([REALS, TEXTS, FEW, MANY]), min_size=1, max_size=4)
ROWS = COLUMNS.flatmap(lambda kinds: st.lists(st.tuples(*kinds), min_size=1, max_size=150))


def rank(value: Any) -> tuple[int, Any]:
    """Null first, NaN last, everything else as it compares."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)


def boxes(rows: list[Row], found: list[int]) -> dict[int, list[tuple[Any, Any]]]:
    """The least and the greatest value in every column, by part."""
    by_part = defaultdict(list)
    for row, part in zip(rows, found, strict=True):
        by_part[part].append([rank(value) for value in row])
    return {
        part: [(min(values), max(values)) for values in zip(*members, strict=True)] for part, members in by_part.items()
    }


@given(ROWS, st.integers(1, 20), st.integers(0, 5))
def test_parts_are_boxes_that_no_other_part_reaches_into(rows: list[Row], files: int, first: int) -> None:
    columns = len(rows[0])
    found = places(grown(rows, columns, files, first), rows)
    assert {place >> PLACE_BITS for place in found} <= set(range(first, first + files))
    for parts in (found, [place >> PLACE_BITS for place in found]):
        known = list(boxes(rows, parts).values())
        for number, box in enumerate(known):
            for other in known[:number]:
                apart = any(a[1] < b[0] or b[1] < a[0] for a, b in zip(box, other, strict=True))
                alike = all(a[0] == a[1] == b[0] == b[1] for a, b in zip(box, other, strict=True))
                # What no column tells apart may be in several parts; so may what a small sample did not part.
                assert apart or alike or len(rows) < 8 * files


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_files_are_of_about_one_size_and_narrow_in_every_column(seed: int, files: int) -> None:
    chance = random.Random(seed)
    first, second = (chance.sample(range(10_000), 600) for _ in range(2))
    rows = [(a, a + b // 2, a) for a, b in zip(first, second, strict=True)]  # correlated, as real columns are
    found = [place >> PLACE_BITS for place in places(grown(rows, 3, files), rows)]
    sizes = Counter(found)
    assert set(sizes) == set(range(files))
    assert max(sizes.values()) <= 2 * min(sizes.values()) + 8
    if files >= 16:
        widths = [[high[1] - low[1] for low, high in box] for box in boxes(rows, found).values()]
        assert all(sum(width) / files < 0.6 * 10_000 for width in zip(*widths, strict=True))


@given(st.integers(2, 9), st.integers(1, 4))
def test_rows_that_are_all_alike_are_shared_out(files: int, columns: int) -> None:
    rows = [(7,) * columns] * 100
    curve = grown(rows, columns, files)
    found = places(curve, rows)
    assert {place >> PLACE_BITS for place in found} == set(range(files))
    # Where a row goes depends on its number in its file alone, not on the batch it came with.
    assert found == places(curve, rows[:37]) + places(curve, rows[37:], 37)


@given(st.integers(1, 5))
def test_values_that_the_sample_did_not_have_lie_between_its_own(files: int) -> None:
    sample = [(number * 10, f"{number:03}") for number in range(100)]
    curve = grown(sample, 2, files)
    for number in range(99):
        row = sample[number]
        between = [row, (row[0] + 5, row[1]), (row[0] + 5, row[1] + "x")]
        assert len(set(places(curve, between))) == 1


@given(st.lists(st.floats(0, 6), max_size=40))
def test_small_partitions_share_tasks_and_large_ones_have_their_own(sizes: list[float]) -> None:
    told, tasks = shared_tasks(sizes)
    held = defaultdict(list)
    for size, (first, files) in zip(sizes, told, strict=True):
        assert abs(files - size) <= 0.5 or (files == 1 and size < 0.5)
        for task in range(first, first + files):
            held[task].append(size)
    assert set(held) == set(range(tasks))
    for members in held.values():
        assert len(members) == 1 or (all(size < 0.5 for size in members) and sum(members) < 1.001)
