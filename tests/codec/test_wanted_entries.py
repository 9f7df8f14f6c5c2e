"""Entries that are left out before anything is made of them: never one that the filter itself would keep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.predicates import And, Compare, Or, Predicate
from tarnlog.protocol.schema import parse_schema
from tarnlog_server.codec.file_columns import of_partitions
from tarnlog_server.codec.segment_ipc import decode_segment, encode_segment
from tarnlog_server.codec.wanted_entries import Wanted, values_of, without_numbers
from tarnlog_server.core.match import file_filter

SCHEMA = parse_schema(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("x", "integer"), ("day", "date"), ("zone", "string"))
        ],
    }
)
COLUMNS = ("day", "zone")
TEXTS = pa.map_(pa.string(), pa.string())
FIELDS = pa.schema([("path", pa.string()), ("partitionValues", TEXTS), ("minValues", TEXTS), ("maxValues", TEXTS)])
Entry = tuple[dict[str, str], dict[str, str] | None, dict[str, str] | None]


def batch_of(entries: list[Entry]) -> pa.RecordBatch:
    records = [
        {
            "path": str(at),
            "partitionValues": list(values.items()),
            "minValues": None if low is None else list(low.items()),
            "maxValues": None if high is None else list(high.items()),
        }
        for at, (values, low, high) in enumerate(entries)
    ]
    return pa.RecordBatch.from_pylist(records, schema=FIELDS)


def left(entries: list[Entry], predicate: Predicate) -> set[int]:
    """What is left of entries as a manifest has them, and of the same as the index keeps them: no difference."""
    wanted = Wanted(file_filter(predicate, SCHEMA, COLUMNS), COLUMNS)
    batch = batch_of(entries)
    (kept,) = decode_segment(encode_segment([batch])) or [batch]
    assert _records(kept) == _records(batch)
    found = [of_partitions(one, COLUMNS, wanted) for one in (batch, kept)]
    assert _records(found[1]) == _records(found[0])
    return {int(path) for path in found[0].column("path").to_pylist()}


def _records(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """What the entries say; a field that says nothing need not be there."""
    records = without_numbers(batch).to_pylist()
    return [{name: value for name, value in record.items() if value is not None} for record in records]


def bounds(low: Any, high: Any, **values: str) -> Entry:
    return values, None if low is None else {"id": str(low)}, None if high is None else {"id": str(high)}


RANGES: list[tuple[Predicate, set[int]]] = [
    (Compare("eq", "id", 15), {1, 3, 4, 5}),
    (Compare("lt", "id", 10), {0, 3, 4, 5}),
    (Compare("le", "id", 10), {0, 1, 3, 4, 5}),
    (Compare("gt", "id", 19), {2, 3, 4, 5}),
    (Compare("ge", "id", 19), {1, 2, 3, 4, 5}),
    (Compare("gt", "id", 18.5), {1, 2, 3, 4, 5}),
    (And((Compare("ge", "id", 10), Compare("le", "id", 19))), {1, 3, 4, 5}),
    (Compare("ne", "id", 15), {0, 1, 2, 3, 4, 5}),
    (Or((Compare("eq", "id", 15), Compare("eq", "x", 1))), {0, 1, 2, 3, 4, 5}),
    (Compare("lt", "id", 10**30), {0, 1, 2, 3, 4, 5}),
]


@pytest.mark.parametrize("predicate, wanted", RANGES)
def test_ranges(predicate: Predicate, wanted: set[int]) -> None:
    entries = [bounds(0, 9), bounds(10, 19), bounds(20, 29), bounds(None, 5), bounds(None, None), bounds(7, 3)]
    assert left(entries, predicate) == wanted


def test_numbers_are_kept_beside_the_entries() -> None:
    (kept,) = decode_segment(encode_segment([batch_of([bounds(0, 9), bounds(None, 12)])]))
    numbers = [name for name in kept.schema.names if name not in FIELDS.names]
    assert [kept.column(name).to_pylist() for name in numbers] == [[0, None], [9, 12]]


def test_a_bound_that_is_no_plain_number_leaves_out_nothing() -> None:
    assert left([bounds(0, 9), bounds("0x10", "0x11")], Compare("eq", "id", 100)) == {0, 1}
    assert left([bounds(0, 9), bounds(0, 10**25)], Compare("gt", "id", 100)) == {0, 1}


TEXT = st.sampled_from(["0", "7", "-3", "15", "1.5", "x"])
ENTRIES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(["2024-01-01", "2024-01-02", "", "b"])),
        st.none() | st.dictionaries(st.sampled_from(["id", "x"]), TEXT),
        st.none() | st.dictionaries(st.sampled_from(["id", "x"]), TEXT),
    ),
    max_size=5,
)
LEAVES = st.one_of(
    st.builds(
        Compare,
        st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]),
        st.sampled_from(["id", "x"]),
        st.integers(-5, 20),
    ),
    st.builds(
        Compare, st.sampled_from(["eq", "lt", "ge"]), st.just("day"), st.sampled_from(["2024-01-01", "2024-01-03"])
    ),
    st.builds(Compare, st.just("eq"), st.just("zone"), st.sampled_from(["a", "b"])),
)
TREES = (
    LEAVES | st.builds(lambda a, b: And((a, b)), LEAVES, LEAVES) | st.builds(lambda a, b: Or((a, b)), LEAVES, LEAVES)
)


@settings(max_examples=200, deadline=None)
@given(ENTRIES, TREES)
def test_what_the_filter_keeps_is_kept(entries: list[Entry], predicate: Predicate) -> None:
    tree = file_filter(predicate, SCHEMA, COLUMNS)
    kept = {
        at
        for at, (values, low, high) in enumerate(entries)
        if tree({name: values.get(name) for name in COLUMNS}, low, high)
    }
    assert kept <= left(entries, predicate)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.sampled_from("xyz"), max_size=3)),
    st.integers(0, 2),
)
def test_values_of_a_key(maps: list[dict[str, str | None] | None], skipped: int) -> None:
    whole = pa.array([None if one is None else list(one.items()) for one in maps], TEXTS)
    found = values_of(whole.slice(skipped), "a").to_pylist()
    assert found == [None if one is None else one.get("a") for one in maps[skipped:]]
