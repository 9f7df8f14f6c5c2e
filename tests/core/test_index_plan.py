"""What the index needs next, by a table of cases and against a model that is a set of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.core.index_plan import Put, Source, StartOver, agrees, next_put
from tarnlog_server.core.index_rows import IndexedTable, TableFacts

MEMORY, STORAGE = Source.MEMORY, Source.STORAGE


@pytest.mark.parametrize(
    "indexed, memory, oldest, expected",
    [
        (None, (0, 4), 0, Put(0, 4, MEMORY)),
        (None, (0, 40), 0, Put(31, 40, MEMORY)),
        (None, (10, 14), 12, Put(12, 14, MEMORY)),
        (None, (15, 14), 0, Put(14, 14, STORAGE)),
        (None, (15, 14), 15, None),
        ((0, 14), (15, 14), 0, None),
        ((0, 14), (0, 14), 0, None),
        ((0, 10), (5, 14), 0, Put(11, 14, MEMORY)),
        ((0, 10), (11, 44), 0, Put(11, 20, MEMORY)),
        ((0, 10), (14, 14), 0, Put(11, 13, STORAGE)),
        ((0, 10), (31, 44), 0, Put(11, 20, STORAGE)),
        ((0, 10), (200, 244), 0, StartOver()),
        ((30, 40), (5, 40), 0, Put(20, 29, MEMORY)),
        ((30, 40), (5, 40), 25, Put(25, 29, MEMORY)),
        ((30, 50), (5, 40), 30, None),
    ],
)
def test_what_comes_next(
    indexed: tuple[int, int] | None, memory: tuple[int, int], oldest: int, expected: Put | StartOver | None
) -> None:
    assert next_put(indexed, memory, oldest, 10, fill=100) == expected


@given(
    indexed=st.none() | st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda pair: (min(pair), max(pair))),
    window=st.integers(0, 60),
    head=st.integers(0, 300),
    oldest=st.integers(0, 100),
    most=st.integers(1, 20),
)
def test_it_ends_with_memory_covered_and_never_makes_a_hole(
    indexed: tuple[int, int] | None, window: int, head: int, oldest: int, most: int
) -> None:
    memory = (max(0, head + 1 - window), head)
    oldest = min(oldest, head)  # the head is always kept
    for _ in range(1000):
        wanted = next_put(indexed, memory, oldest, most, fill=50)
        if wanted is None:
            break
        if isinstance(wanted, StartOver):
            indexed = None
            continue
        assert wanted.first <= wanted.last <= head
        assert wanted.last - wanted.first < most
        assert wanted.first >= min(oldest, head if indexed is None else indexed[1] + 1)
        if wanted.source is MEMORY:
            assert wanted.first >= memory[0]
        if indexed is not None:
            assert wanted.first <= indexed[1] + 1
            assert wanted.last >= indexed[0] - 1
            indexed = (min(indexed[0], wanted.first), max(indexed[1], wanted.last))
        else:
            indexed = (wanted.first, wanted.last)
    else:
        raise AssertionError("it does not end")
    if head >= oldest and (indexed is None or indexed[0] <= head + 1):
        assert indexed is not None
        assert indexed[1] >= head
        assert indexed[0] <= max(memory[0], oldest)


def test_a_count_that_differs_in_anything_does_not_agree() -> None:
    table = IndexedTable(TableFacts("l", "a.b", "i", 9, 1, 1, 1, None), 3, 9, 700)
    assert agrees(table, (7, 3, 9, 700))
    for counted in ((6, 3, 9, 700), (7, 4, 9, 700), (7, 3, 8, 700), (7, 3, 9, 701), (0, 0, -1, 0)):
        assert not agrees(table, counted)
    empty = IndexedTable(table.facts, 0, -1, 0)
    assert agrees(empty, (0, 0, -1, 0))
    assert not agrees(empty, (1, 0, 0, 5))
