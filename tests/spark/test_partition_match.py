"""Predicates over partition values, decided as SQL does; and files shared out to tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Add
from tarnlog.protocol.predicates import And, Compare, In, IsNotNull, IsNull, Not, Or, Predicate
from tarnlog_spark._files import OPEN_COST, DataFile, shared_out
from tarnlog_spark._options import Splits
from tarnlog_spark._partition_match import matches, partition_row

TYPES = {"n": pa.int32(), "s": pa.string(), "d": pa.date32(), "m": pa.decimal128(6, 2), "b": pa.bool_()}


def row(**values: str | None) -> dict[str, object]:
    file = Add(path="f", partition_values=dict(values), size=1, modification_time=0, data_change=True)
    return partition_row(file, TYPES)


@pytest.mark.parametrize(
    "predicate, values, expected",
    [
        (Compare("eq", "n", 7), {"n": "07"}, True),
        (Compare("lt", "N", 10), {"n": "9"}, True),
        (Compare("gt", "n", 6.5), {"n": "7"}, True),
        (Compare("lt", "s", "9"), {"s": "10"}, True),
        (Compare("ge", "d", "2024-01-31"), {"d": "2024-02-01"}, True),
        (Compare("eq", "m", "1.5"), {"m": "1.50"}, True),
        (Compare("eq", "m", 2), {"m": "2.00"}, True),
        (Compare("eq", "b", True), {"b": "true"}, True),
        (Compare("starts-with", "s", "ab"), {"s": "abc"}, True),
        (Compare("ne", "s", "a"), {"s": "a"}, False),
        (Compare("ne", "s", "a"), {"s": None}, None),
        (Not(Compare("eq", "s", "a")), {"s": None}, None),
        (IsNull("s"), {"s": None}, True),
        (IsNotNull("s"), {}, False),
        (In("n", (1, 2)), {"n": "2"}, True),
        (In("n", (1, None)), {"n": "2"}, None),
        (In("n", (1, None)), {"n": "1"}, True),
        (And((IsNull("s"), Compare("eq", "n", 1))), {"n": None, "s": "x"}, False),
        (And((IsNull("s"), Compare("eq", "n", 1))), {"n": None, "s": None}, None),
        (Or((IsNull("s"), Compare("eq", "n", 1))), {"n": None, "s": None}, True),
        (Or((IsNotNull("s"), Compare("eq", "n", 1))), {"n": None, "s": None}, None),
    ],
)
def test_as_sql_decides(predicate: Predicate, values: dict[str, str | None], expected: bool | None) -> None:
    assert matches(predicate, row(**values), TYPES) is expected


@given(st.lists(st.integers(0, 200 * OPEN_COST), max_size=40), st.integers(1, 8))
def test_files_are_shared_out_whole_and_evenly(sizes: list[int], cores: int) -> None:
    files = [DataFile(path=f"{index:03}", size=size) for index, size in enumerate(sizes)]
    groups = shared_out(files, Splits(parallelism=cores))
    assert sorted(file.path for group in groups for file in group) == [file.path for file in files]
    assert all(groups)
    loads = [sum(file.size + OPEN_COST for file in group) for group in groups]
    if loads:
        assert max(loads) - min(loads) <= max(sizes) + OPEN_COST, "no group is ahead by more than one file"
        assert len(groups) >= min(len(files), cores) or sum(loads) <= OPEN_COST * cores
