"""Filters over columns answer as the test of one file does, row for row, and never drop a file with a matching row.

Files, statistics and filters are those of the soundness test of that scalar test, beside texts that no writer should
have written. Blocks are small and thresholds vary, so that every way through the indices is taken.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Add
from tarnlog.protocol.predicates import And, Compare, In, Or, Predicate
from tarnlog.protocol.schema import Field, StructType
from tarnlog_server.codec import bounds_index, scan_rows, segment_filter, span_masks
from tarnlog_server.codec.segment_filter import SegmentFilter
from tarnlog_server.core.file_filter import FileFilter
from tarnlog_server.core.match import file_filter
from tests.codec.scans import metadata, packed, snapshot_with
from tests.core.test_match_soundness import (
    KINDS,
    TYPES,
    VALUES,
    Row,
    bounds,
    evaluate,
    leaves,
    literal,
    text,
    trees,
)

UNUSUAL = [
    "", "x", "+5", "05", "1.5", "1e2", "-1e400", "NaN", "Infinity", "-inf", "1" * 19, "9" * 38, "2024-01-03",
    "0000-01-01T00:00:00Z", "2024-02-31T00:00:00Z", "2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00", "true", "TRUE",
    "a" * 31 + "b", "a\U0001f600", "\ue000", "1704067200000000", "19723",
]  # fmt: skip


class Table(NamedTuple):
    """Files with their rows, and filters to ask."""

    columns: dict[str, str]
    files: list[Add]
    rows: list[list[Row]]
    truncation: int
    predicates: list[Predicate]
    seed: int


@st.composite
def tables(draw: st.DrawFn, *, honest: bool) -> Table:
    columns = {"p": draw(st.sampled_from(KINDS)), "c": draw(st.sampled_from(KINDS)), "d": draw(st.sampled_from(KINDS))}
    truncation = draw(st.sampled_from([3, 32, 40]))
    files, rows = [], []
    probes: dict[str, list[Any]] = {name: [draw(VALUES[kind])] for name, kind in columns.items()}
    for number in range(draw(st.integers(1, 9))):
        fixed = draw(st.none() | VALUES[columns["p"]])
        own = [
            {"p": fixed} | {name: draw(st.none() | VALUES[columns[name]]) for name in ("c", "d")}
            for _ in range(draw(st.integers(1, 3)))
        ]
        low: dict[str, str] = {}
        high: dict[str, str] = {}
        for name in ("c", "d"):
            present = [row[name] for row in own if row[name] is not None]
            probes[name] += present[:1]
            span = bounds(columns[name], present, truncation, draw)
            if span is not None and draw(st.integers(0, 5)):
                low[name], high[name] = span
            if not honest and not draw(st.integers(0, 4)):
                low[name], high[name] = draw(st.sampled_from(UNUSUAL)), draw(st.sampled_from(UNUSUAL))
        value = None if fixed is None else text(columns["p"], fixed, draw)
        if not honest and not draw(st.integers(0, 4)):
            value = draw(st.sampled_from([*UNUSUAL, "__HIVE_DEFAULT_PARTITION__"]))
        if fixed is not None:
            probes["p"].append(fixed)
        files.append(
            Add(
                path=f"{number:03d}",
                partition_values={"p": value},
                size=1,
                modification_time=number,
                data_change=True,
                min_values=low or None,
                max_values=high or None,
            )
        )
        rows.append(own)
    found: list[Predicate] = []
    for name, kind in columns.items():
        found += leaves(name.upper(), kind, [literal(kind, value, draw) for value in probes[name][:3]])
    seed = draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    return Table(columns, files, rows, truncation, rng.sample(trees(found, rng), 30), seed)


def scalar(tree: FileFilter, files: list[Add]) -> list[int]:
    return [row for row, add in enumerate(files) if tree(add.partition_values, add.min_values, add.max_values)]


def schema_of(table: Table) -> StructType:
    return StructType(tuple(Field(name, TYPES[kind]) for name, kind in table.columns.items()))


def selected(rows: pa.Array | None, among: list[int]) -> list[int]:
    return among if rows is None else rows.to_pylist()


@settings(max_examples=150, deadline=None)
@given(tables(honest=False), st.sampled_from([0, 1, 10**6]), st.sampled_from([0, 16]))
def test_columns_answer_as_one_file_does(table: Table, few: int, literals: int) -> None:
    schema = schema_of(table)
    files = packed(table.files, ("p",), batch=4)
    everything = list(range(len(table.files)))
    some = [row for row in everything if row % 3]
    with (
        mock.patch.object(segment_filter, "FEW", few),
        mock.patch.object(bounds_index, "BLOCK", 2),
        mock.patch.object(span_masks, "FEW_LITERALS", literals),
    ):
        for predicate in table.predicates:
            tree = file_filter(predicate, schema, ("p",), table.truncation)
            expected = scalar(tree, table.files)
            assert selected(SegmentFilter(files).select(tree), everything) == expected, predicate
            among = pa.array(some, pa.uint32())
            found = selected(SegmentFilter(files).select(tree, among), some)
            assert found == [row for row in some if row in expected], predicate


@settings(max_examples=100, deadline=None)
@given(tables(honest=True), st.integers(0, 9), st.sets(st.integers(0, 8)))
def test_a_file_with_a_matching_row_is_never_pruned(table: Table, packed_rows: int, removed: set[int]) -> None:
    meta = metadata(schema_of(table).to_schema_string(), ("p",))
    snapshot = snapshot_with(table.files, min(packed_rows, len(table.files)), meta, table.truncation)
    live = [row for row in range(len(table.files)) if row not in removed]
    for row in removed & set(range(len(table.files))):
        snapshot.files.remove(f"{row:03d}", snapshot.version)
    for predicate in table.predicates:
        found = scan_rows.prune(snapshot, predicate)
        assert found.after_skipping == len(found.rows) <= found.after_partitions <= len(live)
        assert set(found.rows) <= set(live)
        for row in set(live) - set(found.rows):
            for values in table.rows[row]:
                by_name = {name.upper(): value for name, value in values.items()}
                kinds = {name.upper(): kind for name, kind in table.columns.items()}
                for nan_is_greatest in (True, False):
                    assert not evaluate(predicate, by_name, kinds, nan_is_greatest), (predicate, values)


@pytest.mark.parametrize("count", [1, 5, 3000])
def test_a_narrow_range_of_many_files_looks_at_few_of_them(count: int) -> None:
    looked = 0

    def counting(test: Any, low: pa.Array, high: pa.Array) -> pa.Array:
        nonlocal looked
        looked += len(low)
        return span_masks.admitted(test, low, high)

    files = packed(
        [
            Add(
                path=f"{number:05d}",
                partition_values={},
                size=1,
                modification_time=0,
                data_change=True,
                min_values={"id": str(number * 7919 % 30_000 * 10)},
                max_values={"id": str(number * 7919 % 30_000 * 10 + 9)},
            )
            for number in range(30_000)
        ],
        (),
        batch=30_000,
    )
    schema = StructType((Field("id", TYPES["long"]),))
    between = And((Compare("ge", "id", 50_000), Compare("lt", "id", 50_000 + 10 * count)))
    tree = file_filter(between, schema, ())
    with mock.patch.object(bounds_index, "admitted", counting):
        found = SegmentFilter(files).select(tree)
    assert found is not None
    assert len(found) == count
    assert looked <= 2 * (count + 2 * bounds_index.BLOCK)


def test_long_lists_and_alternatives_of_partitions() -> None:
    files = [
        Add(path=f"{n:03d}", partition_values={"p": str(n % 50)}, size=1, modification_time=0, data_change=True)
        for n in range(200)
    ]
    schema = StructType((Field("p", TYPES["long"]),))
    tree = file_filter(Or((In("p", tuple(range(20))), Compare("eq", "p", 33))), schema, ("p",))
    assert selected(SegmentFilter(packed(files, ("p",))).select(tree), []) == scalar(tree, files)
